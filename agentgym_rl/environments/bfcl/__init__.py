"""BFCL's multi-turn tasks: function calls on stateful classes, judged by the package's own checkers."""
