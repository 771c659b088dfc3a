"""How many verdicts a second one core asks for: a server that answers after 50 ms, 64 questions at a time.

The bound is questions at a time / latency: 1,280 a second. What a client can do at most is 1 / CPU seconds of a
request, which is why both figures stand there. Peers in the same run: `openai`'s client and `aiohttp`, sending the very
request that the judge sends. Target: 90% of the bound.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from agentgym_rl.judge.judge import Judge, opened
from agentgym_rl.judge.prompt import absolute_prompt, read_rubric
from agentgym_rl.judge.settings import PARAMETERS, JudgeSettings
from agentgym_rl.judge.transcript import transcript
from agentgym_rl.judge.verdict import absolute_form
from agentgym_rl.trajectory import Trajectory
from agentgym_rl.viewer.chart import Curve, Point
from benchmarks.data.slow_server import serving
from benchmarks.data.workload import record
from benchmarks.results import Result, Verdict, machine, parser, write

Ask = Callable[[int], Awaitable[object]]
"""Sends the request with this number."""
TARGET_SHARE = 0.9


class Cost(NamedTuple):
    """Of a request to its client."""

    cpu: float
    """Seconds."""
    rate: float
    """Requests a second."""


async def cost(ask: Ask, requests: int, concurrency: int) -> Cost:
    """With a warm-up of a round, which opens the connections."""
    await _ask_all(ask, concurrency, concurrency)
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await _ask_all(ask, requests, concurrency)
    return Cost((time.process_time() - cpu) / requests, requests / (time.perf_counter() - wall))


async def _ask_all(ask: Ask, requests: int, concurrency: int) -> None:
    numbers = iter(range(requests))

    async def one_after_the_other() -> None:
        for number in numbers:
            await ask(number)

    await asyncio.gather(*(one_after_the_other() for _ in range(concurrency)))


async def _measure(options: Any, url: str) -> dict[str, list[Cost]]:
    import aiohttp
    import openai

    trajectories = [record(number).trajectory for number in range(options.requests)]
    request = _request(trajectories[0])
    settings = JudgeSettings(url, "m", concurrency=options.concurrency)
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        keeping = JudgeSettings(url, "m", concurrency=options.concurrency, cache=folder)
        async with (
            opened(settings) as judge,
            opened(keeping) as keeper,
            openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):

            async def by_aiohttp(number: int) -> None:
                async with session.post(f"{url}/chat/completions", json=request) as response:
                    await response.json()

            ways: dict[str, Ask] = {
                "judge": _asking(judge, trajectories),
                "judge that keeps answers": _asking(keeper, trajectories),
                "aiohttp": by_aiohttp,
                "openai, post": lambda number: client.post("/chat/completions", cast_to=object, body=request),
                "openai, chat.completions.create": lambda number: client.chat.completions.create(**request),
            }
            for _ in range(options.repeats):
                for name, ask in ways.items():
                    found.setdefault(name, []).append(await cost(ask, options.requests, options.concurrency))
    return found


def _asking(judge: Judge, trajectories: Sequence[Trajectory]) -> Ask:
    return lambda number: judge.absolute(trajectories[number])


def _request(trajectory: Trajectory) -> dict[str, Any]:
    """What the judge sends about a trajectory."""
    form = absolute_form()
    schema = {"name": form.name, "schema": form.schema, "strict": True}
    prompt = absolute_prompt(transcript(trajectory), read_rubric(None))
    held = {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {"model": "m", "messages": prompt.to_chat(), **PARAMETERS, **held}


def main(arguments: Sequence[str] | None = None) -> Result:
    made = parser(__doc__, "data")
    made.add_argument("--requests", type=int, default=2560, help="of each measurement")
    made.add_argument("--concurrency", type=int, default=64, help="requests at a time")
    made.add_argument("--latency-seconds", type=float, default=0.05, help="of the server")
    made.add_argument("--repeats", type=int, default=3, help="measurements of each way; the median counts")
    options = made.parse_args(arguments)
    state = machine()
    with serving(options.latency_seconds) as url:
        found = asyncio.run(_measure(options, url))
    result = _result(options, found)
    write(result, state, options.out)
    return result


def _result(options: Any, found: dict[str, list[Cost]]) -> Result:
    bound = options.concurrency / options.latency_seconds
    rows = [
        {
            "client": name,
            "CPU ms/request": 1e3 * median(cost.cpu for cost in costs),
            "a CPU second": 1 / median(cost.cpu for cost in costs),
            "requests/s": median(cost.rate for cost in costs),
            "of the bound": median(cost.rate for cost in costs) / bound,
        }
        for name, costs in found.items()
    ]
    share = median(cost.rate for cost in found["judge"]) / bound
    verdict = Verdict(f"judge: share of {bound:.0f} requests/s", share, f">= {TARGET_SHARE:g}", share >= TARGET_SHARE)
    curves = [
        Curve(name, [Point(float(place), 1e3 * cost.cpu) for place, cost in enumerate(costs)], "CPU ms a request")
        for name, costs in found.items()
    ]
    settings = {name.replace("_", " "): value for name, value in vars(options).items() if name != "out"}
    return Result("judge", settings, rows, [verdict], curves, "repeat")


if __name__ == "__main__":
    main()
