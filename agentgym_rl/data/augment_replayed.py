"""Changes after which the parent's own replies go on: another order, other words, a tool that failed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.data.annotate import action_text
from agentgym_rl.data.augment_check import rephrasing_of
from agentgym_rl.data.augment_try import (
    Changed,
    NotKept,
    Perturbation,
    Place,
    Script,
    Try,
    turns_that_went_on,
    unsampled,
    with_flags_of,
    with_own_ids,
    without_failure,
)
from agentgym_rl.data.augment_worlds import FailsOnce, Reworded
from agentgym_rl.data.reply_forms import calls_a_tool, is_bare
from agentgym_rl.episode import play
from agentgym_rl.policy import Reply
from agentgym_rl.reply_form import FORMS
from agentgym_rl.trajectory import Trajectory

ERRORS = (
    "Error: timed out; nothing was done.",
    "Error: the connection was lost; nothing was done.",
    "Error: the service is unavailable (503); nothing was done.",
    "Error: too many requests (429); nothing was done.",
)


def swap_places(parent: Trajectory) -> Sequence[Place]:
    """Two turns that do different things. Replies that also reason are left where they are: out of their place, the
    reasoning would be about something that is not there."""
    said = [action_text(turn.reply.message) for turn in parent.turns]
    bare = [number for number, turn in enumerate(parent.turns) if is_bare(turn.reply.message)]
    if len(bare) < len(said):
        return []
    return [(first, second) for first in bare for second in bare if first < second and said[first] != said[second]]


async def reorder(given: Try) -> Changed:
    """Two actions change places."""
    first, second = given.place
    turns = list(given.parent.turns)
    turns[first], turns[second] = turns[second], turns[first]
    played = await given.go_on(first, Script(unsampled(turns[first:])))
    return Changed(with_flags_of(played, turns), Perturbation("reorder", first, {"swapped": [first, second]}))


def rewording_places(parent: Trajectory) -> Sequence[Place]:
    """The whole, where the environment says what may vary."""
    return [()] if rephrasing_of(parent.task.environment) else []


async def rephrase(given: Try) -> Changed:
    """The same actions on observations in other words; only what the environment says may vary does.

    Observation 0 is the opening's, n + 1 that of turn n.
    """
    parent, rephrasing = given.parent, rephrasing_of(given.parent.task.environment)
    assert rephrasing is not None
    script = Script(unsampled(parent.turns))
    world = Reworded(given.environment, rephrasing, given.chance)
    played = without_failure(await play(script, world, parent.task, given.limits))
    pairs = zip([parent.opening, *_seen(parent)], [played.opening, *_seen(played)], strict=False)
    other = [place for place, (before, now) in enumerate(pairs) if before != now]
    first = other[0] if other else 0
    turns = tuple(
        replace(turn, reply=before.reply) if number < first else turn  # nothing that it answers to was changed
        for number, (turn, before) in enumerate(zip(played.turns, parent.turns, strict=False))
    )
    # The fingerprint is that of the start, whatever it is told in.
    told = replace(played, turns=turns, fingerprint=parent.fingerprint)
    what = Perturbation("rephrase", max(first - 1, 0), {"observations": other})
    return Changed(with_flags_of(told, parent.turns), what)


def error_places(parent: Trajectory) -> Sequence[Place]:
    """Every action that was understood and did not end the episode."""
    return [(number,) for number, turn in enumerate(turns_that_went_on(parent)) if turn.valid and turn.observation]


async def tool_error(given: Try) -> Changed:
    """Turn k is answered with an error and not carried out; the same action again is, and the rest goes as before."""
    (turn,) = given.place
    facts, replied = given.environment.facts, given.parent.turns[turn].reply.message
    if facts.any_text and not calls_a_tool(replied):
        raise NotKept("no tool is called there")
    error, turns = given.chance.choice(ERRORS), given.parent.turns
    again = Reply(with_own_ids(replied, "again"), turns[turn].reply.complete)
    script = Script([turns[turn].reply, again, *unsampled(turns[turn + 1 :])])
    form = FORMS[given.parent.task.reply_form]
    carried_out = len(given.parent.task.prefix)
    carried_out += sum(not form.read(earlier.reply.message.content).problem for earlier in turns[:turn])
    played = await given.go_on(turn, script, FailsOnce(given.environment, carried_out, error, turns[turn]))
    flags = [*turns[: turn + 1], *turns[turn:]]
    return Changed(with_flags_of(played, flags), Perturbation("tool_error", turn, {"error": error}))


def _seen(trajectory: Trajectory) -> list[tuple]:
    return [turn.observation for turn in trajectory.turns]
