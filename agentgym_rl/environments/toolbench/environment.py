"""ToolBench: meet a user's query with calls of APIs, which StableToolBench's server answers, and end with `Finish`.

An episode keeps no state on the server: a call is one request, and what it is answered depends on that request alone,
as far as the server (or the cache before it) answers alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.environments.tool_replies import result_messages, show_tools
from agentgym_rl.environments.toolbench.answers import AnswerFolder
from agentgym_rl.environments.toolbench.apis import Api
from agentgym_rl.environments.toolbench.arguments import DEFAULT_MAX_TURNS, Setup
from agentgym_rl.environments.toolbench.finish import FINISH, final_answer
from agentgym_rl.environments.toolbench.server import VirtualServer
from agentgym_rl.environments.toolbench.verdict import Attempt, Called, judged
from agentgym_rl.environments.toolbox import MAX_CALLS
from agentgym_rl.errors import EnvironmentFailed, ToolFailed, boundary, did_you_mean
from agentgym_rl.messages import Message, ToolCall, user
from agentgym_rl.task import Task
from agentgym_rl.tool_calls import Parsed, ToolFormat, parse_message
from agentgym_rl.tools import WrongCall

KEY_VARIABLE = "OPENMANUS_TOOLBENCH_KEY"
"""Environment variable with the `toolbench_key` of each request. Never part of a task, which is written into files."""


class ToolBench(Environment):
    """Meet a query with the APIs that it comes with; their answers come from a virtual API server.

    Task: `arguments` holds `url` ("http://host:port" of StableToolBench's server), `query` and `apis` (its `api_list`:
        category_name, tool_name, api_name, api_description, required_parameters, optional_parameters), and, if wanted,
        `relevant` (its `relevant APIs`, pairs of tool and API), `cache` (folder for answers), `judge` (below),
        `observation_characters` (default 1024), `strip` (passed on; default "truncate"), `retries` (of a connection
        that breaks and a busy server; default 2), `call_seconds` (deadline of a call with its retries; default 20),
        `judge_seconds` (25), `tool_format` (of `agentgym_rl.tool_calls`, default "hermes") and `max_turns` (16).
        `data_preprocess/toolbench.py` writes tasks from ToolBench's files.
    Actions: calls of the query's functions, in order, or of `Finish` with return_type "give_answer" and a final_answer,
        or "give_up_and_restart". A reply without a call, a malformed one, an unknown function, a missing argument and
        an unknown one are not valid; they are answered with what was wrong, and the server is not asked.
    Observations: the query; then of each call {"error": ..., "response": ...} as the server gave it, cut after
        `observation_characters` and then ended by "...". The instructions tell of the functions.
    Reward: at the end, what `judge` says from 0 to 1; 0 if it was given up. 1 is success. A judge is a rule or
        "module:function", which takes an `Attempt` (`verdict.py`) and gives a number; StableToolBench's pass rate is
        the mean of a judge that asks a model. Rules: "any_call" (default), at least one call brought a result, that is
        an empty error and a response that is not empty; "relevant_calls", every API of `relevant` did. Neither reads
        the answer: a policy that calls once and then answers anything meets the first, so for more than learning to
        call and to finish give a judge.
    End: terminated by `Finish` (what follows it in a reply is not carried out; giving up ends the episode, a restart is
        another trajectory); truncated after `max_turns` turns, unsolved.
    Failures: a server that can't be reached, is late, or answers with no answer is `tool_crashed`, `tool_timed_out` or
        `tool_raised`; an error that it gives as its answer is an observation. A judge's are `judge_...`.
    Splits: ToolBench's files are its test sets; the script deals their queries.
    Expert: none. Reproducible as far as the server is: answers without error are read from `cache` where they are
        there, keyed on the whole request, and written to it.
    Token: the environment variable OPENMANUS_TOOLBENCH_KEY is sent as `toolbench_key`.
    Differs from ToolBench: a wrong call is not passed on; names of functions are cut at their end, and differ within a
        query; tools have no descriptions of their own, which the query files lack; one chain, no tree search.
    Not tried: the real server, whose cache and models are downloads of their own; the tests play against a server on
        loopback with recorded answers, and read 348 queries of StableToolBench where they are at hand.
    Source: Qin et al., ToolLLM, 2023, https://arxiv.org/abs/2307.16789; Guo et al., StableToolBench, 2024,
        https://arxiv.org/abs/2403.07714; https://github.com/THUNLP-MT/StableToolBench.
    Licence: of ToolBench, StableToolBench and the query files Apache-2.0; nothing of them is part of this package.

    An episode (functions left out):

        user       What is Messi's id at Transfermarkt?
        assistant  <tool_call>{"name": "transfermarkt_search_for_theclique", "arguments": {"name": "messi"}}</tool_call>
        user       <tool_response>{"error": "", "response": {"Players": [{"name": "Lionel Messi", "slug": "28003"}]}}
        assistant  <tool_call>{"name": "Finish", "arguments": {"return_type": "give_answer",
                   "final_answer": "Lionel Messi's id is 28003."}}</tool_call>
        (reward 1, success)
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=DEFAULT_MAX_TURNS,
        deterministic=False,
        domain="tool use",
        source="https://arxiv.org/abs/2403.07714",
        licence="Apache-2.0",
    )
    tool_format: ToolFormat = "hermes"
    host_arguments = frozenset({"url", "cache", "judge"})
    instructions = (
        "A user asks for something. Call functions to find out what the answer needs. They reach real services, which"
        " may fail: then try another argument or another function. End with a call of Finish."
    )

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._server: VirtualServer | None = None
        self._folder: AnswerFolder | None = None

    async def reset(self, task: Task) -> Sequence[Message]:
        await self.close()
        setup = Setup.of(task.arguments, self.tool_format)
        self._folder = AnswerFolder(setup.cache) if setup.cache else None
        self._apis = {api.schema.name: api for api in setup.apis}
        self._schemas = (*(api.schema for api in setup.apis), FINISH)
        self.instructions, self.tools = show_tools(type(self).instructions, self._schemas, setup.tool_format)
        self._calls: list[Called] = []
        self._turns_left = setup.max_turns
        self._server = VirtualServer(setup.url, setup.retries)
        self._setup = setup
        return [user(setup.query)]

    async def step(self, action: Message) -> StepResult:
        setup, server = self._setup, self._server
        if setup is None or server is None:
            raise EnvironmentFailed("ToolBench was stepped without an open episode; reset it first")
        self._turns_left -= 1
        result = await self._carry_out(action, setup, server)
        if not result.terminated and self._turns_left <= 0:
            result = replace(result, truncated=True, success=False)
        if result.terminated or result.truncated:
            self._setup = None
        with_result = sum(called.answer.is_result for called in self._calls)
        return replace(result, info={"calls": len(self._calls), "calls_with_result": with_result})

    async def close(self) -> None:
        self._setup = None
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _carry_out(self, action: Message, setup: Setup, server: VirtualServer) -> StepResult:
        parsed = parse_message(action, setup.tool_format, self._schemas)
        problem = _problem(parsed)
        if problem:
            return _refused(action, problem, setup.tool_format)
        seen, valid = [], True
        for call in parsed.calls:
            try:
                if call.name == FINISH.name:
                    return await self._finished(final_answer(call.arguments), setup)
                seen.append(await self._call(call, setup, server))
            except WrongCall as wrong:
                seen.append(str(wrong))
                valid = False
        return StepResult(result_messages(action, seen, setup.tool_format), 0.0, False, False, valid=valid)

    async def _call(self, call: ToolCall, setup: Setup, server: VirtualServer) -> str:
        """What the policy sees of the API's answer.

        Raises:
            WrongCall: there is no such function, or it doesn't take such arguments.
            ToolFailed: the server gave no answer.
        """
        api = self._apis.get(call.name)
        if api is None:
            known = [schema.name for schema in self._schemas]
            raise WrongCall(f"There is no function {call.name[:80]!r}; {did_you_mean(call.name[:80], known)}")
        api.require_fitting(call.arguments)
        request = _request(api, call.arguments, setup.strip)
        answer = self._folder.get(request) if self._folder else None
        if answer is None:
            asking = server.ask(request)
            answer = await boundary(asking, ToolFailed, f"function {call.name!r}", setup.call_seconds)
            if self._folder:
                self._folder.put(request, answer)
        self._calls.append(Called(call.name, call.arguments, answer))
        return _shortened(answer.to_text(), setup.observation_characters)

    async def _finished(self, answer: str | None, setup: Setup) -> StepResult:
        """The end; without an answer it was given up."""
        if answer is None:
            return StepResult.at_end(0.0, success=False)
        functions = tuple(api.schema for api in setup.apis)
        attempt = Attempt(setup.query, functions, setup.relevant, tuple(self._calls), answer)
        reward = await judged(setup.judge, setup.judge_name, attempt, setup.judge_seconds)
        return StepResult.at_end(reward, success=reward == 1)


def _problem(parsed: Parsed) -> str:
    """Why nothing of a reply is carried out; empty: it is."""
    if parsed.problem:
        return f"{parsed.problem}. Nothing was carried out."
    if not parsed.calls:
        return f"There is no call in this reply; call a function, or end with {FINISH.name}."
    if len(parsed.calls) > MAX_CALLS:
        return f"A reply may have {MAX_CALLS} calls; given: {len(parsed.calls)}. Nothing was carried out."
    return ""


def _refused(action: Message, problem: str, tool_format: ToolFormat) -> StepResult:
    if not action.tool_calls:
        return StepResult.going_on(problem, valid=False)
    answers = result_messages(action, [problem] * len(action.tool_calls), tool_format)
    return StepResult(answers, 0.0, False, False, valid=False)


def _request(api: Api, arguments: Mapping[str, Any], strip: str) -> dict[str, str]:
    return {
        "category": api.category,
        "tool_name": api.tool_name,
        "api_name": api.api_name,
        "tool_input": json.dumps(dict(arguments)),
        "strip": strip,
        "toolbench_key": os.environ.get(KEY_VARIABLE, ""),
    }


def _shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}..."
