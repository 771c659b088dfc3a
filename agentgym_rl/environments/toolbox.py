"""A toolbox: any set of functions, a question and a check of the answer are an environment.

    class Prices(Toolbox):
        '''Questions about the prices of a shop.'''

        prices = {"apple": 2, "pear": 3}

        def price(self, item: str) -> int:
            '''The price of one item.'''
            return self.prices[item]

        functions = (price,)
        expected_errors = (KeyError,)

        def check(self, answer: str, task: Task) -> float:
            return float(answer == task.reference_answer)

    task = Task("t", "my_shop:Prices", {"question": "What do 3 apples cost?"}, reference_answer="6")

Task: a question. Actions: tool calls in the task's `tool_format`, any number of them in a reply, carried out in order;
the reply without a call is the answer (or the call of `answer_tool`, where one is named). Observations: the question,
then the result of each call. Reward: 0 until the answer, then what `check` says, from 0 to 1. End: the answer, or
`max_turns`. A call that fits no tool is answered with what was wrong (valid=False), and so is a reply with a malformed
call, of which nothing is carried out. A tool that crashes or is late is the typed failure `tool_raised` or
`tool_timed_out`.

    user:       What do 3 apples cost?
    assistant:  <tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>
    user:       <tool_response>2</tool_response>
    assistant:  6
    (reward 1, success)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments.tool_replies import result_messages
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, did_you_mean
from agentgym_rl.messages import Message, ToolCall, user
from agentgym_rl.own_thread import OwnThread
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import Parsed, ToolFormat, parse_message, render_tools
from agentgym_rl.tools import CALL_SECONDS, TOOL_ERRORS, Tool, ToolResult, ToolSchema, require_unique

MAX_CALLS = 16
"""Calls of one reply that are carried out; a reply with more is refused."""


class Toolbox(Environment):
    """Subclass it with `functions` and `check`; a new episode's state is set up in `begin`."""

    functions: Sequence[Callable[..., Any]] = ()
    """Each is a tool (`Tool.from_function`); a method of the class gets its instance."""
    expected_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the functions that are results, and no failures; `ToolError` always is one."""
    answer_tool: str = ""
    """Name of a tool that is to be called with the answer; empty: a reply without a call is the answer."""
    tool_format: ToolFormat = "hermes"
    """How calls are written, where the task's argument `tool_format` does not say. In "native" the policy's server or
    chat template shows the tools; in any other the instructions do. A message's `tool_calls` are always read."""
    call_seconds: float = CALL_SECONDS
    """Deadline of one call."""
    facts = Facts((0.0, 1.0), max_turns=16, any_text=True)
    instructions = "Answer the question. Use the tools to find out what you need."

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        unmade = cls.__new__(cls)  # for the signatures of its methods; its constructor may not be ready to run
        cls.tools = _schemas([*unmade._own_tools, *cls._answer_schema()])
        cls.facts = replace(cls.facts, any_text=not cls.answer_tool)

    def __init__(self) -> None:
        self._known: dict[str, Tool] = {}
        self._task: Task | None = None
        self._format: ToolFormat = "native"
        self._turns_left = 0

    def begin(self, task: Task) -> Any:
        """Set up what the tools work on; may be `async`.

        Raises:
            ConfigurationError: the task's arguments can't work.
        """

    def question(self, task: Task) -> str:
        """The first observation.

        Raises:
            ConfigurationError: the task has none.
        """
        if not isinstance(task.arguments.get("question"), str):
            raise ConfigurationError(
                f"task {task.id!r} needs the argument 'question', a text; given: {dict(task.arguments)}"
            )
        return task.arguments["question"]

    def check(self, answer: str, task: Task) -> Any:
        """How good an answer is, from 0 to 1, where 1 is success; may be `async`."""
        raise NotImplementedError

    async def open_tools(self, task: Task) -> Sequence[Tool]:
        """The tools of this episode."""
        return self._own_tools

    async def reset(self, task: Task) -> Sequence[Message]:
        self._task = None
        question = self.question(task)
        max_turns = whole_number(task.arguments, "max_turns", self.facts.max_turns)
        await _finished(self.begin, task)
        tools = await self.open_tools(task)
        self._show([*tools, *self._answer_schema()], task)
        self._known = {tool.name: tool for tool in tools}
        self._turns_left = max_turns
        self._task = task
        return [user(question)]

    async def step(self, action: Message) -> StepResult:
        if self._task is None:
            raise EnvironmentFailed(f"{type(self).__name__} was stepped without an open episode; reset it first")
        self._turns_left -= 1
        result = await self._carry_out(action, self._task)
        if not result.terminated and self._turns_left <= 0:
            result = replace(result, truncated=True, success=False)
        if result.terminated or result.truncated:
            self._task = None
        return result

    @cached_property
    def _own_tools(self) -> list[Tool]:
        made = []
        for function in self.functions:
            is_method = getattr(type(self), function.__name__, None) is function
            bound = function.__get__(self) if is_method else function
            made.append(Tool.from_function(bound, expected=self.expected_errors))
        return made

    @classmethod
    def _answer_schema(cls) -> list[ToolSchema]:
        if not cls.answer_tool:
            return []
        properties = {"answer": {"type": "string"}}
        parameters = {"type": "object", "properties": properties, "required": ["answer"]}
        return [ToolSchema(cls.answer_tool, "Give the answer to the question, and end.", parameters)]

    def _show(self, tools: Sequence[ToolSchema], task: Task) -> None:
        """Tell of the tools in one way: natively, or in the instructions."""
        self._format = task.arguments.get("tool_format", self.tool_format)
        self._schemas = _schemas(tools)
        told = render_tools(self._schemas, self._format)
        self.tools = () if told else self._schemas
        self.instructions = "\n\n".join(filter(None, [type(self).instructions, told]))

    async def _carry_out(self, action: Message, task: Task) -> StepResult:
        parsed = parse_message(action, self._format, self._schemas)
        if len(parsed.calls) > MAX_CALLS:
            parsed = parsed._replace(problem=f"a reply may have {MAX_CALLS} calls; given: {len(parsed.calls)}")
        if parsed.problem:
            return self._refused(action, f"{parsed.problem}. Nothing was carried out.")
        if parsed.calls:
            return await self._call_all(action, parsed, task)
        if self.answer_tool:
            return self._refused(action, f"There is no call in this reply; answer with the tool {self.answer_tool!r}.")
        if not parsed.content:
            return self._refused(action, "The reply is empty; call a tool or answer.")
        return await self._judged(parsed.content, task)

    def _refused(self, action: Message, why: str) -> StepResult:
        if not action.tool_calls:
            return StepResult.going_on(why, valid=False)
        answers = result_messages(action, [why] * len(action.tool_calls), self._format)
        return StepResult(answers, 0.0, False, False, valid=False)

    async def _call_all(self, action: Message, parsed: Parsed, task: Task) -> StepResult:
        """Every call in order; what follows the answer is not carried out."""
        results: list[ToolResult] = []
        for call in parsed.calls:
            if self.answer_tool and call.name == self.answer_tool and isinstance(call.arguments.get("answer"), str):
                return await self._judged(call.arguments["answer"], task)
            results.append(await self._call(call))
        texts = [result.text or "(no output)" for result in results]
        wrong = any(result.is_wrong_call for result in results)
        info = {TOOL_ERRORS: sum(result.is_error for result in results)}
        return StepResult(result_messages(action, texts, self._format), 0.0, False, False, valid=not wrong, info=info)

    async def _call(self, call: ToolCall) -> ToolResult:
        if self.answer_tool and call.name == self.answer_tool:
            return ToolResult(f"{call.name} takes one argument, answer (string)", is_error=True, is_wrong_call=True)
        tool = self._known.get(call.name)
        if tool is None:
            names = [schema.name for schema in self._schemas]
            text = f"There is no tool {call.name[:80]!r}; {did_you_mean(call.name[:80], names)}"
            return ToolResult(text, is_error=True, is_wrong_call=True)
        return await tool.call(call.arguments, self.call_seconds)

    async def _judged(self, answer: str, task: Task) -> StepResult:
        reward = float(await _finished(self.check, answer, task))
        if not (math.isfinite(reward) and 0 <= reward <= 1):
            raise ValueError(f"check must say how good an answer is, from 0 to 1; it said {reward}")
        return StepResult.at_end(reward, success=reward == 1)


def _schemas(tools: Sequence[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Without what a `Tool` has on top, so that they can be compared and sent."""
    require_unique([tool.name for tool in tools])
    return tuple(ToolSchema(tool.name, tool.description, tool.parameters) for tool in tools)


async def _finished(method: Callable[..., Any], *arguments: Any) -> Any:
    """What a method of a subclass gives; one that is not `async` runs off the event loop."""
    if inspect.iscoroutinefunction(method):
        awaited: Awaitable[Any] = method(*arguments)
        return await awaited
    thread = OwnThread(f"{method.__name__} of a toolbox", EnvironmentFailed)
    try:
        return await thread.run(partial(method, *arguments))
    finally:
        thread.stop()
