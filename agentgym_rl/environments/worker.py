"""The child side of `ProcessEnvironment`: makes one environment and answers its parent's requests, one at a time.

Invariant: the protocol has the pipes to itself. They are moved to private descriptors before the environment is
imported; descriptor 0 then reads nothing and descriptor 1 writes to stderr, so prints can't corrupt an answer. When the
parent is gone, so are this process and everything it started.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import json
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from agentgym_rl.environment import BlockingEnvironment, Environment
from agentgym_rl.environments.wire import ARGUMENTS, BEGINNINGS, HELLO, RESULTS, Hello, encode_error, to_line
from agentgym_rl.errors import ConfigurationError

Lines = queue.SimpleQueue[bytes]


def main(target: str) -> None:
    requests, answers = _take_the_pipes()
    faulthandler.enable()
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    try:
        environment = load(target)()
        hello = HELLO.encode(Hello.of(environment))
    except Exception as error:
        _send(answers, {"error": encode_error(error)})
        return
    _send(answers, {"result": hello})
    if isinstance(environment, BlockingEnvironment):
        _serve(environment, lines, answers)
    else:
        asyncio.run(_serve_awaiting(environment, lines, answers))


def load(target: str) -> type[Environment] | type[BlockingEnvironment]:
    """The class behind "module:Class".

    Raises:
        ConfigurationError: it can't be imported by this interpreter.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"environment {target!r} can't be imported by {sys.executable}: {error}") from error


def _take_the_pipes() -> tuple[BinaryIO, BinaryIO]:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _read(requests: BinaryIO, lines: Lines) -> None:
    """Hand requests over; at their end the parent is gone, and an environment that hangs must not outlive it."""
    for line in requests:
        lines.put(line)
    if os.getpgrp() == os.getpid():  # as `ProcessEnvironment` starts it, and no shell's group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _serve(environment: BlockingEnvironment, lines: Lines, answers: BinaryIO) -> None:
    """On the main thread and without an event loop, which some blocking libraries insist on."""
    while True:
        method, arguments = _read_request(lines.get())
        try:
            row = _answer(environment, method, getattr(environment, method)(*arguments))
        except Exception as error:
            row = {"error": encode_error(error)}
        _send(answers, row)


async def _serve_awaiting(environment: Environment, lines: Lines, answers: BinaryIO) -> None:
    """On a loop that also runs between the requests, so that connections stay alive."""
    loop = asyncio.get_running_loop()
    while True:
        method, arguments = _read_request(await loop.run_in_executor(None, lines.get))
        try:
            row = _answer(environment, method, await getattr(environment, method)(*arguments))
        except Exception as error:
            row = {"error": encode_error(error)}
        _send(answers, row)


def _answer(environment: Environment | BlockingEnvironment, method: str, result: Any) -> dict[str, Any]:
    row = {"result": RESULTS[method].encode(result)}
    return row | {"hello": HELLO.encode(Hello.of(environment))} if method in BEGINNINGS else row


def _read_request(line: bytes) -> tuple[str, list[Any]]:
    request = json.loads(line)
    method = request["method"]
    return method, [ARGUMENTS[method].decode(request["argument"])] if method in ARGUMENTS else []


def _send(answers: BinaryIO, row: dict[str, Any]) -> None:
    try:
        line = to_line(row)
    except (TypeError, ValueError) as error:  # e.g. an array in `info`
        line = to_line({"error": encode_error(error)})
    answers.write(line)
    answers.flush()


if __name__ == "__main__":
    sys.path += [path for path in sys.argv[2:] if path not in sys.path]
    main(sys.argv[1])
