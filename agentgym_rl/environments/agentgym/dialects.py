"""How AgentGym's environment servers differ, as a table: one `Dialect` a server.

All of them answer POST /create, /reset and /step, most GET /observation, some POST /close; what the fields are called,
and whether an answer is an object or a bare value, is each server's own. Read in https://github.com/WooooDyy/AgentGym
(MIT): the routes in `agentenv-*/*/server.py`, what the rewards mean in the environment beside it. The instructions are
ours and short; AgentGym's own prompts stand in its clients and can be given as a task's `prompt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def whole_reply(text: str) -> str:
    """For servers that parse the reply by themselves."""
    return text


def after_action_word(text: str) -> str:
    """What follows the last "Action:", or the whole reply without one."""
    return text.rpartition("Action:")[2].strip()


def sql_block(text: str) -> str:
    """The last fenced code block, or the whole reply without one."""
    blocks = re.findall(r"```(?:sql)?\s*(.*?)```", text, re.DOTALL | re.IGNORECASE)
    return (blocks[-1] if blocks else text).strip()


@dataclass(frozen=True)
class Dialect:
    """One server's conventions. The id that /create answers may be bare or stand in an object under `id_field`."""

    id_field: str = "id"
    """Names the instance in every call."""
    item_field: str = "data_idx"
    """Names the task in /reset."""
    path: str = ""
    """Comes between the server's address and the route."""
    create_body: Mapping[str, Any] | None = None
    """None: no body."""
    reset_body: Mapping[str, Any] = field(default_factory=dict)
    """What /reset takes besides id and item."""
    opening_fields: tuple[str, ...] = ("observation",)
    """Of the answer to /reset, one below the other; servers that answer bare text, or a pair of text and null, have
    none of them."""
    opening_by_get: bool = False
    """The first observation is asked for with GET /observation."""
    observation_field: str = "observation"
    """Of the answer to /step."""
    actions_field: str | None = None
    """Lists the allowed actions, which are shown below each observation."""
    done_field: str = "done"
    truncated_field: str | None = None
    reward_so_far: bool = False
    """`reward` is that of the whole episode up to now, not that of the step."""
    solved_field: str = "reward"
    solved_at: float = 1.0
    """The task is solved where the episode is done with this much in `solved_field`, or more."""
    read_action: Callable[[str], str] = after_action_word
    """What of a reply is sent."""
    instructions: str = ""
    """System prompt for tasks that bring none."""
    ours: bool = False
    """This project's own server: whole tasks, messages and results cross as they are."""


_ACTION_FORM = 'You may think first; end your reply with "Action:" and the action.'
_TOOLS = (
    'Reach the goal with tools. Reply with a short thought and "Action: NAME with Action Input: JSON"; '
    'the action "finish" ends the task.'
)


def _tool_server() -> Dialect:
    """agentenv-tool: movie, weather, todo, sheet and academia have the same routes."""
    return Dialect(
        id_field="env_idx",
        item_field="id",
        create_body={"id": 0},
        reward_so_far=True,
        read_action=whole_reply,
        instructions=_TOOLS,
    )


DIALECTS: dict[str, Dialect] = {
    "openmanus": Dialect(read_action=whole_reply, ours=True),
    # agentenv-alfworld: reward is 1 in the step that wins.
    "alfworld": Dialect(
        item_field="game",
        reset_body={"world_type": "Text"},
        actions_field="available_actions",
        instructions=f"Do the household task with the available actions. {_ACTION_FORM}",
    ),
    # agentenv-babyai: an episode is done only with a reward above 0.5, given in that step.
    "babyai": Dialect(
        solved_at=0.5, instructions=f"Reach the goal in the grid world with the available actions. {_ACTION_FORM}"
    ),
    # agentenv-sciworld: score is the sum of rewards, 100 when solved and -100 when failed.
    "sciworld": Dialect(
        opening_fields=("task_description", "observation"),
        solved_field="score",
        solved_at=100.0,
        instructions=f"Do the task in the science world, one command at a time. {_ACTION_FORM}",
    ),
    # agentenv-textcraft: /create insists on a body.
    "textcraft": Dialect(
        create_body={},
        instructions=f"Make the goal with the crafting commands; get what can't be crafted, such as "
        f'"get 2 oak log". {_ACTION_FORM}',
    ),
    # agentenv-lmrlgym: -1 a step, -4 for what is no action, 0 at the goal.
    "maze": Dialect(
        item_field="game",
        path="/maze",
        solved_at=0.0,
        instructions=f"Walk to the goal: move up, move down, move left or move right. {_ACTION_FORM}",
    ),
    # agentenv-lmrlgym: 1 for the word, else 0.
    "wordle": Dialect(
        item_field="seed",
        path="/wordle",
        instructions=f'Guess the word of five letters, written as "c r a n e". {_ACTION_FORM}',
    ),
    # agentenv-webshop: a share in [0, 1] when bought. AgentGym's client asks for the first observation, too.
    "webshop": Dialect(
        id_field="env_idx",
        item_field="session_id",
        opening_by_get=True,
        observation_field="state",
        instructions=f"Buy what the instruction asks for, with search[words] and click[value]. {_ACTION_FORM}",
    ),
    # agentenv-sqlgym: 1 for the right rows, else 0; one statement an episode.
    "sqlgym": Dialect(
        id_field="env_idx",
        item_field="item_id",
        observation_field="state",
        read_action=sql_block,
        instructions="Answer the question with one SQL statement in a ```sql code block.",
    ),
    # agentenv-webarena (Flask): one instance a server.
    "webarena": Dialect(
        id_field="env_idx",
        item_field="idx",
        reset_body={"seed": 0},
        done_field="terminated",
        truncated_field="truncated",
        read_action=whole_reply,
        instructions="Reach the objective in the browser. Give one action in ``` marks; `stop [answer]` ends the task.",
    ),
    "movie": _tool_server(),
    "weather": _tool_server(),
    "todo": _tool_server(),
    "sheet": _tool_server(),
    "academia": _tool_server(),
    # agentenv-searchqa, which is also in AgentGym-RL: 1 for an exact match, else 0.
    "searchqa": Dialect(
        id_field="env_idx",
        item_field="id",
        create_body={"id": 0},
        read_action=whole_reply,
        instructions="Answer the question. Think in <think>, then either <search>words</search> or <answer>.",
    ),
}
