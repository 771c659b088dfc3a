"""Task <-> row of the parquet files that verl's dataset reads.

The task itself travels as one JSON string: as a nested column, parquet would give every row the union of all rows'
argument names. The other columns are what verl wants to see. Its `prompt` must be a chat that is not empty, so it names
the task; what the policy is really told is the environment's first observation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import DataError
from agentgym_rl.messages import system, user
from agentgym_rl.task import Task

AGENT_NAME = "environment"
"""The agent loop that plays such rows."""


def write_tasks(tasks: Sequence[Task], path: str | Path) -> None:
    """Write the tasks to a parquet file, all of them or none.

    Raises:
        DataError: no task, an id twice, or a task that is no JSON.
    """
    import pyarrow
    import pyarrow.parquet

    if not tasks:
        raise DataError(f"there is no task to write to {path}")
    _require_unique_ids(tasks, path)
    rows = [_to_row(task, index) for index, task in enumerate(tasks)]
    table = pyarrow.Table.from_pylist(rows, schema=_schema())
    with replaced(path) as beside:
        pyarrow.parquet.write_table(table, beside)


def read_tasks(path: str | Path) -> list[Task]:
    """Read the tasks of a file that `write_tasks` wrote, in its order.

    Raises:
        DataError: no such file, no parquet file, no column `task`, or a row that is no task.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is no parquet file: {error}") from error
    with file:
        columns = file.schema_arrow.names
        if "task" not in columns:
            raise DataError(f"{path} has no column 'task'; it has: {', '.join(columns)}")
        texts = file.read(columns=["task"]).column("task").to_pylist()
    tasks = [_from_text(text, f"row {index} of {path}") for index, text in enumerate(texts)]
    _require_unique_ids(tasks, path)
    return tasks


def _schema() -> Any:
    """Spelled out, so that the files of all data sets agree and verl can concatenate them."""
    import pyarrow as pa

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    return pa.schema(
        [
            ("prompt", pa.list_(message)),
            ("agent_name", pa.string()),
            ("data_source", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string())])),
            ("task", pa.string()),
        ]
    )


def _to_row(task: Task, index: int) -> dict[str, Any]:
    head = [system(task.prompt)] if task.prompt else []
    chat = [*head, user(f"Task {task.id} of environment {task.environment}.")]
    try:
        text, answer = task.to_json(), _ground_truth(task.reference_answer)
        text.encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"task {task.id!r} can't be written as JSON: {error}") from error
    return {
        "prompt": [message.to_chat() for message in chat],
        "agent_name": AGENT_NAME,
        "data_source": task.environment,
        "reward_model": {"style": "environment", "ground_truth": answer},
        "extra_info": {"index": index, "split": task.split},
        "task": text,
    }


def _ground_truth(answer: Any) -> str:
    """verl wants text there, and `None` has none."""
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(answer, ensure_ascii=False, sort_keys=True)


def _from_text(text: Any, where: str) -> Task:
    if not isinstance(text, str):
        raise DataError(f"{where}: the task must be JSON text; given: {text!r}")
    try:
        return Task.from_json(text)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _require_unique_ids(tasks: Sequence[Task], path: str | Path) -> None:
    seen: dict[str, int] = {}
    for index, task in enumerate(tasks):
        if task.id in seen:
            raise DataError(f"{path}: rows {seen[task.id]} and {index} have the same task id {task.id!r}")
        seen[task.id] = index
