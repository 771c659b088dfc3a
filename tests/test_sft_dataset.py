"""SftDataset: verl's SFT trainer sees the tokens that a rollout would have produced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from omegaconf import OmegaConf
from transformers import AutoTokenizer

from agentgym_rl.data.sft_parquet import write_sft
from agentgym_rl.data.trajectory_json import from_dict, to_line
from agentgym_rl.environment import Environment, Facts, StepResult
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import Message, system, user
from agentgym_rl.policy import SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Trajectory
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.agent_loop.token_policy import TokenBudget, TokenPolicy
from verl_ext.default_policy import make_default_policy
from verl_ext.sft_dataset import SftDataset

TALK = [
    {"role": "system", "content": "rules"},
    {"role": "user", "content": "a wall"},
    {"role": "assistant", "content": "left"},
    {"role": "user", "content": "a door"},
    {"role": "assistant", "content": "open"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "tiny"
    return AutoTokenizer.from_pretrained(make_default_policy(folder, ["a wall left of a door"], hidden_size=8))


def written(path: Path, *rows: Any, column: str = "messages") -> str:
    pyarrow.parquet.write_table(pyarrow.table({column: list(rows)}), path)
    return str(path)


def with_flags(*flags: bool | None) -> list[dict[str, Any]]:
    return [{**message, "loss": flag} for message, flag in zip(TALK, flags, strict=True)]


def dataset(files: str | list[str], tokenizer, max_samples: int = -1, **config: Any) -> SftDataset:
    """Made the way verl's `create_sft_dataset` makes it."""
    data = OmegaConf.create({"pad_mode": "no_padding", "truncation": "error", "max_length": 1024, **config})
    return SftDataset(parquet_files=files, tokenizer=tokenizer, config=data, processor=None, max_samples=max_samples)


def trained_text(item: dict[str, torch.Tensor], tokenizer) -> str:
    return tokenizer.decode(item["input_ids"][item["loss_mask"] == 1])


def test_an_item_holds_the_ids_of_the_rollout_and_a_mask_over_the_replies(tmp_path, tokenizer):
    item = dataset(written(tmp_path / "a.parquet", TALK), tokenizer)[0]
    chat = ChatTokens(tokenizer)
    left, opened = chat.encode_reply("left"), chat.encode_reply("open")
    head = chat.opening([system("rules"), user("a wall")])
    between = chat.continuation([user("a door")], left)
    assert item["input_ids"].tolist() == head + left + between + opened
    assert item["loss_mask"].tolist() == ([0] * len(head) + [1] * len(left) + [0] * len(between) + [1] * len(opened))
    assert item["position_ids"].tolist() == list(range(len(item["input_ids"])))


def test_an_item_is_what_verls_own_dataset_gives_where_that_one_is_right(tmp_path, tokenizer):
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    file = written(tmp_path / "a.parquet", TALK)
    ours = dataset(file, tokenizer)[0]
    config = OmegaConf.create({"pad_mode": "no_padding", "max_length": 1024})
    theirs = MultiTurnSFTDataset(parquet_files=[file], tokenizer=tokenizer, config=config)[0]
    length = len(ours["input_ids"])
    assert set(ours) == set(theirs)
    assert {key: value.dtype for key, value in ours.items()} == {key: value.dtype for key, value in theirs.items()}
    assert torch.equal(ours["input_ids"], theirs["input_ids"][:length])
    # verl trains the line break behind end-of-turn as well, which no rollout ever samples.
    assert tokenizer.decode(theirs["input_ids"][length:]) == "\n"
    assert trained_text(theirs, tokenizer) == "left<|im_end|>\nopen<|im_end|>\n"
    assert trained_text(ours, tokenizer) == "left<|im_end|>open<|im_end|>"


@pytest.mark.parametrize(
    ("flags", "trained"),
    [
        ((False, False, False, False, True), "open<|im_end|>"),
        ((None, None, True, None, False), "left<|im_end|>"),
        ((None, None, None, None, None), "left<|im_end|>open<|im_end|>"),
        ((True, True, True, True, True), "left<|im_end|>open<|im_end|>"),
    ],
)
def test_a_flag_per_message_chooses_the_trained_replies(tmp_path, tokenizer, flags, trained):
    item = dataset(written(tmp_path / "a.parquet", with_flags(*flags)), tokenizer)[0]
    assert trained_text(item, tokenizer) == trained


def test_rows_of_several_files_keep_their_order_and_max_samples_takes_the_first(tmp_path, tokenizer):
    talks = [[*TALK[:4], {"role": "assistant", "content": word}] for word in ("a", "b", "c")]
    files = [written(tmp_path / "1.parquet", *talks[:2]), written(tmp_path / "2.parquet", talks[2])]
    last_words = [trained_text(item, tokenizer)[-len("a<|im_end|>") :] for item in dataset(files, tokenizer)]
    assert last_words == ["a<|im_end|>", "b<|im_end|>", "c<|im_end|>"]
    assert len(dataset(files, tokenizer, max_samples=2)) == 2


def test_the_template_gets_the_arguments_that_a_rollout_would_give_it(tmp_path, tokenizer):
    import copy

    shouting = copy.deepcopy(tokenizer)
    shouting.chat_template = tokenizer.chat_template.replace("message.content", "message.content ~ mark")
    item = dataset(written(tmp_path / "a.parquet", TALK), shouting, apply_chat_template_kwargs={"mark": "!"})[0]
    assert "a wall!<|im_end|>" in tokenizer.decode(item["input_ids"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([TALK[0]], "needs an assistant message"),
        (None, "a conversation is a list of messages; given: None"),
        ([{"role": "robot", "content": "hi"}], "role was 'robot'"),
        (with_flags(False, False, False, False, False), "no reply is to be trained"),
    ],
)
def test_a_row_that_is_no_conversation_is_named(tmp_path, tokenizer, bad, message):
    file = written(tmp_path / "a.parquet", with_flags(None, None, None, None, None), bad)
    with pytest.raises(DataError) as error:
        dataset(file, tokenizer)
    assert str(error.value).startswith(f"row 1 of {file}: ")
    assert message in str(error.value)


def test_a_row_that_is_too_long_is_named_with_both_lengths(tmp_path, tokenizer):
    file = written(tmp_path / "a.parquet", TALK)
    length = len(dataset(file, tokenizer)[0]["input_ids"])
    assert len(dataset(file, tokenizer, max_length=length)) == 1
    with pytest.raises(DataError, match=rf"row 0 of .*: the conversation has {length} tokens; .* allows {length - 1}"):
        dataset(file, tokenizer, max_length=length - 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pad_mode": "right"}, "data.pad_mode must be 'no_padding' for this dataset; given: 'right'"),
        ({"truncation": "left"}, "data.truncation must be 'error' for this dataset; given: 'left'"),
    ],
)
def test_padding_and_truncation_are_refused(tmp_path, tokenizer, config, message):
    with pytest.raises(ConfigurationError) as error:
        dataset(written(tmp_path / "a.parquet", TALK), tokenizer, **config)
    assert str(error.value) == message


def test_a_multimodal_processor_is_refused(tmp_path, tokenizer):
    with pytest.raises(ConfigurationError, match="for text; the model brings a object"):
        SftDataset(written(tmp_path / "a.parquet", TALK), tokenizer, OmegaConf.create({}), processor=object())


def test_a_file_that_is_missing_or_of_another_kind_is_named(tmp_path, tokenizer):
    with pytest.raises(DataError, match=r"there is no file .*gone\.parquet"):
        dataset(str(tmp_path / "gone.parquet"), tokenizer)
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"text\.parquet is no parquet file"):
        dataset(str(tmp_path / "text.parquet"), tokenizer)
    with pytest.raises(DataError, match="has no column 'messages'; it has: chats"):
        dataset(written(tmp_path / "b.parquet", TALK, column="chats"), tokenizer)


# Replies that were sampled token by token


class Saying:
    """A policy server that answers with the given ids, in order."""

    def __init__(self, replies: Sequence[Sequence[int]]):
        self._replies = iter(replies)

    async def __call__(self, ids: list[int], most: int) -> SampledTokens:
        reply = tuple(next(self._replies))
        return SampledTokens(reply, tuple(-0.5 for _ in reply))


def spelled(tokenizer, text: str) -> list[int]:
    """The ids of its characters one by one: another way to say the same text."""
    return [id for letter in text for id in tokenizer.encode(letter, add_special_tokens=False)]


class Echo(Environment):
    """Any two replies end it; the second observation never comes."""

    facts = Facts(reward_range=(0.0, 1.0), max_turns=9)
    instructions = "rules"

    async def reset(self, task: Task) -> Sequence[Message]:
        return [user("a wall")]

    async def step(self, action: Message) -> StepResult:
        self.steps = getattr(self, "steps", 0) + 1
        return StepResult.going_on("a door") if self.steps == 1 else StepResult.at_end(1.0, True, "won")


def played(tokenizer, *replies: Sequence[int]) -> tuple[TokenPolicy, Trajectory]:
    policy = TokenPolicy(Saying(replies), ChatTokens(tokenizer), TokenBudget(500, 500, 100))
    return policy, asyncio.run(play(policy, Echo(), Task("t", "echo")))


def test_an_item_holds_the_ids_that_were_sampled_where_their_text_has_others(tmp_path, tokenizer):
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    left, door = spelled(tokenizer, "left"), spelled(tokenizer, "wall")
    assert tokenizer.encode(tokenizer.decode(left), add_special_tokens=False) != left
    # the first reply ends by itself, the second was cut off
    policy, trajectory = played(tokenizer, [*left, end], door)
    write_sft([from_dict(json.loads(to_line(trajectory)))], tmp_path / "sft.parquet")
    item = dataset(str(tmp_path / "sft.parquet"), tokenizer)[0]
    (segment,) = policy.segments
    assert item["input_ids"].tolist() == segment.prompt_ids + segment.response_ids
    assert trained_text(item, tokenizer) == "left<|im_end|>"
    whole_policy, whole = played(tokenizer, [*left, end], [*door, end])
    write_sft([whole], tmp_path / "whole.parquet")
    item = dataset(str(tmp_path / "whole.parquet"), tokenizer)[0]
    (segment,) = whole_policy.segments
    assert item["loss_mask"].tolist() == [0] * len(segment.prompt_ids) + segment.mask


def test_what_a_checkpoint_samples_is_what_its_fine_tuning_sees(tmp_path, tokenizer):
    from verl_ext.rollout.checkpoint_policy import checkpoint_policies

    async def play_with(policies: list[TokenPolicy]) -> list[Trajectory]:
        tasks = [Task(f"t{number}", "echo") for number in range(len(policies))]
        return await asyncio.gather(*(play(p, Echo(), t) for p, t in zip(policies, tasks, strict=True)))

    # a policy with random weights: nearly nothing it says has the ids that the tokenizer would give its text
    with checkpoint_policies(tokenizer.name_or_path, temperature=1.0, max_tokens=8, seed=0) as make_policy:
        policies = [make_policy(Echo(), Task("t", "echo"), episode) for episode in range(4)]
        trajectories = asyncio.run(play_with(policies))
    read = [from_dict(json.loads(to_line(trajectory))) for trajectory in trajectories]
    write_sft([ended(trajectory) for trajectory in read], tmp_path / "sft.parquet")
    seen = [item["input_ids"].tolist() for item in dataset(str(tmp_path / "sft.parquet"), tokenizer)]
    assert seen == [policy.segments[0].prompt_ids + policy.segments[0].response_ids for policy in policies]
    assert seen != [ChatTokens(tokenizer).render(trajectory.messages).ids for trajectory in trajectories]


def ended(trajectory: Trajectory) -> Trajectory:
    """As if no reply had been cut off, so that all of them are trained."""
    turns = (replace(turn, reply=replace(turn.reply, complete=True)) for turn in trajectory.turns)
    return replace(trajectory, turns=tuple(turns))


def test_a_reply_without_ids_is_encoded_beside_one_that_has_them(tmp_path, tokenizer):
    left = [*spelled(tokenizer, "left"), tokenizer.convert_tokens_to_ids("<|im_end|>")]
    row = [{**message, "token_ids": left if message["content"] == "left" else None} for message in TALK]
    chat = ChatTokens(tokenizer)
    head, between = chat.opening([system("rules"), user("a wall")]), chat.continuation([user("a door")], left)
    item = dataset(written(tmp_path / "a.parquet", row), tokenizer)[0]
    assert item["input_ids"].tolist() == head + left + between + chat.encode_reply("open")


def test_the_ids_of_another_tokenizer_are_refused_with_the_row_that_has_them(tmp_path, tokenizer):
    row = [{**message, "token_ids": [70, 71] if message["content"] == "open" else None} for message in TALK]
    text = tokenizer.decode([70, 71])
    file = written(tmp_path / "a.parquet", [{**message, "token_ids": None} for message in TALK], row)
    with pytest.raises(DataError) as error:
        dataset(file, tokenizer)
    assert str(error.value) == (
        f"row 1 of {file}: a reply's token_ids are those of another tokenizer: here they read {text!r}, and its "
        "content is 'open'"
    )
