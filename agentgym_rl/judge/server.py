"""`JudgeServer`: one question to the model, and its verdict by a deadline, whatever the server does in between.

What passes by itself (too many requests, a server's own error, a lost connection, an answer that can't be read) is
tried again after a wait that doubles. What is left after the last try is a JudgeFailed: never a score.

A question keeps its place under the limit of concurrency while it waits, so that a server that is asked too much is
asked less.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentgym_rl.concurrency import reply_limit
from agentgym_rl.errors import JudgeFailed, Manner, NoVerdict, boundary
from agentgym_rl.judge.cache import AnswerCache
from agentgym_rl.judge.prompt import Prompt
from agentgym_rl.judge.request import ChatClient, Fault, Said
from agentgym_rl.judge.settings import JudgeSettings
from agentgym_rl.judge.verdict import Form, UnreadableVerdict, Verdict

LONGEST_BACKOFF_SECONDS = 30.0


@dataclass
class Spent:
    """What verdicts have cost so far."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: int = 0
    """Verdicts that needed no request."""

    def add(self, said: Said) -> None:
        self.prompt_tokens += said.prompt_tokens
        self.completion_tokens += said.completion_tokens


class Answer(NamedTuple):
    """A verdict, and what it took with all tries in vain."""

    verdict: Verdict
    spent: Spent


class JudgeServer:
    """Asks one server; belongs to the event loop on which it is used."""

    def __init__(self, settings: JudgeSettings):
        self._settings = settings
        self._what = f"judge {settings.model!r}"
        self._client = ChatClient(settings.url, settings.request_seconds)
        self._cache = AnswerCache(settings.cache)
        self._limit = reply_limit(settings.concurrency)
        self.spent = Spent()

    async def ask(self, make_prompt: Callable[[], Prompt], form: Form) -> Answer:
        """The model's verdict.

        Args:
            make_prompt: called when it is this question's turn: the prompts of all that wait would fill the memory.
            form: of the verdict.

        Raises:
            JudgeFailed: no readable one within the tries and the deadline.
            ConfigurationError: the server refuses the key, the model or the url.
        """
        async with self._limit:
            request = self._request(make_prompt(), form)
            known = self._known(request, form)
            if known is not None:
                self.spent.cached += 1
                return Answer(known, Spent(cached=1))
            return await boundary(self._try(request, form), JudgeFailed, self._what, self._settings.deadline_seconds)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _request(self, prompt: Prompt, form: Form) -> dict[str, Any]:
        """All that an answer depends on."""
        request = {"model": self._settings.model, "messages": prompt.to_chat(), **self._settings.parameters}
        if self._settings.answer_format == "json_schema":
            schema = {"name": form.name, "schema": form.schema, "strict": True}
            request["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self._settings.answer_format == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request

    def _known(self, request: dict[str, Any], form: Form) -> Verdict | None:
        text = self._cache.get(request)
        try:
            return None if text is None else form.read(text)
        except UnreadableVerdict:
            return None

    async def _try(self, request: dict[str, Any], form: Form) -> Answer:
        """Ask until a verdict can be read, or no try or time is left."""
        loop, spent = asyncio.get_running_loop(), Spent()
        end = loop.time() + self._settings.deadline_seconds
        ends: set[NoVerdict | None] = set()
        while True:
            try:
                return Answer(await self._once(request, form, spent), spent)
            except Fault as fault:
                ends.add(fault.no_verdict)
                wait = max(fault.wait_seconds, self._backoff(spent.requests) * _jitter(request, spent.requests))
                self._require_another(fault, len(ends) == 1, spent.requests, wait, end - loop.time())
                await asyncio.sleep(wait)

    async def _once(self, request: dict[str, Any], form: Form, spent: Spent) -> Verdict:
        """One try, which is paid for whatever comes of it."""
        anew = {"seed": request["seed"] + spent.requests} if "seed" in request else {}
        for account in (self.spent, spent):
            account.requests += 1
        said = await self._client.send({**request, **anew})
        for account in (self.spent, spent):
            account.add(said)
        if not said.is_whole:
            cut_off = f"a verdict cut off after {said.completion_tokens} tokens: {said.text!r:.200}"
            raise Fault(cut_off, no_verdict=NoVerdict.UNREADABLE)
        try:
            verdict = form.read(said.text)
        except UnreadableVerdict as error:
            raise Fault(str(error), no_verdict=NoVerdict.UNREADABLE) from error
        self._cache.put(request, said.text)
        return verdict

    def _backoff(self, tries: int) -> float:
        return min(self._settings.backoff_seconds * 2.0 ** (tries - 1), LONGEST_BACKOFF_SECONDS)

    def _require_another(self, fault: Fault, as_before: bool, tries: int, wait: float, left: float) -> None:
        """Raise a JudgeFailed unless another try is worth it and allowed.

        Args:
            as_before: every try ended like this one.
        """
        if fault.passes and tries < self._settings.tries and wait < left:
            return
        late = fault.passes and tries < self._settings.tries
        why = f"no time for another within {self._settings.deadline_seconds:.3g} s" if late else "no other follows"
        manner = Manner.TIMED_OUT if late else fault.manner
        is_final = not fault.passes or (as_before and not late)
        raise JudgeFailed(
            f"{self._what} gave no verdict; try {tries} of {self._settings.tries}: {fault}; {why}",
            manner,
            fault.no_verdict if is_final else None,
        ) from fault


def _jitter(request: dict[str, Any], tries: int) -> float:
    """From 0.5 to 1: questions that failed together do not come back together."""
    return random.Random(f"{tries} {request}").uniform(0.5, 1.0)
