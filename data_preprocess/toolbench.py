"""ToolBench's query files, such as StableToolBench's solvable ones -> train, validation and test tasks, in parquet.

A file is a JSON list of objects with `query_id`, `query`, `api_list` and, if the rule "relevant_calls" is wanted,
`relevant APIs`. Queries are dealt to the splits by their ids; a text that stands there again under another id is left
out, so none is in two splits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from agentgym_rl.environments.toolbench.apis import FIELDS
from agentgym_rl.environments.toolbench.arguments import DEFAULT_JUDGE, DEFAULT_MAX_TURNS, Setup
from agentgym_rl.environments.toolbench.environment import ToolBench
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat
from data_preprocess.splits import deal, parser_of, sizes_of, write_splits


def build(
    files: Sequence[Path], sizes: Mapping[str, int], shared: Mapping[str, Any], seed: int
) -> dict[str, list[Task]]:
    """Deal the queries.

    Args:
        files: of ToolBench.
        sizes: queries per split, e.g. {"train": 240, "validation": 40, "test": 67}; 0: no such split.
        shared: arguments of every task; `url` is needed.
        seed: of the deal.

    Raises:
        DataError: a file can't be read as queries, one id has two queries, or there are fewer than were asked for.
        ConfigurationError: a size below 0, nothing is asked for, or a shared argument can't work.
    """
    queries = read_queries(files)
    dealt = deal("toolbench", list(queries), sizes, seed)
    made = {split: [_task(queries[id], id, split, shared) for _, id in ids] for split, ids in dealt.items()}
    for task in (task for tasks in made.values() for task in tasks):
        Setup.of(task.arguments, ToolBench.tool_format)
    return made


def read_queries(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Arguments of a task by query id, in the files' order.

    Raises:
        DataError: a file can't be read as queries, or one id has two.
    """
    queries: dict[str, dict[str, Any]] = {}
    texts: set[str] = set()
    for path in files:
        for row in _rows(path):
            query = _query(path, row)
            known = queries.get(row["query_id"])
            if known not in (None, query):
                raise DataError(f"{path}: the id {row['query_id']} is also that of another query")
            if query["query"] not in texts:
                texts.add(query["query"])
                queries[row["query_id"]] = query
    return queries


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path} must be a JSON list of queries; it is a {type(rows).__name__}")
    return [{**row, "query_id": str(row.get("query_id", "")).strip()} for row in rows]


def _query(path: Path, row: Mapping[str, Any]) -> dict[str, Any]:
    """Only what a task needs; the files also show what an API answers."""
    for name, kind in (("query_id", str), ("query", str), ("api_list", list)):
        if not isinstance(row.get(name), kind) or not row[name]:
            raise DataError(f"{path}: query {row['query_id']!r} needs {name!r}; given: {row.get(name)!r:.200}")
    apis = [{n: api.get(n) for n in FIELDS} if isinstance(api, dict) else api for api in row["api_list"]]
    query = {"query": row["query"], "apis": apis, "relevant": row.get("relevant APIs") or []}
    try:
        Setup.of({**query, "url": "http://"}, ToolBench.tool_format)
    except ConfigurationError as error:
        raise DataError(f"{path}: query {row['query_id']!r}: {error}") from error
    return query


def _task(query: Mapping[str, Any], id: str, split: str, shared: Mapping[str, Any]) -> Task:
    return Task(f"toolbench-{id}", "toolbench", {**query, **shared}, split=split)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("toolbench", __doc__, train=240, validation=40, test=67)
    parser.add_argument("files", type=Path, nargs="+", help="query files, such as G1_instruction.json")
    parser.add_argument("--url", required=True, help="of the virtual API server: http://host:port")
    parser.add_argument("--cache", default="", help="folder that keeps answers; empty: none")
    parser.add_argument("--judge", default=DEFAULT_JUDGE, help="any_call, relevant_calls or module:function")
    parser.add_argument("--tool-format", default=ToolBench.tool_format, choices=get_args(ToolFormat), help="of calls")
    parser.add_argument("--max-turns", type=int, default=DEFAULT_MAX_TURNS, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    shared = {name: getattr(given, name) for name in ("url", "cache", "judge", "tool_format", "max_turns")}
    write_splits(build(given.files, sizes_of(given), shared, given.seed), given.out)


if __name__ == "__main__":
    main()
