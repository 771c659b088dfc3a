"""Forms of tool calls that verl's `rollout.multi_turn.format` lacks, and our name of those that it has.

verl brings hermes and qwen3_coder; `llama-3` (JSON) and `react` (Action / Action Input) are registered here.
"""

from __future__ import annotations

import json
from typing import Any

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.tool_calls import ToolFormat, parse
from verl_ext.tool_schema import tool_schema

OF_VERL: dict[str, ToolFormat] = {
    "hermes": "hermes",
    "qwen3_coder": "qwen3-coder",
    "llama-3": "llama-3",
    "react": "react",
}
"""Name in verl -> our name."""


def tool_format(name: str) -> ToolFormat:
    """Our name of a form that verl's `multi_turn.format` names.

    Raises:
        ConfigurationError: we can't read it.
    """
    if name not in OF_VERL:
        raise ConfigurationError(
            f"actor_rollout_ref.rollout.multi_turn.format: no format {name!r} here; {did_you_mean(name, OF_VERL)}"
        )
    return OF_VERL[name]


class TextToolParser(ToolParser):
    """Reads calls from a reply's text; a malformed call is text, which ends a trajectory in verl's loop."""

    format: ToolFormat

    async def extract_tool_calls(
        self, responses_ids: list[int], tools: list[Any] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        text = self.tokenizer.decode(responses_ids, skip_special_tokens=True)
        parsed = parse(text, self.format, [tool_schema(tool) for tool in tools or ()])
        if parsed.problem:
            return text, []
        calls = [
            FunctionCall(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False))
            for call in parsed.calls
        ]
        return parsed.content, calls


@ToolParser.register("llama-3")
class Llama3ToolParser(TextToolParser):
    format = "llama-3"


@ToolParser.register("react")
class ReactToolParser(TextToolParser):
    format = "react"
