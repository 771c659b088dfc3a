"""A form of tool calls for a policy that knows none: whatever it says is the text of a call of `act`.

Loaded by verl in its own processes (VERL_USE_EXTERNAL_MODULES). Such a policy would hardly ever end a reply by itself,
so every eighth token does.
"""

from __future__ import annotations

import json
from typing import Any

import verl_ext.plugin  # noqa: F401  the platform must be known before the rest of verl is imported

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser  # isort: skip


@ToolParser.register("any_call")
class AnyCall(ToolParser):
    @property
    def stop_token_ids(self) -> list[int]:
        return [*range(0, len(self.tokenizer), 8), self.tokenizer.eos_token_id]

    async def extract_tool_calls(
        self, responses_ids: list[int], tools: list[Any] | None = None
    ) -> tuple[str, list[FunctionCall]]:
        text = self.tokenizer.decode(responses_ids, skip_special_tokens=True)
        return "", [FunctionCall(name="act", arguments=json.dumps({"action": text}))]
