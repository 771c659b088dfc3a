"""Tasks as rows for verl's own `tool_agent` loop, where the environment is behind tools.

That loop takes its prompt from the row, and hands tools `extra_info.tools_kwargs` alone. So the prompt is the task's
system prompt with the environment's first observation, which is asked for here; and the task travels in tools_kwargs as
one JSON string, under a name that no tool can have, beside the observation's fingerprint, so that an environment that
starts elsewhere is noticed. `extra_info.tool_selection` names the environment's tools: one file may hold those of many.
All else is as in every row (`agentgym_rl.data.parquet`), so that agent loops of ours play these rows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.data.parquet import write_tasks
from agentgym_rl.data.replaced import replaced
from agentgym_rl.environment import Opening, opening
from agentgym_rl.environments.registry import Isolation, opened
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, boundary
from agentgym_rl.exported_tools import RESET_SECONDS, ExportedTool, by_calls, told_of_tools
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat

AGENT_NAME = "tool_agent"
TASK_KEY, OPENING_KEY = "@task", "@opening"


async def write_tool_rows(
    tasks: Sequence[Task],
    tools: Sequence[ExportedTool],
    path: str | Path,
    agent_name: str = AGENT_NAME,
    format: ToolFormat = "native",
    isolation: Isolation = "thread",
) -> None:
    """Write the tasks to a parquet file, all of them or none.

    Args:
        tasks: of one environment, or of several.
        tools: of each of these environments.
        path: of the file.
        agent_name: the agent loop that plays the rows.
        format: "native" where the chat template tells of tools; another one's description goes into the system prompt.
        isolation: where environments run while they are asked for first observations.

    Raises:
        DataError: no task, an id twice, or a task that is no JSON.
        ConfigurationError: an environment has no tool, or a task can't work.
        EnvironmentFailed: no first observation.
    """
    import pyarrow
    import pyarrow.parquet

    of_environment = {task.environment: [t for t in tools if t.environment == task.environment] for task in tasks}
    for name, own in of_environment.items():
        if not own:
            known = sorted({tool.environment for tool in tools})
            raise ConfigurationError(f"no tool is one of environment {name!r}; there are tools of {known or 'none'}")
    tasks = [by_calls(task) for task in tasks]
    begun = [task.id for task in tasks if task.prefix and agent_name == AGENT_NAME]
    if begun:
        raise ConfigurationError(
            f"task {begun[0]!r} has a prefix, and verl's loop {AGENT_NAME!r} begins every episode at its start; "
            "'environment_tools' plays it"
        )
    openings = [await _opening(task, of_environment[task.environment], format, isolation) for task in tasks]
    with replaced(path) as beside:
        write_tasks(tasks, beside)
        table = pyarrow.parquet.read_table(beside)
        extra = [
            _extra_info(row, task, start, of_environment[task.environment])
            for row, task, start in zip(table["extra_info"].to_pylist(), tasks, openings, strict=True)
        ]
        prompts = [[message.to_chat() for message in start.messages] for start in openings]
        columns = {
            "prompt": pyarrow.array(prompts, table.schema.field("prompt").type),
            "agent_name": pyarrow.array([agent_name] * len(tasks)),
            "extra_info": pyarrow.array(extra, _extra_info_type()),
        }
        for name, column in columns.items():
            table = table.set_column(table.schema.get_field_index(name), name, column)
        pyarrow.parquet.write_table(table, beside)


async def _opening(task: Task, tools: Sequence[ExportedTool], format: ToolFormat, isolation: Isolation) -> Opening:
    """What the policy is told before its first call."""
    async with opened(task.environment, isolation) as environment:
        what = f"reset of environment {task.environment!r} for task {task.id!r}"
        seen = await boundary(environment.reset(task), EnvironmentFailed, what, RESET_SECONDS)
        prompt = told_of_tools(task.system_prompt(environment.instructions), tools, format)
        return opening(replace(task, prompt=prompt), "", seen)


def _extra_info(row: dict[str, Any], task: Task, start: Opening, tools: Sequence[ExportedTool]) -> dict[str, Any]:
    return {
        **row,
        "tools_kwargs": {TASK_KEY: task.to_json(), OPENING_KEY: start.fingerprint},
        "tool_selection": [tool.schema.name for tool in tools],
    }


def _extra_info_type() -> Any:
    import pyarrow as pa

    return pa.struct(
        [
            ("index", pa.int64()),
            ("split", pa.string()),
            ("tools_kwargs", pa.struct([(TASK_KEY, pa.string()), (OPENING_KEY, pa.string())])),
            ("tool_selection", pa.list_(pa.string())),
        ]
    )
