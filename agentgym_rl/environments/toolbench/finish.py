"""The function `Finish`, with which ToolBench ends an attempt: by an answer, or by giving it up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym_rl.tool_arguments import wrong_call
from agentgym_rl.tools import ToolSchema

FINISH = ToolSchema(
    "Finish",
    "Call this at the end: with give_answer and a final answer that holds all that the user asked for, of which nothing"
    " else is shown to the user; or with give_up_and_restart, if you can't get on.",
    {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {"type": "string", "description": "What the user is told; needed with give_answer."},
        },
        "required": ["return_type"],
    },
)


def final_answer(given: Mapping[str, Any]) -> str | None:
    """Of a call of `Finish`; None: it was given up.

    Raises:
        WrongCall: it is neither.
    """
    kinds = FINISH.parameters["properties"]["return_type"]["enum"]
    if given.get("return_type") not in kinds:
        raise wrong_call(FINISH.name, f"return_type was {given.get('return_type')!r:.80}", FINISH.parameters)
    if given["return_type"] != "give_answer":
        return None
    answer = given.get("final_answer")
    if not isinstance(answer, str) or not answer.strip():
        raise wrong_call(FINISH.name, "give_answer needs final_answer, a text", FINISH.parameters)
    return answer
