"""Changes after which a policy goes on: a mistake that is recovered from, and a beginning that ends another way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from agentgym_rl.data.annotate import action_text
from agentgym_rl.data.augment_try import (
    Changed,
    NotKept,
    Perturbation,
    Place,
    Try,
    context_only,
    ended,
    turns_that_went_on,
    with_own_ids,
)
from agentgym_rl.environments.turn_limited import last_line
from agentgym_rl.errors import BudgetExhausted
from agentgym_rl.messages import Message, assistant
from agentgym_rl.policy import ExpertPolicy, Policy, Reply
from agentgym_rl.reply_form import FORMS
from agentgym_rl.trajectory import Trajectory


def mistake_places(parent: Trajectory) -> Sequence[Place]:
    """In place of every turn."""
    return [(turn,) for turn in range(len(parent.turns))]


async def recovery(given: Try) -> Changed:
    """A wrong but plausible action in place of turn k's, which the policy that goes on has to make good.

    The mistake is context. It is another action that the environment lists, or, where it lists none, one of another
    turn of the parent or of another trajectory in this environment.
    """
    (turn,) = given.place
    lapse = _Lapse(lambda: _mistake(given, turn), given.make_policy())
    played = await given.go_on(turn, lapse)
    if lapse.mistake is None:
        raise NotKept("there is no other action" if lapse.was_asked else "no turn was left for the mistake")
    if len(played.turns) == turn + 1 and ended(played):
        raise NotKept("the mistake ended the episode")
    what = {"mistake": lapse.mistake.to_chat() if lapse.mistake.tool_calls else lapse.mistake.content}
    return Changed(context_only(played, [turn]), Perturbation("recovery", turn, what))


def prefix_places(parent: Trajectory) -> Sequence[Place]:
    """After every turn that did not end the episode."""
    return [(turn + 1,) for turn in range(len(turns_that_went_on(parent)))]


async def prefix(given: Try) -> Changed:
    """The first k turns as context, and then another way to the end. `prefix_tasks` makes a task that begins there."""
    (turn,) = given.place
    played = await given.go_on(turn, given.make_policy())
    return Changed(context_only(played, range(turn)), Perturbation("prefix", turn, {}))


class _Lapse:
    """A policy that makes one mistake, and then says what another one says."""

    mistake: Message | None = None
    """None: not made yet, or there is none to make."""
    was_asked = False

    def __init__(self, choose: Callable[[], Awaitable[Message | None]], then: Policy):
        self._choose = choose
        self._then = then

    async def reply(self, conversation: Sequence[Message]) -> Reply:
        if self.mistake is not None:
            return await self._then.reply(conversation)
        self.was_asked = True
        self.mistake = await self._choose()
        if self.mistake is None:
            raise BudgetExhausted("there is no mistake to make")
        return Reply(self.mistake)


async def _mistake(given: Try, turn: int) -> Message | None:
    """An action that is neither the parent's here nor the expert's; None: none is known."""
    environment, form = given.environment, FORMS[given.parent.task.reply_form]
    right = [form.acted(given.parent.turns[turn].reply.message)]
    if given.expert_goes_on:
        right.append((await ExpertPolicy(environment).reply(())).message)
    key: Callable[[Message], Any]
    known: Iterable[Message]
    if environment.facts.lists_actions:
        key, known = _line, [assistant(form.write(action)) for action in await environment.actions()]
    else:
        mine = [turn.reply.message for turn in turns_that_went_on(given.parent)]
        key, known = action_text, [*mine, *given.donors]
    avoided = set(map(key, right))
    wrong = {key(form.acted(message)): message for message in known if key(form.acted(message)) not in avoided}
    return with_own_ids(given.chance.choice(list(wrong.values())), "mistake") if wrong else None


def _line(message: Message) -> str:
    """What an environment that lists its actions reads of a reply."""
    return last_line(message.content)
