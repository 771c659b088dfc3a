"""A chat server in a process of its own that answers every request after the same time, and costs little itself."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
END = b"\r\n\r\n"


def _answer() -> bytes:
    said = {"role": "assistant", "content": json.dumps({"reason": "It did what the task asks for.", "score": 7})}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    head = {"id": "a", "object": "chat.completion", "created": 0, "model": "m", "usage": usage}
    body = json.dumps({**head, "choices": [{"index": 0, "finish_reason": "stop", "message": said}]}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


ANSWER = _answer()


class _Chat(asyncio.Protocol):
    """One connection: a request at a time, whose body is counted and not read."""

    seconds = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(END)
        found = LENGTH.search(head)
        if end and found and len(body) >= int(found[1]):
            self._received = b""
            asyncio.get_running_loop().call_later(self.seconds, self._transport.write, ANSWER)


def _serve(seconds: float, opened: Connection) -> None:
    async def run() -> None:
        _Chat.seconds = seconds
        server = await asyncio.get_running_loop().create_server(_Chat, "127.0.0.1", 0)
        opened.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def serving(seconds: float) -> Iterator[str]:
    """The url of a server that answers after so many seconds."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(seconds, sender), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{receiver.recv()}/v1"
    finally:
        process.terminate()
        process.join()
