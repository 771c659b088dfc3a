"""BabyAI as a text game: reach, open, fetch and carry things through grid rooms, on a short instruction.

Every registered BabyAI level is playable. What the agent sees is put into words by relations ("red ball two ahead one
left"), because a small model does not learn from raw grid coordinates. The world is a function of level, seed and the
actions so far, so a snapshot is exactly these and restoring replays them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from agentgym_rl.environment import BlockingEnvironment, Facts, StepResult
from agentgym_rl.environments.babyai_expert import Expert
from agentgym_rl.environments.babyai_rephrasing import REPHRASING
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, did_you_mean, require_allowed_keys
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

logger = logging.getLogger(__name__)

ACTIONS = ("turn left", "turn right", "move forward", "pick up", "drop", "toggle")
"""In the order of minigrid's own numbers; its seventh, `done`, does nothing in any level."""

DEFAULT_MAX_TURNS = 64

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six")
"""Words, because Qwen's tokenizer spends two tokens on a space and a digit."""

_AGENT_COLUMN, _AGENT_ROW = 3, 6
_OBJECTS = ("door", "key", "ball", "box")
_DOOR_STATES = ("open", "closed", "locked")


@dataclass(frozen=True)
class _Play:
    """All that the state of an episode follows from. None among the actions: a turn that was not understood."""

    level: str
    seed: int
    max_turns: int
    actions: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, task: Task) -> _Play:
        require_allowed_keys(task.arguments, ("level", "max_turns"), "a BabyAI task")
        if "level" not in task.arguments:
            raise ConfigurationError("a BabyAI task needs the argument 'level', such as 'GoToLocal'")
        max_turns = task.arguments.get("max_turns", DEFAULT_MAX_TURNS)
        if not isinstance(max_turns, int) or isinstance(max_turns, bool) or max_turns < 1:
            raise ConfigurationError(f"max_turns of a BabyAI task must be a whole number above 0; given: {max_turns!r}")
        return cls(level_id(task.arguments["level"]), task.seed, max_turns)


class BabyAI(BlockingEnvironment):
    """Carry out one instruction in a grid world that is seen through a 7 x 7 window ahead of the agent.

    Task: `arguments` holds `level` ("BabyAI-GoToLocal-v0", or short "GoToLocal"; `levels()` lists them) and, if wanted,
        `max_turns` (default 64). The seed draws rooms, objects, start and instruction.
    Actions: one of `ACTIONS`, as the last line of the reply; case, a final dot and a leading "Action:" don't matter.
        Anything else is not valid, leaves the world as it is and counts as a turn.
    Observations: what stands in the window, nearest first, in steps ahead and to a side; the wall straight ahead; what
        is carried. The first one opens with the mission.
    Reward: at the end, `1 - 0.9 * steps / max_steps` of the level if the mission is done; else 0.
    End: terminated when the mission is done, or can't be done any more; truncated after `max_turns` turns or the
        level's own `max_steps`.
    Expert: minigrid's planner. Of 20 seeds of each level it solves 0.94 within the level's own limit and 0.82 within 64
        turns (mazes take it longer); 87 of 96 levels it solves on all 20. It has no plan for KeyInBox and
        PutNext*Carrying, gets lost at times in GoToImpUnlock, SynthS5R2 and UnlockToUnlock, and OpenDoorsOrder*Debug
        fails whoever opens two doors of different colours, as it was told to.
    Source: Chevalier-Boisvert et al., BabyAI, ICLR 2019, https://arxiv.org/abs/1810.08272; package `minigrid`.
    Licence: MIT.
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=DEFAULT_MAX_TURNS,
        expert_success=0.8,
        can_snapshot=True,
        lists_actions=True,
        domain="grid world",
        source="https://arxiv.org/abs/1810.08272",
        licence="MIT",
    )
    rephrasing = REPHRASING
    instructions = f"Fulfil the mission. Answer with one action: {', '.join(ACTIONS)}."

    _play: _Play | None = None
    """None: not reset yet."""

    def reset(self, task: Task) -> Sequence[Message]:
        return [user(self._begin(_Play.of(task)))]

    def step(self, action: Message) -> StepResult:
        if self._play is None or self._over:
            raise EnvironmentFailed("a BabyAI episode was stepped before reset or after its end")
        return self._do(self._play, _understood(action.content))

    def actions(self) -> Sequence[str]:
        return ACTIONS

    def expert_action(self) -> str:
        if self._play is None or self._over:
            raise EnvironmentFailed("BabyAI's expert was asked before reset or after the end")
        if self._expert is None:
            self._replay(self._play, with_expert=True)
        assert self._expert is not None
        return ACTIONS[self._expert.advice()]

    def snapshot(self) -> bytes:
        if self._play is None:
            raise EnvironmentFailed("a BabyAI snapshot was asked for before reset")
        return json.dumps(asdict(self._play)).encode()

    def restore(self, snapshot: bytes) -> None:
        fields = json.loads(snapshot)
        self._replay(_Play(**{**fields, "actions": tuple(fields["actions"])}))

    def _begin(self, play: _Play, with_expert: bool = False) -> str:
        self._world = make_world(play.level)
        seen, _ = self._world.reset(seed=play.seed)
        self._expert = Expert(self._world) if with_expert else None
        self._play, self._over = replace(play, actions=()), False
        return f"Mission: {self._world.mission}. {_in_words(seen['image'], self._world.carrying)}"

    def _replay(self, play: _Play, with_expert: bool = False) -> None:
        """Come to the same state from the start: the expert must have seen every action."""
        self._begin(play, with_expert)
        for number in play.actions:
            assert self._play is not None
            self._do(self._play, number)

    def _do(self, play: _Play, number: int | None) -> StepResult:
        self._play = replace(play, actions=(*play.actions, number))
        last_turn = len(self._play.actions) >= play.max_turns
        result = self._misunderstood(last_turn) if number is None else self._act(number, last_turn)
        self._over = result.terminated or result.truncated
        return result

    def _misunderstood(self, last_turn: bool) -> StepResult:
        answer = StepResult.cut_off if last_turn else StepResult.going_on
        return answer(f"Not an action. Allowed: {', '.join(ACTIONS)}.", valid=False)

    def _act(self, number: int, last_turn: bool) -> StepResult:
        seen, reward, terminated, truncated, _ = self._world.step(number)
        if terminated:
            return StepResult.at_end(float(reward), success=reward > 0)
        if self._expert is not None:
            self._expert.follow(number)
        answer = StepResult.cut_off if truncated or last_turn else StepResult.going_on
        return answer(_in_words(seen["image"], self._world.carrying))


def levels() -> list[str]:
    """Ids of all BabyAI levels that the installed minigrid registers, sorted."""
    return sorted(name for name in _minigrid().registry if name.startswith("BabyAI-"))


def level_id(level: str) -> str:
    """The registered id behind an id or its short form ("GoToLocal" -> "BabyAI-GoToLocal-v0").

    Raises:
        ConfigurationError: no such level.
    """
    ids = _levels_by_name()
    if level not in ids:
        raise ConfigurationError(f"no BabyAI level {level!r}; {did_you_mean(str(level), ids)}")
    return ids[level]


def make_world(level: str) -> Any:
    """The unwrapped minigrid environment of a level id."""
    return _minigrid().make(level, disable_env_checker=True).unwrapped


@cache
def _minigrid() -> Any:
    """Gymnasium with minigrid's levels registered.

    Raises:
        ConfigurationError: minigrid is not installed.
    """
    try:
        import gymnasium
        from minigrid.envs.babyai.core import roomgrid_level
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'BabyAI needs {error.name!r}: pip install "openmanus-rl[babyai]"') from error
    # It prints each rejected draw of a level, and stdout may be a protocol. Shadowing `print` in that module is safe
    # with threads; contextlib.redirect_stdout is not.
    vars(roomgrid_level)["print"] = lambda *words: logger.debug(" ".join(map(str, words)))
    return gymnasium


@cache
def _levels_by_name() -> dict[str, str]:
    ids = {name: name for name in levels()}
    return ids | {name.removeprefix("BabyAI-").rsplit("-v", 1)[0]: name for name in ids}


def _understood(text: str) -> int | None:
    """The number of the action that the last line of a reply names; None if it names none."""
    lines = text.strip().lower().splitlines() or [""]
    action = " ".join(lines[-1].removeprefix("action:").strip(" .").split())
    return ACTIONS.index(action) if action in ACTIONS else None


def _in_words(image: Any, carrying: Any) -> str:
    """An observation in words.

    Args:
        image: minigrid's view, [7, 7, 3] of type, colour and state; the agent stands at [3, 6], facing [3, 0].
        carrying: the carried object or None.
    """
    things = [words for _, words in sorted(_things(image))]
    wall = _steps_to_wall(image)
    if wall:
        things.append(f"wall {_NUMBERS[wall]} ahead")
    if carrying is not None:
        things.append(f"carrying {carrying.color} {carrying.type}")
    return ", ".join(things or ["nothing"])


def _things(image: Any) -> Iterator[tuple[int, str]]:
    """Distance in steps and description of each object in view; what the agent carries stands in its own cell."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    for column, row in zip(*image[:, :, 0].nonzero(), strict=True):
        kind, colour, state = image[column, row]
        sideways, ahead = int(column) - _AGENT_COLUMN, _AGENT_ROW - int(row)
        if IDX_TO_OBJECT[kind] in _OBJECTS and (sideways or ahead):
            name = f"{_DOOR_STATES[state]} " if IDX_TO_OBJECT[kind] == "door" else ""
            name += f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}"
            yield abs(sideways) + ahead, f"{name} {_where(ahead, sideways)}"


def _where(ahead: int, sideways: int) -> str:
    """Relative position: "two ahead one left", "three ahead", "one right"."""
    side = f"{_NUMBERS[abs(sideways)]} {'left' if sideways < 0 else 'right'}" if sideways else ""
    return f"{_NUMBERS[ahead]} ahead {side}".strip() if ahead else side


def _steps_to_wall(image: Any) -> int:
    """Steps to the wall straight ahead; 0: none in view."""
    from minigrid.core.constants import OBJECT_TO_IDX

    for ahead in range(1, _AGENT_ROW + 1):
        if image[_AGENT_COLUMN, _AGENT_ROW - ahead, 0] == OBJECT_TO_IDX["wall"]:
            return ahead
    return 0
