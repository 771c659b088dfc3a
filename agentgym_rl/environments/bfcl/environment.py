"""BFCL's multi-turn conversations: a user's requests follow one another, each to be met by function calls.

Calls are data: they are read with `ast` (or from a tool-call format), looked up among the functions that are allowed
now, and made on instances that this episode owns. After each request the package's own checkers compare the state and
the results with those of the ground truth, which runs on instances of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.bfcl import speech
from agentgym_rl.environments.bfcl.conversation import Conversation, Verdict
from agentgym_rl.environments.bfcl.entries import Entry, entry
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.errors import ConfigurationError, require_allowed_keys
from agentgym_rl.task import Task

DEFAULT_MAX_TURNS = 64
"""The longest ground truth takes 37 turns, at a call a turn."""

MAX_STEPS = 20
"""Turns that one request may take before the one that ends it, as in the package."""

_DONE = "Done."
_NOT_YET = "I can't do this yet: a function or a value that it needs is missing."
_ADDED = "I have updated some more functions you can choose from. What about now?"


class BFCL(Replayed):
    """Serve a user who asks for one thing after another, with the functions of up to two simulated services.

    Task: `arguments` holds `entry` ("multi_turn_base_0"; 200 each of the categories base, miss_func, miss_param and
        long_context) and, if wanted, `tool_format` ("python", BFCL's own, or one of `agentgym_rl.tool_calls`)
        and `max_turns` (default 64).
    Actions: calls, as the reply, its fenced code or its last line; they are carried out in order and answered with
        their results. A reply in words (or `[]`) ends the request, and the next one follows. Values in calls are
        literals. A reply that can't be read, is empty, or calls what is not there is not valid; it changes nothing
        (of several calls, the good ones are made) and counts as a turn.
    Observations: the first request; then results, one a line, or the next request. The instructions tell of the
        functions; in miss_func, some are held back at first and shown in a later request.
    Reward: 1/n after each of the n requests that have something to call, if by then the state of every service is
        that of the ground truth and its results for this request are among those seen so far (the package's
        `state_checker` and `response_checker`); so 1 in all if the conversation is solved, as the package judges it.
    End: terminated after the last request, and after one that was not met: what follows could not change the
        package's verdict. Truncated after more than 20 turns with calls in one request, or `max_turns` in all.
    Splits: the package has none; `data_preprocess/bfcl.py` deals them by number, as number i of each category is
        the same conversation.
    Expert: the ground truth, a call a turn where the 20 turns suffice: 800 of 800.
    Isolation: a process of its own, as a call can stop everything beside it (99999999 to the power of itself), and some
        classes keep module globals (the calculator's precision).
    Differs from the package: a malformed call is answered instead of ending the request; the checkers run as the
        conversation goes on. As there, a function that is held back can be called by who guesses it.
    Source: Patil et al., The Berkeley Function Calling Leaderboard, ICML 2025; https://gorilla.cs.berkeley.edu;
        package `bfcl-eval`.
    Licence: Apache-2.0.

    The beginning of multi_turn_base_1 as the expert plays it (functions left out):

        user       I am alex. Check if the current directory is under my name and list all the visible and hidden
                   contents in the current directory now, please.
        assistant  [ls(a=True)]
        user       {"current_directory_content": ["workspace"]}
        assistant  Done.
        user       Go to workspace directory and move one of the 'log.txt' files into a new directory 'archive'.
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=DEFAULT_MAX_TURNS,
        expert_success=1.0,
        can_snapshot=True,
        any_text=True,
        domain="tool use",
        source="https://gorilla.cs.berkeley.edu",
        licence="Apache-2.0",
    )
    own_process = True
    tool_format = "python"
    instructions = (
        "A user asks for one thing after another. Meet each request with function calls; their results are shown to"
        " you, and you may call again. When a request is met, or can't be met with these functions and what you know,"
        " answer in words without a call; the next request follows."
    )

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("entry", "tool_format", "max_turns"), "a BFCL task")
        self._format = task.arguments.get("tool_format", self.tool_format)
        speech.require_format(self._format)
        self._conversation = Conversation(_entry_of(task))
        told = speech.told(type(self).instructions, self._conversation.functions, self._format)
        self.instructions, self.tools = told
        return self._conversation.request or _ADDED

    def act(self, text: str) -> StepResult:
        conversation, action = self._conversation, self.played[-1]
        said = speech.understood(action, self._format, conversation.functions)
        if said.problem:
            conversation.count_step()
            result = StepResult.going_on(said.problem, valid=False)
        elif said.calls:
            answers = conversation.call(said.calls)
            seen = speech.answered(action, [answer.text for answer in answers], self._format)
            result = StepResult(seen, 0.0, False, False, valid=all(answer.understood for answer in answers))
        else:
            result = self._after(conversation.end_request())
        over_limit = not result.terminated and conversation.steps > MAX_STEPS
        return replace(result, truncated=over_limit, info={**result.info, **conversation.counts()})

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        calls = self._conversation.true_calls()
        if calls:
            one_a_turn = len(calls) <= MAX_STEPS - self._conversation.steps
            return speech.written(calls[:1] if one_a_turn else calls, self._format)
        return _DONE if self._conversation.has_something_to_call else _NOT_YET

    def _after(self, verdict: Verdict) -> StepResult:
        """What follows a request that the policy has ended."""
        if verdict.problem:
            return StepResult.at_end(0.0, success=False, problem=verdict.problem)
        if verdict.last:
            return StepResult.at_end(verdict.reward, success=True)
        added = speech.added(self._conversation.added, self._format)
        said = self._conversation.request or _ADDED
        return StepResult.going_on("\n\n".join(filter(None, [added, said])), verdict.reward)


def _entry_of(task: Task) -> Entry:
    given: Any = task.arguments.get("entry")
    if not isinstance(given, str):
        raise ConfigurationError(
            f"a BFCL task needs the argument 'entry', such as 'multi_turn_base_0'; given: {given!r}"
        )
    return entry(given)
