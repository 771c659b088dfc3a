"""skyrl-gym: any text environment that is registered there, unchanged, with a row of its data set as the task.

Conversation, tools and rewards are the package's own. It says `done` only; here an episode that its limit of turns
ended is truncated, and a retrieval server that fails is a failure, no observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.skyrl_gym_world import expert_reply, limit_ended, make_world, require_search_answered
from agentgym_rl.errors import ConfigurationError, EnvironmentFailed, require_allowed_keys
from agentgym_rl.messages import Message, user
from agentgym_rl.task import Task

_ARGUMENTS = ("env", "prompt", "extras", "config", "success", "max_turns")


class SkyRLGym(Replayed):
    """Query a database, search, use Python, or solve a problem of mathematics or programming.

    Task: `arguments` holds `env` (the environment's id; "module:id" imports the module that registers it), `prompt` (a
        text, or messages: system, then user), `extras` (all else in the row: `reward_spec` with its `ground_truth`,
        `db_id`, ...; `data_preprocess/skyrl_gym.py` takes it from a file) and, if wanted, `config` (its `env_config`),
        `success` (the least last reward that is success, default 1) and `max_turns` (default: the environment's own
        limit, 64 at most; the environment is told).
    Actions: any text; what an environment reads of it is told by the row's prompt:
        text2sql          <sql>...</sql> is run, <solution>...</solution> ends; <think>...</think> must be there
        search            <search>...</search> is asked, <answer>...</answer> ends
        searchcode        <tool><search>...</search></tool>, <tool><python>...</python></tool>; then as gsm8k, between
                          <solution> and </solution>
        gsm8k             #### 1; gsm8k_multi_turn the same, tried again until it is right
        aime              Answer: 1
        lcb               a block of code
    Observations: the environment's messages; a system message of the prompt is the system prompt.
    Reward: the environment's. text2sql: 1 for the rows of the true query, 0 for others, -1 for a wrong format. aime:
        1 or -1. gsm8k_multi_turn: 1, or 0.2 / max_turns for each other number. The others: 1 or 0.
    End: terminated by an answer; truncated by `max_turns`, unless the last reply gave an answer.
    Splits: the data set's own; `data_preprocess/skyrl_gym.py` deals the rows of one file.
    Expert: the ground truth, of all that are named above but lcb, whose rows hold tests. An environment of one's own
        without expert: subclass with facts whose `expert_success` is None.
    Needs: text2sql the SQLite files, at `config.db_path`/spider/database/ID/ID.sqlite (`extras.data` spider; bird and
        synsql likewise); search a retrieval server, POST `config.search_url` {query, topk, return_scores} -> {result:
        [[{document: {contents}}]]}; searchcode one at 127.0.0.1:8000. A server that can't be reached is `tool_crashed`.
    Safety: searchcode runs the policy's Python as it is, with this process's rights, and lcb in a guarded fork; keep
        both to machines that may be lost. A query of text2sql is rolled back, and is ended after 5 seconds (30 as the
        solution, which is the deadline of a step); ATTACH can make an empty file.
    Differs from SkyRL: its trainer stops a reply at a closing tag, here what follows is ignored or, in text2sql, breaks
        the format; `postprocessed_action` is not followed, since what was sampled is what is trained.
    Process: a worker of its own, as rows of SQL come in the order of a hash. It has 120 MB; a reset of text2sql takes
        1 ms, a small query 2 ms.
    Source: Griggs et al., SkyRL, 2025, https://github.com/NovaSky-AI/SkyRL; package `skyrl-gym`.
    Licence: MIT (search, gsm8k and aime score with Apache-2.0 code).

    An episode (text2sql; a table p of 50 products whose price is 1.5 times their id):
        Which products are dearer than 72? / table p(id, name, price)
        > <think>Let me look.</think><sql>select * from p limit 1</sql>
        <observation> 0  1   2 / 0 n0 0.0 / <reminder>You have 4 turns left to complete the task.</reminder>
            </observation>
        > <think>By price.</think><solution>select name from p where price > 72</solution>
        (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(-1.0, 1.0),
        max_turns=64,
        expert_success=1.0,
        can_snapshot=True,
        any_text=True,
        domain="any SkyRL-Gym",
        source="https://github.com/NovaSky-AI/SkyRL",
        licence="MIT",
    )
    own_process = True
    host_arguments = frozenset({"env", "extras", "config"})

    _world: Any = None

    def begin(self, task: Task) -> str:
        self.close()
        arguments = task.arguments
        require_allowed_keys(arguments, _ARGUMENTS, "a skyrl-gym task")
        self._success = _number(arguments.get("success", 1.0))
        self._env, self._extras = _text(arguments, "env"), dict(_object(arguments, "extras"))
        if "max_turns" in arguments:
            self._extras["max_turns"] = arguments["max_turns"]
        prompt = _messages_of_prompt(arguments.get("prompt"))
        self._world = make_world(self._env, _object(arguments, "config"), self._extras)
        conversation, _ = self._world.init([message.to_chat() for message in prompt])
        self.instructions, text = _opening([Message.from_chat(message) for message in conversation])
        return text

    def act(self, text: str) -> StepResult:
        output = self._world.step(text)
        seen = tuple(map(_observation, output["observations"]))
        reward = float(output["reward"])
        if not output["done"]:
            return StepResult(seen or (user("(nothing)"),), reward, False, False)
        success = reward >= self._success
        terminated = success or not limit_ended(self._world, text)
        return StepResult(seen, reward, terminated, not terminated, success)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        return expert_reply(self._env, self._extras)

    def close(self) -> None:
        self.turns_left = None
        world, self._world = self._world, None
        if world is not None:
            world.close()


def _text(arguments: Mapping[str, Any], name: str) -> str:
    given = arguments.get(name)
    if not isinstance(given, str):
        raise ConfigurationError(f"a skyrl-gym task needs the argument {name!r}, such as 'text2sql'; given: {given!r}")
    return given


def _object(arguments: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = arguments.get(name, {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"the argument {name!r} must be an object; given: {given!r}")
    return given


def _number(given: Any) -> float:
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise ConfigurationError(f"the argument 'success' must be a number; given: {given!r}")
    return float(given)


def _messages_of_prompt(given: Any) -> Sequence[Message]:
    if isinstance(given, str):
        return [user(given)]
    if not isinstance(given, Sequence) or not all(isinstance(message, Mapping) for message in given):
        raise ConfigurationError(f"the argument 'prompt' must be a text or a list of messages; given: {given!r:.200}")
    return [Message.from_chat(message) for message in given]


def _opening(conversation: Sequence[Message]) -> tuple[str, str]:
    """System prompt and first observation."""
    roles = [message.role for message in conversation]
    head = roles.count("system")
    if head == len(roles) or roles != ["system"] * head + ["user"] * (len(roles) - head):
        raise ConfigurationError(
            f"a skyrl-gym task's prompt is system messages, then user messages, one at least; given: {', '.join(roles)}"
        )
    texts = [message.content for message in conversation]
    return "\n\n".join(texts[:head]), "\n\n".join(texts[head:])


def _observation(given: Mapping[str, Any]) -> Message:
    message = Message.from_chat(given)
    if message.role not in ("user", "tool"):
        raise EnvironmentFailed(f"an observation is of the user or a tool; skyrl-gym gave one of the {message.role}")
    require_search_answered(message.content)
    return message
