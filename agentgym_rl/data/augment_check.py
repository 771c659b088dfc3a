"""Whether an augmented trajectory is what its environment does: its own actions, played again in a fresh environment.

Invariant: every observation, reward and the end are the same again, except what the perturbation declares: an action
that was answered with an error was not carried out, and an observation in other words means the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.data.augment_try import Changed, NotKept, Perturbation, Script, unsampled, without_failure
from agentgym_rl.environment import Environment
from agentgym_rl.environments import registry
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import Message
from agentgym_rl.rephrasing import Rephrasing
from agentgym_rl.trajectory import Trajectory, Turn

NOT_THE_SAME = "played again, it is not the same"


def rephrasing_of(name: str) -> Rephrasing | None:
    """What an environment's class declares; None: nothing, or it can't be imported here."""
    try:
        return getattr(registry.environment_class(name), "rephrasing", None)
    except ConfigurationError:
        return None


async def require_same_again(changed: Changed, environment: Environment, limits: Limits) -> None:
    """Play the actions of a trajectory again.

    Raises:
        NotKept: something came out another way than it declares.
    """
    recorded, perturbation = changed
    turns = carried_out(recorded.turns, perturbation)
    again = without_failure(await play(Script(unsampled(turns)), environment, recorded.task, limits))
    told = _seen(recorded.opening, turns)
    if len(turns) != len(again.turns) or _outcome(recorded, turns) != _outcome(again, again.turns):
        raise NotKept(NOT_THE_SAME)
    reworded = perturbation.what.get("observations", ())
    rephrasing = rephrasing_of(recorded.task.environment)
    for place, (said, now) in enumerate(zip(told, _seen(again.opening, again.turns), strict=True)):
        if said != now and not (rephrasing and place in reworded and _means_the_same(said, now, rephrasing)):
            raise NotKept("its words mean something else" if place in reworded else NOT_THE_SAME)


def carried_out(turns: Sequence[Turn], perturbation: Perturbation) -> list[Turn]:
    """The turns whose action reached the environment."""
    withheld = {perturbation.turn} if perturbation.rule == "tool_error" else set()
    return [turn for number, turn in enumerate(turns) if number not in withheld]


def _outcome(trajectory: Trajectory, turns: Sequence[Turn]) -> tuple:
    rewards = [(turn.reward, turn.valid) for turn in turns]
    return trajectory.stop, trajectory.success, trajectory.fingerprint, rewards


def _seen(opening: tuple[Message, ...], turns: Sequence[Turn]) -> list[tuple[Message, ...]]:
    return [opening, *(turn.observation for turn in turns)]


def _means_the_same(said: Sequence[Message], now: Sequence[Message], rephrasing: Rephrasing) -> bool:
    """System prompts have no meaning of the environment's: they are the same word for word."""
    return len(said) == len(now) and all(
        one.role == other.role
        and one.tool_call_id == other.tool_call_id
        and (one.content == other.content or _same_meaning(one.content, other.content, rephrasing))
        for one, other in zip(said, now, strict=True)
    )


def _same_meaning(said: str, now: str, rephrasing: Rephrasing) -> bool:
    try:
        return rephrasing.meaning(said) == rephrasing.meaning(now)
    except ValueError:
        return False
