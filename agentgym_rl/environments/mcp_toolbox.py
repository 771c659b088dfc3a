"""MCP servers as toolboxes: what a server offers are the tools of an episode, in a session of the episode's own.

    class Clock(McpToolbox):
        def servers(self, task: Task) -> Sequence[Server]:
            return [StdioServer("uvx", ("mcp-server-time",))]

        def check(self, answer: str, task: Task) -> float:
            return float(task.reference_answer in answer)

Task, actions, observations, reward and end are those of any `Toolbox`; `functions` of the class are tools as well. What
a server says is an error ("no such file") is a result that goes on; a server that is gone or does not answer is the
typed failure `tool_crashed` or `tool_timed_out`, at reset as in a call. A session ends with its episode: with the last
step, with the next reset, with close, and where opening fails. Whether episodes can be played again (`facts`) is up to
the servers.

Source: Model Context Protocol, https://modelcontextprotocol.io; package `mcp` (MIT).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentgym_rl.environment import StepResult
from agentgym_rl.environments.mcp_session import HttpServer, McpSession, Server, StdioServer
from agentgym_rl.environments.toolbox import Toolbox
from agentgym_rl.messages import Message
from agentgym_rl.task import Task
from agentgym_rl.tools import Tool

__all__ = ["HttpServer", "McpToolbox", "Server", "StdioServer"]


class McpToolbox(Toolbox):
    """Subclass it with `servers` and `check`."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: list[McpSession] = []

    def servers(self, task: Task) -> Sequence[Server]:
        """The servers of an episode; their tools' names must differ.

        Raises:
            ConfigurationError: the task's arguments can't work.
        """
        raise NotImplementedError

    async def open_tools(self, task: Task) -> Sequence[Tool]:
        await self._end_sessions()
        tools = list(await super().open_tools(task))
        for server in self.servers(task):
            session = McpSession(server)
            self._sessions.append(session)
            tools += await session.open()
        return tools

    async def step(self, action: Message) -> StepResult:
        result = await super().step(action)
        if result.terminated or result.truncated:
            await self._end_sessions()
        return result

    async def close(self) -> None:
        await self._end_sessions()

    async def _end_sessions(self) -> None:
        """All at once: each may take its time."""
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions))
