"""A chat server on loopback that does what a script says, request after request; and trajectories to be judged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from doubles_agentgym import running

from agentgym_rl.judge.settings import JudgeSettings
from agentgym_rl.messages import assistant, user
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

CUT, SILENT, NO_JSON, NO_CHOICE, TOO_LONG = "<cut>", "<silent>", "<no json>", "<no choice>", "<too long>"
PROMPT_TOKENS, COMPLETION_TOKENS = 100, 7
"""What every whole answer says that it took."""


def verdict(score, reason="because") -> str:
    return json.dumps({"reason": reason, "score": score})


def verdicts(*scores, reason="because") -> str:
    return json.dumps({"reason": reason, "scores": {str(n): score for n, score in enumerate(scores, start=1)}})


class ScriptedChat:
    """An ASGI application. Each request takes the next entry: a status, a status with its headers, one of the faults
    above, or the text of an answer; `otherwise` answers what the script has no entry for."""

    def __init__(self, *script, otherwise: Callable[[dict], str] | None = None):
        self.script = list(script)
        self.otherwise = otherwise
        self.requests: list[dict] = []
        self.headers: list[dict[bytes, bytes]] = []
        self.now = self.most = 0
        self.gate = 1
        """Nothing is answered before so many questions were there at a time."""
        self._is_open = asyncio.Event()

    async def __call__(self, scope, receive, send):
        request = json.loads(await _body_of(receive))
        self.requests.append(request)
        self.headers.append(dict(scope["headers"]))
        self.now += 1
        self.most = max(self.most, self.now)
        if self.most >= self.gate:
            self._is_open.set()
        try:
            await self._is_open.wait()
            await self._answer(self._entry(request), receive, send)
        finally:
            self.now -= 1

    def _entry(self, request):
        if self.script:
            return self.script.pop(0)
        assert self.otherwise, "the script has no entry left"
        return self.otherwise(request)

    async def _answer(self, entry, receive, send):
        if entry == SILENT:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, headers = entry if isinstance(entry, tuple) else (entry if isinstance(entry, int) else 200, {})
        body = self._body(entry) if status == 200 else b'{"error": {"message": "scripted"}}'
        shown = {"content-type": "application/json", "content-length": str(len(body)), **headers}
        head = [(name.encode(), value.encode()) for name, value in shown.items()]
        await send({"type": "http.response.start", "status": status, "headers": head})
        if entry == CUT:
            await send({"type": "http.response.body", "body": body[:20], "more_body": True})
            return
        await send({"type": "http.response.body", "body": body})

    def _body(self, entry) -> bytes:
        if entry == NO_JSON:
            return b"{this is no json"
        answer = {"id": "a", "object": "chat.completion", "created": 0, "model": "m", "choices": []}
        if entry != NO_CHOICE:
            end = "length" if entry == TOO_LONG else "stop"
            message = {"role": "assistant", "content": entry}
            answer["choices"] = [{"index": 0, "finish_reason": end, "message": message}]
            total = PROMPT_TOKENS + COMPLETION_TOKENS
            counts = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS, "total_tokens": total}
            answer["usage"] = counts
        return json.dumps(answer).encode()


async def _body_of(receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part["body"], part["more_body"]
    return body


Chat = Callable[..., AbstractContextManager[tuple[ScriptedChat, JudgeSettings]]]


@contextmanager
def chat_server() -> Iterator[Chat]:
    """One server for many scripts: `with chat(429, verdict(7)) as (server, settings): ...`"""
    current: list[ScriptedChat] = []

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await current[-1](scope, receive, send)

    with running(app) as address:

        @contextmanager
        def chat(*script, otherwise: Callable[[dict], str] | None = None, **settings):
            current.append(ScriptedChat(*script, otherwise=otherwise))
            yield (
                current[-1],
                JudgeSettings(**{"url": f"{address}/v1", "model": "m", "backoff_seconds": 0.001, **settings}),
            )

        yield chat


def records_shown(request: dict) -> list[list[dict]]:
    """The records of a request as a careful judge reads them: by the nonce, then line by line."""
    system, text = (message["content"] for message in request["messages"])
    nonce = re.search(r"\[begin record (?:1|K) (\w+)\]", system)[1]
    blocks = re.findall(rf"^\[begin record \d+ {nonce}\]\n(.*?)\n\[end record \d+ {nonce}\]$", text, re.M | re.S)
    return [[json.loads(line) for line in block.split("\n") if line] for block in blocks]


def by_replies(score_of: dict[str, int]) -> Callable[[dict], str]:
    """A judge that looks only at the last reply of each record."""

    def answer(request: dict) -> str:
        replies = [
            [line["content"] for line in record if line["role"] == "assistant"] for record in records_shown(request)
        ]
        scores = [score_of[said[-1]] for said in replies]
        is_relative = "attempts" in request["messages"][0]["content"]
        return verdicts(*scores) if is_relative else verdict(scores[0])

    return answer


def trajectory_of(*replies: str, task="t", success: bool | None = None, opening="go", **more) -> Trajectory:
    turns = tuple(Turn(Reply(assistant(reply)), (user("on"),), 0.25) for reply in replies)
    return Trajectory(Task(task, "maze", **more), (user(opening),), turns, StopReason.TERMINATED, success)


def failed_trajectory(task="t") -> Trajectory:
    failure = Failure("environment_crashed", "the maze fell in")
    return Trajectory(Task(task, "maze"), (), (), StopReason.FAILED, failure=failure)
