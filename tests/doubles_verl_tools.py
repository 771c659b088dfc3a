"""What stands on verl's two sides of an environment's tools: its tool file, and a server that its loop asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from doubles_loop import ScriptedClient
from verl.tools.tool_registry import load_all_tools

from agentgym_rl.exported_tools import exported_tools, write_tool_file


def verl_tools(folder: Path, *environments: str, **config: Any) -> list[Any]:
    """The tools of environments as verl loads them from a file, with more in each one's `config`."""
    path = folder / "tools.yaml"
    write_tool_file([tool for name in environments for tool in exported_tools(name)], path)
    file = yaml.safe_load(path.read_text())
    for tool in file["tools"]:
        tool["config"].update(config)
    path.write_text(yaml.safe_dump(file))
    return load_all_tools(str(path), None)


class UnlimitedClient(ScriptedClient):
    """A server that is asked by verl's tool loop, which names no limit of tokens."""

    async def generate(self, request_id: str, *, sampling_params: dict[str, Any], **given: Any) -> Any:
        return await super().generate(request_id, sampling_params={"max_tokens": 4096, **sampling_params}, **given)
