"""One session with an MCP server: its tools as ours, and its end, whatever happens.

A task of its own opens the session and closes it, because the library's scopes must be left in the task that entered
them, and an environment's calls come from many. Failures are typed: a server that is gone is `CRASHED`, one that does
not answer is `TIMED_OUT`. What a tool answers as an error is a result, and so is a call that fits no schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from agentgym_rl.environments.server_schema import validator_of
from agentgym_rl.errors import ConfigurationError, Manner, ToolFailed, boundary
from agentgym_rl.inline_schema import inlined
from agentgym_rl.tools import Tool, ToolResult

OPEN_SECONDS = 30.0
"""Deadline of a session's opening, and of the listing of its tools."""
CLOSE_SECONDS = 4.0
"""What a server gets to take its leave; a process that is still there is killed after it."""
_STDERR_CHARACTERS = 2048
"""How much of a dead server's stderr its error shows."""


@dataclass(frozen=True)
class StdioServer:
    """A server that is started as a process for each session, and talks over its stdin and stdout."""

    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; of this process's own it gets only the harmless ones (HOME, PATH, ...)."""
    folder: str | None = None
    """In which it runs; None: this process's."""

    def __str__(self) -> str:
        return " ".join([self.command, *self.arguments])


@dataclass(frozen=True)
class HttpServer:
    """A server that is there already, and talks streamable HTTP."""

    url: str

    def __str__(self) -> str:
        return self.url


Server = StdioServer | HttpServer


class McpSession:
    """One session; `open` it once, and `close` it."""

    def __init__(self, server: Server):
        self._server = server
        self._what = f"MCP server {str(server)!r}"
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._holder: asyncio.Task[None] | None = None
        self._scope: Any = None
        self._stderr: TextIO | None = None

    async def open(self) -> list[Tool]:
        """Start the session and list the server's tools.

        Raises:
            ToolFailed: the server is not there, or late; nothing of the session is left then.
            ConfigurationError: the package is not installed, or a server's command can't be run.
        """
        _require_mcp()
        self._holder = asyncio.get_running_loop().create_task(self._hold())
        try:
            return await boundary(self._list_tools(), ToolFailed, f"opening {self._what}", OPEN_SECONDS)
        except BaseException:
            await self._abort()
            raise

    async def close(self) -> None:
        """End the session, and the server that was started for it. May be called twice."""
        self._closing.set()
        if self._holder is not None:
            await asyncio.wait({self._holder}, timeout=CLOSE_SECONDS)
            await self._abort()

    async def _abort(self) -> None:
        assert self._holder is not None
        if self._scope is not None:
            self._scope.cancel()
        await asyncio.wait({self._holder}, timeout=CLOSE_SECONDS)
        if self._stderr is not None:
            self._stderr.close()

    async def _hold(self) -> None:
        """Enter the session, say so, and leave it when `close` asks for that."""
        import anyio

        try:
            with anyio.CancelScope() as self._scope:
                async with self._client() as client:
                    self._opened.set_result(client)
                    await self._closing.wait()
        except Exception as error:  # of an open session its next call tells
            if not self._opened.done():
                self._opened.set_exception(self._failure("opening", error))
                self._opened.exception()  # seen, also where nobody waits for it any more
        finally:
            self._opened.cancel()  # of use to nobody unless it is done

    def _client(self) -> Any:
        """Of the protocol's generation that knows sessions, so that what a server keeps belongs to one trajectory."""
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client

        server = self._server
        if isinstance(server, HttpServer):
            return Client(server.url, mode="legacy", cache=None)
        self._stderr = cast(TextIO, tempfile.TemporaryFile("w+", errors="replace"))  # noqa: SIM115  # `_abort` closes it
        parameters = StdioServerParameters(
            command=server.command, args=list(server.arguments), env=dict(server.variables), cwd=server.folder
        )
        return Client(stdio_client(parameters, errlog=self._stderr), mode="legacy", cache=None)

    async def _list_tools(self) -> list[Tool]:
        client = await asyncio.shield(self._opened)
        listed: list[Any] = []
        try:
            page = await client.list_tools()
            listed += page.tools
            while page.next_cursor:
                page = await client.list_tools(cursor=page.next_cursor)
                listed += page.tools
        except Exception as error:
            raise self._failure("listing the tools", error) from error
        return [self._tool(client, tool) for tool in listed]

    def _tool(self, client: Any, listed: Any) -> Tool:
        schema, name = listed.input_schema, listed.name

        async def answer(arguments: Mapping[str, Any]) -> ToolResult:
            _require_fitting(name, arguments, schema)
            try:
                result = await client.call_tool(name, dict(arguments))
            except Exception as error:
                raise self._failure(f"tool {name!r}", error) from error
            return ToolResult(_text(result), is_error=result.is_error)

        shown = schema
        with contextlib.suppress(ConfigurationError):  # it contains itself, and is shown with its references
            shown = inlined(schema, name)
        return Tool(name, listed.description or "", shown, answer)

    def _failure(self, doing: str, error: BaseException) -> ToolFailed | ConfigurationError:
        """The typed failure behind what the library raised."""
        while getattr(error, "exceptions", ()):  # of a task group
            error = cast(Any, error).exceptions[0]
        if isinstance(error, FileNotFoundError | PermissionError) and isinstance(self._server, StdioServer):
            return ConfigurationError(f"{self._what} can't be started: {error}")
        what = f"{doing} of {self._what} raised {type(error).__name__}: {error}"
        if not _is_gone(error):
            return ToolFailed(what)
        return ToolFailed(f"{what}; the server is gone" + self._last_words(), Manner.CRASHED)

    def _last_words(self) -> str:
        if self._stderr is None or self._stderr.closed:
            return ""
        self._stderr.seek(0)
        said = self._stderr.read()[-_STDERR_CHARACTERS:].strip()
        return f"; its stderr:\n{said}" if said else ""


def _is_gone(error: BaseException) -> bool:
    import anyio
    import httpx2
    from mcp import MCPError, types

    if isinstance(error, MCPError):
        return error.code == types.CONNECTION_CLOSED
    return isinstance(error, OSError | anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError)


def _require_fitting(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """
    Raises:
        WrongCall: the arguments don't fit the schema.
    """
    from agentgym_rl.tool_arguments import wrong_call

    error = next(validator_of(schema).iter_errors(arguments), None)
    if error is not None:
        where = ".".join(map(str, error.absolute_path))
        raise wrong_call(name, f"{where}: {error.message[:200]}" if where else error.message[:200], schema)


def _text(result: Any) -> str:
    """Text as it is; of anything else its kind."""
    parts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
    return "\n".join(parts)


def _require_mcp() -> None:
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError("MCP servers need the package 'mcp': pip install \"openmanus-rl[mcp]\"") from error
