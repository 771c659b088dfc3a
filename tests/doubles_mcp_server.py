"""A small MCP server: `python doubles_mcp_server.py [PORT]`, over stdio or, with a port, over HTTP."""

import os
import sys
import time
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

server = MCPServer("numbers")
notes: list[int] = []


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


@server.tool()
def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def note(number: int) -> str:
    """Write a number down, and read all of them."""
    notes.append(number)
    return str(notes)


@server.tool()
def read(path: str) -> str:
    """Read a file."""
    raise ToolError(f"no such file: {path}")


@server.tool()
def spell(word: Annotated[str, Field(pattern="^[a-f]+$")]) -> str:
    """Spell a word."""
    return "-".join(word)


@server.tool()
def leaves(tree: Tree) -> str:
    """Count the leaves of a tree."""
    return str(sum(map(int, map(leaves, tree.children))) or 1)


@server.tool()
async def hang() -> str:
    """Hang, without a look at anything else."""
    time.sleep(30)  # a server that is stuck is the point
    return "late"


@server.tool()
def crash() -> str:
    """Crash."""
    print("the disk is full", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def process() -> str:
    """The number of this process."""
    return str(os.getpid())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
