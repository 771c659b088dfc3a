"""Groups without variance are replaced, sessions are what is compared, and every batch comes to an end.

verl's own replay buffers run here, on a queue that is a dictionary.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from agentgym_rl.errors import ConfigurationError
from verl_ext.dynamic_sampling import DynamicSampling, Group, SignalFilter, groups_of
from verl_ext.survivors import EXCLUDED, Survivors

LEFT_OUT = None
"""In a group's rewards: a session that was left out."""


class Queue:
    """What the replay buffer uses of TransferQueue, in memory."""

    def __init__(self) -> None:
        self.partition = "train"
        self.tags: dict[str, dict] = {}
        self.rows: dict[str, tuple[torch.Tensor, dict]] = {}

    def kv_list(self) -> dict:
        return {self.partition: {key: dict(tag) for key, tag in self.tags.items()}}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[key]
            self.rows.pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        scores = torch.nested.as_nested_tensor([self.rows[key][0] for key in keys], layout=torch.jagged)
        fields = NonTensorStack(*[NonTensorData(self.rows[key][1]) for key in keys])
        every = TensorDict({"rm_scores": scores, "extra_fields": fields}, batch_size=len(keys))
        return every.select(*select_fields)

    def add_group(self, uid: str, sessions: list[list[float] | None]) -> None:
        """A finished group: for each session the rewards of its segments."""
        self.tags[uid] = {"is_prompt": True, "status": "finished", "global_steps": 1}
        for number, segments in enumerate(sessions):
            for segment, reward in enumerate([0.0] if segments is LEFT_OUT else segments):
                key = f"{uid}_{number}_{segment}"
                self.tags[key] = {}
                out = {EXCLUDED: True, "reward_extra_info": {}}
                last = segments is not LEFT_OUT and segment == len(segments) - 1
                episode = {"task": uid, "session": number} if last else None
                facts = {"episode": episode, "reward_extra_info": {"acc": reward}}
                self.rows[key] = (torch.tensor([0.0] * segment + [reward]), out if segments is LEFT_OUT else facts)


@pytest.fixture
def queue(monkeypatch) -> Queue:
    queue = Queue()
    for name in ("kv_list", "kv_clear", "kv_batch_get"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    return queue


class Rollout:
    """A rollout that finishes at once: the groups of a list in turn, then a last one for ever."""

    def __init__(self, queue: Queue, groups: list[list], then: list):
        self.queue = queue
        self.groups = itertools.chain(groups, itertools.repeat(then))
        self.submitted = 0

    def submit(self, prompts: int) -> int:
        for _ in range(prompts):
            if self.submitted == 500:
                raise AssertionError("this never ends")
            self.queue.add_group(f"g{self.submitted}", next(self.groups))
            self.submitted += 1
        return prompts


def buffer_of(rollout: Rollout, batch_size: int, kind: type = ReplayBuffer, metric: str = "reward") -> ReplayBuffer:
    mode = "sync" if kind is ReplayBuffer else "colocate_async"
    return kind(
        trainer_mode=mode,
        trainer_config=OmegaConf.create(),
        max_off_policy_threshold=None,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create(),
        poll_interval=0.0,
        refill_fn=rollout.submit,
        filter_groups_metric=metric,
        train_batch_size=batch_size,
        gen_batch_size=1,
    )


def sampled(buffer: ReplayBuffer, batch_size: int) -> tuple[list[str], dict]:
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=batch_size)
    return sorted({key.rsplit("_", 2)[0] for key in batch.keys}), metrics


FLAT = [[1.0], [1.0], [1.0]]
MIXED = [[1.0], [0.0], [1.0]]
kinds = pytest.mark.parametrize("kind", [ReplayBuffer, ReplayBufferAsync])


@kinds
def test_verl_alone_never_fills_a_batch_with_tasks_that_are_all_alike(queue, kind):
    rollout = Rollout(queue, [], then=FLAT)
    rollout.submit(2)
    with pytest.raises(AssertionError, match="never ends"):
        buffer_of(rollout, 2, kind).sample(global_steps=1, partition_id="train", batch_size=2)


@kinds
@pytest.mark.parametrize("max_refills", [1, 7])
def test_tasks_that_are_all_alike_end_at_the_bound_and_are_counted(queue, kind, max_refills):
    rollout = Rollout(queue, [], then=FLAT)
    rollout.submit(2)
    buffer = buffer_of(rollout, 2, kind)
    SignalFilter(buffer, max_refills)
    groups, metrics = sampled(buffer, 2)
    assert len(groups) == 2
    assert metrics["training/filter_groups/evicted_samples"] == max_refills
    assert metrics["dynamic_sampling/passed_total"] == 2


@kinds
def test_groups_without_variance_are_replaced_by_groups_with(queue, kind):
    rollout = Rollout(queue, [FLAT, MIXED, [[0.0], [0.0]], MIXED], then=MIXED)
    rollout.submit(2)
    buffer = buffer_of(rollout, 2, kind)
    SignalFilter(buffer, 10)
    groups, metrics = sampled(buffer, 2)
    assert len(groups) == 2
    assert not {"g0", "g2"} & set(groups)
    assert metrics["dynamic_sampling/passed_total"] == 0


@kinds
def test_the_bound_starts_anew_with_every_batch(queue, kind):
    rollout = Rollout(queue, [], then=FLAT)
    buffer = buffer_of(rollout, 2, kind)
    SignalFilter(buffer, 3)
    for _ in range(3):
        rollout.submit(2)
        assert sampled(buffer, 2)[1]["training/filter_groups/evicted_samples"] == 3


@kinds
def test_what_passes_comes_after_groups_with_variance(queue, kind):
    # One refill allowed: of three finished groups without variance two at least stay, and only one of them is needed.
    rollout = Rollout(queue, [FLAT, FLAT, FLAT, MIXED], then=FLAT)
    rollout.submit(4)
    buffer = buffer_of(rollout, 2, kind)
    SignalFilter(buffer, 1)
    groups, metrics = sampled(buffer, 2)
    assert "g3" in groups
    assert metrics["dynamic_sampling/passed_total"] == 1


@kinds
def test_a_session_that_was_left_out_is_no_variance(queue, kind):
    # verl sees 1, 1, 0 and would train on it
    rollout = Rollout(queue, [[[1.0], [1.0], LEFT_OUT], MIXED], then=MIXED)
    rollout.submit(1)
    buffer = buffer_of(rollout, 1, kind)
    SignalFilter(buffer, 10)
    groups, _ = sampled(buffer, 1)
    assert "g0" not in groups


def test_segments_of_a_session_are_summed_before_they_are_compared(queue):
    # rows      0.5, 0.5 | 1      two sessions of 1: flat, although the rows differ
    #           0.5, 0.5 | 0.5    sessions of 1 and 0.5, although the rows agree
    rollout = Rollout(queue, [[[0.5, 0.5], [1.0]], [[0.5, 0.5], [0.5]]], then=MIXED)
    rollout.submit(2)
    buffer = buffer_of(rollout, 1)
    SignalFilter(buffer, 10)
    assert sampled(buffer, 1)[0] == ["g1"]


def test_a_group_in_which_fewer_than_two_sessions_are_left_is_replaced(queue):
    rollout = Rollout(queue, [[[1.0], LEFT_OUT], [LEFT_OUT, LEFT_OUT], []], then=MIXED)
    rollout.submit(3)
    buffer = buffer_of(rollout, 3)
    SignalFilter(buffer, 10)
    groups, metrics = sampled(buffer, 3)
    assert not {"g0", "g1", "g2"} & set(groups)
    assert metrics["training/filter_groups/evicted_samples"] == 3


def test_another_metric_than_the_reward_is_compared(queue):
    rollout = Rollout(queue, [[[0.2, 1.0], [1.0]], MIXED], then=MIXED)
    rollout.submit(2)
    buffer = buffer_of(rollout, 1, metric="acc")
    SignalFilter(buffer, 10)
    assert sampled(buffer, 1)[0] == ["g1"]  # acc of both of g0's sessions is 1 at their end


def test_a_metric_that_no_session_has_is_named_with_those_it_has(queue):
    rollout = Rollout(queue, [MIXED], then=MIXED)
    rollout.submit(1)
    buffer = buffer_of(rollout, 1, metric="accuracy")
    SignalFilter(buffer, 10)
    with pytest.raises(ConfigurationError, match="metric is 'accuracy'; sessions have: acc, reward"):
        sampled(buffer, 1)


def test_episodes_that_were_replaced_are_handed_out_once(queue):
    rollout = Rollout(queue, [[[1.0], [1.0], LEFT_OUT], [[0.5, 0.5], [1.0]]], then=MIXED)
    rollout.submit(2)
    buffer = buffer_of(rollout, 2)
    signal = SignalFilter(buffer, 10)
    sampled(buffer, 2)
    replaced = Counter((episode["task"], episode["session"]) for episode in signal.take_replaced_episodes())
    assert replaced == {("g0", 0): 1, ("g0", 1): 1, ("g1", 0): 1, ("g1", 1): 1}
    assert signal.take_replaced_episodes() == []


def test_validation_takes_every_group_as_it_is(queue):
    rollout = Rollout(queue, [FLAT, FLAT], then=MIXED)
    rollout.submit(2)
    queue.partition = "val"
    buffer = buffer_of(rollout, 2)
    SignalFilter(buffer, 10)
    batch, _ = buffer.sample(global_steps=1, partition_id="val", batch_size=2)
    assert {key.rsplit("_", 2)[0] for key in batch.keys} == {"g0", "g1"}


def test_it_works_below_the_wrapper_that_takes_failed_sessions_out(queue):
    rollout = Rollout(queue, [FLAT, [[1.0], [0.0], LEFT_OUT]], then=MIXED)
    rollout.submit(2)
    buffer = buffer_of(rollout, 1)
    SignalFilter(buffer, 10)
    batch, metrics = Survivors(buffer, 0.0, 10.0).sample(global_steps=1, partition_id="train", batch_size=1)
    assert batch.keys == ["g1_0_0", "g1_1_0"]
    assert metrics["dynamic_sampling/passed_total"] == 0


def test_groups_by_hand_in_any_order_of_rows():
    keys = ["a_0_1", "b_1_0", "a_0_0", "a_10_0", "b_0_0", "a_2_0"]
    rewards = [0.25, 0.0, 0.5, 2.0, 0.0, 0.0]
    fields = [{"episode": None if key == "a_0_0" else {"n": key}} for key in keys]
    fields[-1] = {EXCLUDED: True}
    groups = groups_of(keys, rewards, fields, "reward")
    assert {group: sorted(found.values) for group, found in groups.items()} == {"a": [0.75, 2.0], "b": [0.0, 0.0]}
    assert {episode["n"] for episode in groups["a"].episodes} == {"a_0_1", "a_10_0"}
    assert [groups["a"].flat, groups["b"].flat] == [False, True]


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        ([], True),
        ([1.0], True),
        ([0.3, 0.1 + 0.2], True),  # the same but for rounding
        ([0.0, 1e-3], False),
        ([1000.0, 1000.0001], True),
        ([-1.0, 1.0], False),
    ],
)
def test_a_group_is_flat_if_its_values_agree_but_for_rounding(values, flat):
    assert Group(values, []).flat is flat


@pytest.mark.parametrize("max_refills", [0, -1, 2.0, None])
def test_a_bound_that_is_none_is_refused(max_refills):
    with pytest.raises(ConfigurationError, match=f"max_refills must be a whole number above 0; given: {max_refills}"):
        DynamicSampling(max_refills)
