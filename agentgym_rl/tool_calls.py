"""Tool calls in a policy's text, in the forms that policies are trained to write, read and written.

Invariant: no text raises, and no call is dropped in silence: what begins like a call and can't be read as one is told
in `Parsed.problem`. What stands before `</think>` is reasoning; calls in it are thoughts. `parse(render_calls(calls))`
gives the same calls.

    hermes       <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>
    qwen3-coder  <tool_call><function=add><parameter=a>1</parameter></function></tool_call>
    llama-3      {"name": "add", "parameters": {"a": 1}}, more than one with a semicolon between them
    react        Action: add / Action Input: {"a": 1}, on two lines; "Final Answer:" goes before an answer
    native       none: the server or chat template shows the tools, and the server reads the calls

Source: the chat templates of Hermes 3 and Qwen2.5 (hermes), Qwen3-Coder and Llama 3.1; Yao et al. 2022 (ReAct).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from agentgym_rl.errors import ConfigurationError, did_you_mean
from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.tool_formats import hermes, llama3, native, qwen3_coder, react
from agentgym_rl.tool_formats.reading import Found
from agentgym_rl.tools import ToolSchema

ToolFormat = Literal["hermes", "qwen3-coder", "llama-3", "react", "native"]


class Parsed(NamedTuple):
    """What a reply says."""

    content: str
    """Outside of calls and reasoning; of a ReAct reply's last line without its "Final Answer:"."""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    """Why something that begins like a call is none, and what the form is; empty: nothing is wrong."""
    reasoning: str = ""


class _Format(NamedTuple):
    find: Callable[[str, Sequence[ToolSchema]], Found]
    render_call: Callable[[ToolCall], str]
    render_tools: Callable[[Sequence[ToolSchema]], str]
    render_result: Callable[[str], str]
    between: str = "\n"
    """Goes between two calls."""


_FORMATS = {
    "hermes": _Format(hermes.find, hermes.render_call, hermes.render_tools, hermes.render_result),
    "qwen3-coder": _Format(qwen3_coder.find, qwen3_coder.render_call, qwen3_coder.render_tools, hermes.render_result),
    "llama-3": _Format(llama3.find, llama3.render_call, llama3.render_tools, native.render_result, "; "),
    "react": _Format(react.find, react.render_call, react.render_tools, react.render_result),
    "native": _Format(native.find, native.render_call, native.render_tools, native.render_result),
}


def parse(text: str, format: ToolFormat, tools: Sequence[ToolSchema] = ()) -> Parsed:
    """Read the calls in a text.

    Args:
        text: of a policy; any text will do.
        format: how calls are written.
        tools: what may be called. Forms that write bare text for a value need their schemas to tell 1 from "1";
            without them it is text.

    Raises:
        ConfigurationError: no such format.
    """
    form = _format(format)
    reasoning, ended, said = text.partition("</think>")
    if not ended:
        reasoning, said = "", text
        if text.lstrip().startswith("<think>"):
            return Parsed("", (), "the reasoning after <think> was not ended by </think>", text.strip())
    found = form.find(said, tools)
    return Parsed(found.content, found.calls, found.problem, reasoning.strip().removeprefix("<think>").strip())


def parse_message(message: Message, format: ToolFormat, tools: Sequence[ToolSchema] = ()) -> Parsed:
    """Read the calls of a message: its `tool_calls` as they are, if it has any; those in its text otherwise."""
    if message.tool_calls:
        return Parsed(message.content, message.tool_calls)
    return parse(message.content, format, tools)


def render_calls(calls: Sequence[ToolCall], format: ToolFormat) -> str:
    """What a policy would write to make these calls.

    Raises:
        DataError: the form can't write a call's name or a value.
        ConfigurationError: no such format, or the form writes no calls.
    """
    form = _format(format)
    return form.between.join(map(form.render_call, calls))


def render_tools(tools: Sequence[ToolSchema], format: ToolFormat) -> str:
    """What a system prompt tells about tools and about the form of a call, for chat templates that don't; empty for
    "native", or where there is no tool."""
    return _format(format).render_tools(tools) if tools else ""


def render_result(text: str, format: ToolFormat) -> str:
    """A call's result as the user message that answers it."""
    return _format(format).render_result(text)


def _format(name: str) -> _Format:
    if name not in _FORMATS:
        raise ConfigurationError(f"no tool format {name!r}; {did_you_mean(name, get_args(ToolFormat))}")
    return _FORMATS[name]
