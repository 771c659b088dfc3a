"""Any environment, acted on by tool calls: each call of a reply is carried out in turn, and its answer is a message of
the tool's.

Invariant: no reply is dropped in silence. A reply without a call, a malformed call and a call that fits no tool are
answered with what was wrong and what may be called, and count as not valid; the environment does not see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentgym_rl.environment import Environment, StepResult
from agentgym_rl.environments.wrapper import Wrapper
from agentgym_rl.errors import did_you_mean
from agentgym_rl.exported_tools import ExportedTool, by_calls, told_of_tools
from agentgym_rl.messages import Message, ToolCall, assistant
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import Parsed, ToolFormat, parse_message


class ToolCalling(Wrapper):
    """Turns calls into what the environment takes.

    Args:
        inner: the environment.
        tools: its tools, one at least.
        format: how calls are written in a reply's text; those in a message's `tool_calls` are read anyway.
        told: whether whoever renders the conversation tells of the tools; else the instructions do.
    """

    def __init__(
        self, inner: Environment, tools: Sequence[ExportedTool], format: ToolFormat = "native", told: bool = True
    ):
        super().__init__(inner)
        self._told = told
        self._tools = {tool.schema.name: tool for tool in tools}
        self._takes_calls = any(tool.text_argument is None for tool in tools)
        self._format = format

    @property
    def instructions(self) -> str:  # type: ignore[override]
        return self._prompt(self.inner.instructions)

    async def reset(self, task: Task) -> Sequence[Message]:
        return await self.inner.reset(by_calls(task))

    def task(self, task: Task) -> Task:
        """The task with what its own system prompt, if it brings a whole one, has to say of the tools."""
        return replace(task, prompt=self._prompt(task.prompt)) if task.replaces_instructions else task

    async def step(self, action: Message) -> StepResult:
        parsed = parse_message(action, self._format, [tool.schema for tool in self._tools.values()])
        if parsed.problem:
            return self._refused(parsed.problem)
        if not parsed.calls:
            if not self._takes_calls:
                return self._refused("There is no call in this reply.")
            return await self.inner.step(replace(action, content=parsed.content))
        return await self._carry_out(parsed)

    async def _carry_out(self, parsed: Parsed) -> StepResult:
        """The answers to all calls as one step; what follows the end of the episode is not carried out."""
        seen: list[Message] = []
        reward, valid = 0.0, True
        for told, calls in self._steps(parsed):
            result = await self.inner.step(told) if isinstance(told, Message) else self._refused(told)
            seen += _answers(result.observation, calls)
            reward += result.reward
            valid = valid and result.valid
            if result.terminated or result.truncated:
                break
        return replace(result, observation=tuple(seen), reward=reward, valid=valid)

    def _steps(self, parsed: Parsed) -> Iterator[tuple[Message | str, list[ToolCall]]]:
        """What the environment is told, or why not, with the calls that say so. Calls that it takes itself and that
        follow one another are one step."""
        together: list[ToolCall] = []
        for call in parsed.calls:
            tool = self._tools.get(call.name)
            if self._takes_calls and (tool is None or tool.text_argument is None):
                together.append(call)
                continue
            if together:
                yield Message("assistant", parsed.content, tuple(together)), together
                together = []
            yield told(tool, call) if tool else self._unknown(call), [call]
        if together:
            yield Message("assistant", parsed.content, tuple(together)), together

    def _unknown(self, call: ToolCall) -> str:
        return f"There is no tool {call.name!r}; {did_you_mean(call.name, self._tools)}"

    def _prompt(self, given: str) -> str:
        return given if self._told else told_of_tools(given, [*self._tools.values()], self._format)

    def _refused(self, why: str) -> StepResult:
        return StepResult.going_on(f"{why} Tools: {', '.join(self._tools)}.", valid=False)


def told(tool: ExportedTool, call: ToolCall) -> Message | str:
    """What a call of this tool tells the environment; or, as text, why it is none."""
    if tool.text_argument is None:
        return assistant("", (call,))
    text = call.arguments.get(tool.text_argument)
    if isinstance(text, str) and len(call.arguments) == 1:
        return assistant(text)
    given = f"{dict(call.arguments)!r:.200}"
    return f"{call.name} takes one argument, {tool.text_argument!r}, which is text; given: {given}"


def _answers(observation: Sequence[Message], calls: Sequence[ToolCall]) -> list[Message]:
    """The observation as the answer to calls; an environment that takes calls may have answered each itself."""
    if any(message.role == "tool" for message in observation):
        return list(observation)
    text = "\n".join(message.content for message in observation)
    return [Message("tool", text, tool_call_id=calls[-1].id or None)] if text else []
