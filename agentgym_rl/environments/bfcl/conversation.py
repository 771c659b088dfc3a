"""One conversation as it goes: the policy's world, the ground truth's, and where in the requests it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import NamedTuple

from agentgym_rl.environments.bfcl.entries import Entry, functions_of
from agentgym_rl.environments.bfcl.python_calls import Call
from agentgym_rl.environments.bfcl.world import Answer, World, disagreement, function_classes
from agentgym_rl.tools import ToolSchema

NO_CALL = "multi_turn:empty_turn_model_response"
"""The package's name for a request that nothing was called for, though there was something to call."""


class Verdict(NamedTuple):
    """Of a request that the policy has ended."""

    problem: str
    """In the package's words; empty: it was met, or there was nothing to call."""
    reward: float
    last: bool


class Conversation:
    """Begins with the entry's first request."""

    def __init__(self, entry: Entry):
        self._entry = entry
        self._played, self._reference = World(entry), World(entry)
        self._results: list[str] = []
        self._index = 0
        self._classes = function_classes(entry)
        self._met = 0
        self._to_meet = sum(map(bool, entry.ground_truth))
        self._start_request()

    @property
    def request(self) -> str | None:
        """What the user asks now; None: whether it can be done by now."""
        return self._entry.requests[self._index]

    @property
    def functions(self) -> Sequence[ToolSchema]:
        """What has been shown by now."""
        later = [name for turn, names in self._entry.held_back.items() if turn > self._index for name in names]
        return [f for kind in self._entry.classes for f in functions_of(kind) if f.name not in later]

    @property
    def added(self) -> Sequence[ToolSchema]:
        """The functions that came with this request."""
        names = self._entry.held_back.get(self._index, ())
        return [function for function in self.functions if function.name in names]

    @property
    def has_something_to_call(self) -> bool:
        """Whether the ground truth calls anything for this request."""
        return bool(self._entry.ground_truth[self._index])

    def counts(self) -> Mapping[str, int]:
        """How far it came, of the requests that have something to call."""
        return {"requests_met": self._met, "requests": self._to_meet}

    def call(self, calls: Sequence[Call]) -> list[Answer]:
        """Carry calls out, in order."""
        self.count_step()
        self._called = True
        answers = [self._played.call(call, self._classes) for call in calls]
        self._results += [answer.text for answer in answers]
        for call in calls:
            self._follow(call)
        return answers

    def count_step(self) -> None:
        """Every turn of a request that does not end it."""
        self.steps += 1

    def true_calls(self) -> list[Call]:
        """What the ground truth has yet to call for this request, each argument by its name."""
        return list(map(self._by_name, self._true_calls))

    def end_request(self) -> Verdict:
        """Judge the request and go on to the next."""
        problem = self._problem()
        reward = 0.0
        if not problem and self.has_something_to_call:
            self._met += 1
            reward = 1 / self._to_meet
        last = self._index + 1 == len(self._entry.requests)
        if not problem and not last:
            self._index += 1
            self._start_request()
        return Verdict(problem, reward, last)

    def _start_request(self) -> None:
        self._true_calls = list(self._entry.ground_truth[self._index])
        self._called = False
        self.steps = 0

    def _problem(self) -> str:
        truth = self._entry.ground_truth[self._index]
        expected = [self._reference.call(call, self._classes).text for call in truth]
        if not truth:
            return ""
        if not self._called:
            return NO_CALL
        return disagreement(self._played, self._reference, self._results, expected)

    def _follow(self, call: Call) -> None:
        """Keep the expert's place: the call that the ground truth makes next was made."""
        if self._true_calls and self._by_name(call) == self._by_name(self._true_calls[0]):
            del self._true_calls[0]

    def _by_name(self, call: Call) -> Call:
        """The call with every argument given by its name, if its function takes them."""
        if call.name not in self._classes:
            return call
        method = getattr(self._played.instances[self._classes[call.name]], call.name)
        try:
            return Call(call.name, (), signature(method).bind(*call.positional, **call.named).arguments)
        except TypeError:
            return call
