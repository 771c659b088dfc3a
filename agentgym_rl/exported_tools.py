"""An environment's actions as tools: what a policy may call, and what a call is to the environment.

An environment that has tools of its own (`tools`) takes calls as they are; where any text is an answer to it, there is
a tool for that as well. Any other environment takes text, and gets one tool `act(action)` whose argument is that text.
All are plain data, so that they go into the tool file of a training framework and back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym_rl.data.replaced import replaced
from agentgym_rl.environment import BlockingEnvironment, Environment
from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, boundary, did_you_mean
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import ToolFormat, render_tools
from agentgym_rl.tools import ToolSchema, require_unique

VERL_CLASS = "verl_ext.tools.EnvironmentTool"
"""What verl makes of each tool of the file."""
ACT, ANSWER = "act", "final_answer"
RESET_SECONDS = 60.0
"""Deadline of an environment's reset."""


@dataclass(frozen=True)
class ExportedTool:
    """One tool of an environment."""

    environment: str
    schema: ToolSchema
    text_argument: str | None = None
    """The argument whose value is what the environment is told; None: it takes the call itself."""

    def __post_init__(self) -> None:
        properties = self.schema.parameters.get("properties", {})
        if self.text_argument is not None and self.text_argument not in properties:
            raise ConfigurationError(
                f"tool {self.schema.name!r} has no parameter {self.text_argument!r} to take its text from; "
                f"{did_you_mean(self.text_argument, properties)}"
            )


def exported_tools(environment: str) -> list[ExportedTool]:
    """The tools of an environment, as its class tells them.

    Raises:
        ConfigurationError: no such environment, or two of its tools have one name.
    """
    return _exported(environment, registry.environment_class(environment))


async def exported_tools_of(task: Task, isolation: registry.Isolation = "thread") -> list[ExportedTool]:
    """The tools of an environment when it plays this task: where they depend on it, or come from a server.

    Raises:
        ConfigurationError: no such environment, two of its tools have one name, or the task can't work.
        EnvironmentFailed, ToolFailed: the environment did not start.
    """
    async with registry.opened(task.environment, isolation) as environment:
        what = f"reset of environment {task.environment!r}"
        await boundary(environment.reset(by_calls(task)), EnvironmentFailed, what, RESET_SECONDS)
        return _exported(task.environment, environment)


def by_calls(task: Task) -> Task:
    """The task as it is played by calls: a toolbox is asked not to tell of its tools itself.

    Raises:
        ConfigurationError: its replies have a form of their own.
    """
    if task.reply_form != "bare":
        raise ConfigurationError(
            f"task {task.id!r} is played by calls of tools, so its reply_form must be 'bare'; "
            f"given: {task.reply_form!r}"
        )
    try:
        made = registry.environment_class(task.environment)
    except ConfigurationError:  # it may play in another interpreter; if it can't play at all, its reset says so
        return task
    toolbox = hasattr(made, "tool_format")
    return replace(task, arguments={**task.arguments, "tool_format": "native"}) if toolbox else task


def told_of_tools(prompt: str, tools: Sequence[ExportedTool], format: ToolFormat) -> str:
    """A system prompt with a description of tools and of the form of a call; as it is for "native", where the chat
    template has them."""
    return "\n\n".join(filter(None, [prompt, render_tools([tool.schema for tool in tools], format)]))


def write_tool_file(tools: Sequence[ExportedTool], path: str | Path) -> None:
    """Write verl's `multi_turn.tool_config_path`: each tool with its whole schema.

    The schema stands in `config` and not in verl's own `tool_schema`, which keeps of a parameter only its type,
    description and enum.
    """
    import yaml

    file = {"tools": [{"class_name": VERL_CLASS, "config": _escaped(to_config(tool))} for tool in tools]}
    with replaced(path) as beside:
        beside.write_text(yaml.safe_dump(file, sort_keys=False, allow_unicode=True), encoding="utf-8")


def read_tool_file(path: str | Path) -> list[ExportedTool]:
    """The environments' tools of such a file; other tools in it are left out.

    Raises:
        DataError: it can't be read as such a file.
    """
    import yaml

    try:
        entries = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["tools"]
        own = [entry["config"] for entry in entries if entry["class_name"] == VERL_CLASS]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no file of tools: {type(error).__name__}: {error}") from error
    return [from_config(_unescaped(config)) for config in own]


def to_config(tool: ExportedTool) -> dict[str, Any]:
    """The `config` of a tool in verl's file; `type` is verl's, which knows no other."""
    text = {} if tool.text_argument is None else {"text_argument": tool.text_argument}
    return {"type": "native", "environment": tool.environment, **text, "tool": tool.schema.to_chat()}


def from_config(config: Mapping[str, Any]) -> ExportedTool:
    """Read what `to_config` wrote; further keys are the reader's.

    Raises:
        ConfigurationError: the environment or the schema is missing, or malformed.
    """
    try:
        function = config["tool"]["function"]
        schema = ToolSchema(function["name"], function["description"], function["parameters"])
        return ExportedTool(config["environment"], schema, config.get("text_argument"))
    except (KeyError, TypeError) as error:
        raise ConfigurationError(
            "a tool of an environment needs `environment` and `tool: {function: {name, description, parameters}}`; "
            f"{type(error).__name__}: {error}; given: {dict(config)}"
        ) from error


def _exported(
    name: str, environment: Environment | type[Environment] | type[BlockingEnvironment]
) -> list[ExportedTool]:
    own = environment.tools
    if not own:
        act = _text_tool(ACT, "Take one action in the environment.", "action", environment.instructions)
        return [ExportedTool(name, act, "action")]
    tools = [ExportedTool(name, ToolSchema(tool.name, tool.description, tool.parameters)) for tool in own]
    if environment.facts.any_text:
        answer = _text_tool(
            ANSWER, "Say something in place of a call, such as the answer to the question.", "answer", "What is said."
        )
        tools.append(ExportedTool(name, answer, "answer"))
    require_unique([tool.schema.name for tool in tools])
    return tools


def _text_tool(name: str, description: str, argument: str, of_argument: str) -> ToolSchema:
    properties = {argument: {"type": "string", "description": of_argument}}
    return ToolSchema(name, description, {"type": "object", "properties": properties, "required": [argument]})


def _escaped(value: Any) -> Any:
    """verl reads the file with OmegaConf, to which `${` begins an interpolation."""
    return _mapped(value, lambda text: re.sub(r"(\\*)\$\{", r"\1\1\\${", text))


def _unescaped(value: Any) -> Any:
    return _mapped(value, lambda text: re.sub(r"(\\*)\\\$\{", lambda found: found[1][::2] + "${", text))


def _mapped(value: Any, change: Any) -> Any:
    """The same JSON value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list | tuple) else value
