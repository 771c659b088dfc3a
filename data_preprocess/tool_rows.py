"""Tasks of any environment -> rows for verl's own `tool_agent` loop, or for `environment_tools`, in parquet."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from agentgym_rl.data.tool_rows import AGENT_NAME, write_tool_rows
from agentgym_rl.data.user_tasks import load_tasks
from agentgym_rl.exported_tools import read_tool_file
from agentgym_rl.tool_calls import ToolFormat


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m data_preprocess.tool_rows", description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True, help="a .jsonl or .parquet file of tasks")
    parser.add_argument("--tools", type=Path, required=True, help="what `openmanus-rl export-tools` wrote")
    parser.add_argument("--agent-name", default=AGENT_NAME, help="the agent loop that plays the rows")
    parser.add_argument(
        "--format",
        choices=get_args(ToolFormat),
        default="native",
        help="native: the chat template tells of tools; else the system prompt tells of them and of this form of calls",
    )
    parser.add_argument("--out", type=Path, required=True, help="the parquet file to write")
    given = parser.parse_args(arguments)
    tasks, tools = load_tasks(given.tasks), read_tool_file(given.tools)
    asyncio.run(write_tool_rows(tasks, tools, given.out, given.agent_name, given.format))
    print(f"{given.out}: {len(tasks)} rows")


if __name__ == "__main__":
    main()
