"""A virtual API server on loopback with recorded answers, one whose HTTP is broken, and judges."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from agentgym_rl.environments.toolbench.verdict import Attempt
from agentgym_rl.task import Task

SEARCH = {
    "category_name": "Data",
    "tool_name": "TheClique",
    "api_name": "Transfermarkt search",
    "api_description": "Search by name",
    "required_parameters": [{"name": "name", "type": "STRING", "description": "whom", "default": "messi"}],
    "optional_parameters": [{"name": "from", "type": "NUMBER", "description": "", "default": ""}],
    "method": "GET",
    "template_response": {"Players": [{"name": "str"}]},
}
HEALTH = {
    "category_name": "Logistics",
    "tool_name": "suivi-colis",
    "api_name": "Health",
    "api_description": "",
    "required_parameters": [],
    "optional_parameters": [],
}
SEARCH_NAME, HEALTH_NAME = "transfermarkt_search_for_theclique", "health_for_suivi_colis"

RECORDED = {
    ("theclique", "transfermarkt_search", '{"name": "messi"}'): {"error": "", "response": {"Players": ["Messi 28003"]}},
    ("theclique", "transfermarkt_search", '{"name": "nobody"}'): {"error": "", "response": ""},
    ("theclique", "transfermarkt_search", '{"name": "\\ud800"}'): {"error": "", "response": "half a character"},
    ("theclique", "transfermarkt_search", '{"name": "long"}'): {"error": "", "response": "x" * 5000},
    ("suivi_colis", "health", "{}"): {"error": "Too many requests error...", "response": ""},
}


class Info(BaseModel):
    """A request, with the fields and types that the real server asks for."""

    category: str
    tool_name: str
    api_name: str
    tool_input: str | dict
    strip: str
    toolbench_key: str


class Virtual:
    """StableToolBench's `/virtual`, which answers what was recorded; `requests` holds what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.app = FastAPI()

        async def virtual(info: Info) -> JSONResponse:
            self.requests.append(info.model_dump())
            key = (info.tool_name, info.api_name, info.tool_input)
            return JSONResponse(RECORDED.get(key, {"error": "API not working error...", "response": ""}))

        self.app.post("/virtual")(virtual)


def task(url: str, id: str = "t", **arguments: object) -> Task:
    given = {"url": url, "query": "What is Messi's id?", "apis": [SEARCH, HEALTH], **arguments}
    return Task(id, "toolbench", given)


def call(function: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': function, 'arguments': arguments})}</tool_call>"


def finish(answer: str | None = "His id is 28003.") -> str:
    if answer is None:
        return call("Finish", return_type="give_up_and_restart")
    return call("Finish", return_type="give_answer", final_answer=answer)


@asynccontextmanager
async def answering(*answers: bytes | None):
    """The address of a server that sends these bytes to one request after the other and closes, the last one forever,
    and how often it was asked; None: nothing is ever sent."""
    asked: list[bytes] = []
    handlers = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        asked.append(await reader.readexactly(int(length[0].split(b":")[1])))
        answer = answers[min(len(asked), len(answers)) - 1]
        if answer is None:
            await asyncio.Event().wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


# ---- judges


def names_the_id(attempt: Attempt) -> float:
    return 1.0 if "28003" in attempt.final_answer else 0.5


async def awaits(attempt: Attempt) -> bool:
    await asyncio.sleep(0)
    return len(attempt.calls) == 2 and attempt.query == "What is Messi's id?"


def raises(attempt: Attempt) -> float:
    raise KeyError("no such model")


def says_text(attempt: Attempt) -> str:
    return "Solved"


def says_two(attempt: Attempt) -> int:
    return 2


def is_late(attempt: Attempt) -> float:
    time.sleep(0.5)
    return 1.0


def off_the_event_loop(attempt: Attempt) -> bool:
    return threading.current_thread() is not threading.main_thread()


NO_FUNCTION = 3
