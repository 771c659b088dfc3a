"""The agent loop for environments behind tools: what `environment` does, with calls in place of bare text.

Selected by the dataset column `agent_name` = "environment_tools". verl's `tool_agent` plays the same tools; this loop
plays them with `play()`, and so carries out the last turn's calls too, closes the environment when the session ends
whatever happened, retries or leaves out sessions by the failure policy, puts each turn's reward on its tokens, and
answers a malformed call with what was wrong. Tools come from verl's `rollout.multi_turn.tool_config_path`, and the form
of calls from `rollout.multi_turn.format`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from verl.experimental.agent_loop.agent_loop import ToolListWrap, register

from agentgym_rl.environment import Environment
from agentgym_rl.environments.tool_calling import ToolCalling
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.exported_tools import ExportedTool
from agentgym_rl.messages import Message, ToolCall, assistant, user
from agentgym_rl.prefix import Entry
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat, render_calls
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.environment_loop import EnvironmentAgentLoop
from verl_ext.agent_loop.turn_rewards import TurnRewardOutput
from verl_ext.tool_parsers import tool_format
from verl_ext.tools import EnvironmentTool

_HELLO = user("hello")


@register("environment_tools")
class EnvironmentToolsLoop(EnvironmentAgentLoop):
    """One session: one episode of one task, played by calls."""

    _format: ToolFormat
    _template_tells = False
    """The chat template writes the tools into the prompt; if not, the system prompt does."""

    def __init__(self, *args: Any, tools: ToolListWrap | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._tools = [tool.exported for tool in (tools.tools if tools else ()) if isinstance(tool, EnvironmentTool)]

    async def _session(
        self, task: Task, sampling_params: dict[str, Any], row: dict[str, Any]
    ) -> list[TurnRewardOutput]:
        self._format = tool_format(self.rollout_config.multi_turn.format)
        if self._format != "react":  # which no template tells of
            schemas = [tool.schema.to_chat() for tool in self._tools_of(task)]
            told = ChatTokens(self.tokenizer, {**self.apply_chat_template_kwargs, "tools": schemas})
            self._template_tells = told.opening([_HELLO]) != self._chat.opening([_HELLO])
            self._chat = told
        return await super()._session(task, sampling_params, row)

    def _as_played(self, environment: Environment, task: Task) -> tuple[Environment, Task]:
        tools = self._tools_of(task)
        played = ToolCalling(environment, tools, self._format, self._template_tells)
        prefix = tuple(_by_calls(task.prefix, tools, self._format))
        return played, replace(played.task(task), prefix=prefix)

    def _tools_of(self, task: Task) -> list[ExportedTool]:
        tools = [tool for tool in self._tools if tool.environment == task.environment]
        if not tools:
            known = sorted({tool.environment for tool in self._tools})
            raise ConfigurationError(
                "actor_rollout_ref.rollout.multi_turn.tool_config_path has no tool of environment "
                f"{task.environment!r}, but of: {', '.join(known) or 'none'} (openmanus-rl export-tools writes them)"
            )
        return tools


def _by_calls(prefix: Sequence[Entry], tools: Sequence[ExportedTool], format: ToolFormat) -> Iterator[Entry]:
    """A prefix as this loop's policy writes it: its calls, or what the environment is told, as calls in its text."""
    only = tools[0] if len(tools) == 1 else None
    for message in map(Message.from_chat, prefix):
        said, calls = message.content, message.tool_calls
        if not calls and only and only.text_argument:
            said, calls = "", (ToolCall(only.schema.name, {only.text_argument: said}),)
        text = "\n".join(filter(None, [said, render_calls(calls, format) if calls else ""]))
        yield assistant(text).to_chat()
