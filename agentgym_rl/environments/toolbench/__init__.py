"""ToolBench queries with StableToolBench's virtual API server: what an API answers is asked of the server."""
