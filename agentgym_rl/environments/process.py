"""An environment in a worker process of its own: it may crash, hang, leak or print without harming anyone else.

Invariant: nothing of a worker outlives `close()`, a call that was cut off by its deadline, or this process. The error
of a worker that died says how (exit code or signal, the end of its stderr), and the next `reset` starts a fresh one.
What crosses the pipe is JSON (`wire`), so the worker may run under another interpreter with packages of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments.interpreter import worker_command, worker_variables
from agentgym_rl.environments.wire import ARGUMENTS, HELLO, RESULTS, Hello, decode_error, to_line
from agentgym_rl.errors import AgentGymError, ConfigurationError, EnvironmentFailed, Manner, boundary
from agentgym_rl.messages import Message
from agentgym_rl.task import Task

LINE_BYTES = 256 * 2**20
"""Longest answer that is read."""
STDERR_BYTES = 2048
"""How much of a dead worker's stderr its error shows."""
CLOSE_SECONDS = 3.0
"""What an environment gets for its own close before its process group is killed."""


class ProcessEnvironment(Environment):
    """Runs "module:Class" in a worker process; the process starts with the first reset or restore.

    Args:
        target: "module:Class" as the worker's interpreter imports it.
        interpreter: path of the Python that runs the worker (`interpreter`). None: this one, and its `sys.path`.
        variables: environment variables on top of this process's own.
        on_start: called with the process id of each worker before that has imported anything.

    Raises:
        ConfigurationError: the target is malformed, or its module has no such class.
    """

    def __init__(
        self,
        target: str,
        interpreter: str | None = None,
        variables: Mapping[str, str] | None = None,
        on_start: Callable[[int], None] | None = None,
    ) -> None:
        self.on_start = on_start
        self._target = target
        self._interpreter = interpreter
        self._variables = dict(variables or {})
        self._worker: _Worker | None = None
        self._closed = False
        made = _class_if_importable(target)
        self._facts: Facts | None = getattr(made, "facts", None)
        self.instructions = getattr(made, "instructions", "")
        self.tools = getattr(made, "tools", ())

    @property
    def facts(self) -> Facts:  # type: ignore[override]
        """Of the class; where only the worker can import it, they are known once that has started."""
        if self._facts is None:
            raise ConfigurationError(f"the facts of {self._target!r} are known once `await start()` has run")
        return self._facts

    @property
    def pid(self) -> int | None:
        """Of the worker that is running, which leads a session and a process group of its own; None: there is none."""
        return self._worker.pid if self._worker is not None and self._worker.running else None

    async def start(self) -> None:
        """Start the worker unless one is running."""
        if self._closed:
            raise EnvironmentFailed(f"{self._target!r} was used after close")
        if self._worker is not None:
            if self._worker.running:
                return
            await self._worker.end()
        self._worker = await _Worker.started(self._target, self._interpreter, self._variables)
        if self.on_start is not None:
            self.on_start(self._worker.pid)
        try:
            self._note(HELLO.decode(await self._worker.answer("start")))
        except AgentGymError:
            await self._worker.end()
            raise

    async def reset(self, task: Task) -> Sequence[Message]:
        await self.start()
        return await self._call("reset", task)

    async def step(self, action: Message) -> StepResult:
        return await self._call("step", action)

    async def expert_action(self) -> str:
        return await self._call("expert_action")

    async def actions(self) -> Sequence[str]:
        return await self._call("actions")

    async def snapshot(self) -> bytes:
        return await self._call("snapshot")

    async def restore(self, snapshot: bytes) -> None:
        await self.start()
        await self._call("restore", snapshot)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._worker is None:
            return
        try:
            if self._worker.running:
                closing = self._worker.call("close")
                await boundary(closing, EnvironmentFailed, f"close of {self._target!r}", CLOSE_SECONDS)
        finally:
            await self._worker.end()

    async def kill(self) -> None:
        """End the worker without its environment's close. Nothing can be called after it."""
        self._closed = True
        if self._worker is not None:
            await self._worker.end()

    async def _call(self, method: str, argument: Any = None) -> Any:
        if self._worker is None:
            raise EnvironmentFailed(f"{method} of {self._target!r} was called before reset")
        result = await self._worker.call(method, argument)
        if self._worker.hello is not None:
            self._note(HELLO.decode(self._worker.hello))
        return result

    def _note(self, hello: Hello) -> None:
        self._facts, self.instructions, self.tools = hello


def _class_if_importable(target: str) -> type[Environment] | None:
    module, _, attribute = target.partition(":")
    if target.count(":") != 1:
        raise ConfigurationError(f"an environment's target reads 'module:Class'; given: {target!r}")
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return None
    if not hasattr(imported, attribute):
        raise ConfigurationError(f"the module {module!r} has no {attribute!r}")
    return getattr(imported, attribute)


class _Worker:
    """One process with its pipes. Calls take turns; one that is cut off takes the process with it."""

    def __init__(self, target: str, process: asyncio.subprocess.Process):
        self._target = target
        self._process = process
        self._turn = asyncio.Lock()
        self._cut_off = ""
        self._ended = False
        self._stderr = b""
        self.hello: Any = None
        """What came with the last answer, undecoded; None: nothing did."""
        self._draining = asyncio.ensure_future(self._drain())

    @classmethod
    async def started(cls, target: str, interpreter: str | None, variables: Mapping[str, str]) -> _Worker:
        command = worker_command(target, interpreter)
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=worker_variables(interpreter, variables),
                limit=LINE_BYTES,
                start_new_session=True,  # a process group of its own, which `end` kills as a whole
            )
        except OSError as error:
            raise ConfigurationError(f"the worker's interpreter {command[0]!r} can't be run: {error}") from error
        return cls(target, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._ended and self._process.returncode is None

    async def call(self, method: str, argument: Any = None) -> Any:
        request = {"method": method}
        if method in ARGUMENTS:
            request["argument"] = ARGUMENTS[method].encode(argument)
        async with self._turn:
            return RESULTS[method].decode(await self.answer(method, to_line(request)))

    async def answer(self, method: str, request: bytes = b"") -> Any:
        """Send a request and read the next answer, undecoded."""
        try:
            line = await self._exchange(request)
        except asyncio.CancelledError:
            self._cut_off = method
            await self.end()  # its late answer would be taken for the next call's
            raise
        except ValueError as error:
            await self.end()
            what = f"{method} of {self._target!r}"
            raise EnvironmentFailed(f"{what} answered more than {LINE_BYTES} bytes; its worker was killed") from error
        if not line.endswith(b"\n"):
            await self._exited(1.0)
            await self.end()
            raise EnvironmentFailed(self._obituary(method), Manner.CRASHED)
        row = json.loads(line)
        if "error" in row:
            raise decode_error(row["error"], f"{method} of {self._target!r}")
        self.hello = row.get("hello")
        return row["result"]

    async def end(self) -> None:
        """Kill the worker and everything it started. May be called twice."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in the group
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._exited(1.0)
        await asyncio.wait({self._draining}, timeout=0.5)
        self._draining.cancel()
        self._process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to close the pipes

    async def _exchange(self, request: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._ended:
            return b""
        with contextlib.suppress(ConnectionError):  # it is dead: reading says so
            self._process.stdin.write(request)
            await self._process.stdin.drain()
        return await self._process.stdout.readline()

    async def _exited(self, seconds: float) -> None:
        """`Process.wait` would also wait for the pipes, which the worker's children may hold open."""
        end = time.monotonic() + seconds
        while self._process.returncode is None and time.monotonic() < end:
            await asyncio.sleep(0.005)

    async def _drain(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr = (self._stderr + chunk)[-STDERR_BYTES:]

    def _obituary(self, method: str) -> str:
        code = self._process.returncode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        after = f" after its {self._cut_off} was cut off" if self._cut_off else ""
        said = self._stderr.decode(errors="replace").strip()
        return f"{method} of {self._target!r}: its worker process {how}{after}" + (f"; stderr:\n{said}" if said else "")
