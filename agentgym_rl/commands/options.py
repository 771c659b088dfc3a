"""What several commands share: texts of options, and how an option's text is read."""

from __future__ import annotations

import json
from typing import Any

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.evaluation.policies import forms

ARGUMENTS_HELP = "The task's arguments: a JSON object."
ISOLATION_HELP = "Where the environment runs; a worker process may crash or hang."
POLICY_HELP = f"One of: {forms()}."


def json_object(text: str, option: str) -> dict[str, Any]:
    """The JSON object in an option.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{option} must be a JSON object; {text!r} is no JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} must be a JSON object; given: {text}")
    return value
