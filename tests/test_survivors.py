"""Rows that were left out leave the batch and the queue; a rollout in which nothing moves is given up."""

from __future__ import annotations

from collections import defaultdict

import pytest
from transfer_queue import KVBatchMeta

from agentgym_rl.errors import PolicyFailed
from verl_ext import survivors
from verl_ext.survivors import Survivors, without


@pytest.fixture
def cleared(monkeypatch) -> list[str]:
    """Keys that were cleared from the queue."""
    keys: list[str] = []
    monkeypatch.setattr(survivors.tq, "kv_clear", lambda keys, partition_id, seen=keys: seen.extend(keys))
    return keys


def test_rows_that_were_left_out_leave_batch_and_queue(cleared) -> None:
    batch = KVBatchMeta(keys=["a_0_0", "a_1_0", "b_0_0"], tags=[{"n": 0}, {"n": 1}, {"n": 2}], partition_id="train")
    kept = without(batch, [False, True, False])
    assert kept.keys == ["a_0_0", "b_0_0"]
    assert kept.tags == [{"n": 0}, {"n": 2}]
    assert kept.partition_id == "train"
    assert cleared == ["a_1_0"]


def test_a_batch_without_failures_stays_as_it_is(cleared) -> None:
    batch = KVBatchMeta(keys=["a_0_0"], tags=[{}], partition_id="train")
    assert without(batch, [False]) is batch
    assert cleared == []


class Buffer:
    """A replay buffer that polls: `states` says how many groups have finished at each poll."""

    def __init__(self, states: list[int]):
        self.states = iter(states)
        self.pending_keys, self.failure_keys = defaultdict(set), defaultdict(set)
        self.running_keys, self.finished_keys = defaultdict(set), defaultdict(set)
        self.partitions = defaultdict(dict)
        self.running_keys["train"] = {"g1", "g2"}

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        self.finished_keys["train"] = {f"g{i}" for i in range(next(self.states))}
        return last_debug_time

    def poll(self) -> None:
        self._wait_for_next_poll("train", 0.0)


def polled(monkeypatch, states: list[int], seconds_a_poll: float, stall_seconds: float) -> int:
    """How many polls it takes; the clock moves with each."""
    clock = iter(seconds_a_poll * number for number in range(1000))
    monkeypatch.setattr(survivors.time, "monotonic", lambda: next(clock))
    buffer = Buffer(states)
    Survivors(buffer, 0.2, stall_seconds)
    polls = 0
    for _ in states:
        buffer.poll()
        polls += 1
    return polls


def test_a_rollout_in_which_nothing_moves_is_given_up(monkeypatch) -> None:
    with pytest.raises(PolicyFailed, match="no session finished for 25 s.*2 groups are running"):
        polled(monkeypatch, [0] * 10, seconds_a_poll=10, stall_seconds=25)


def test_a_slow_rollout_that_moves_is_waited_for(monkeypatch) -> None:
    assert polled(monkeypatch, [0, 0, 1, 1, 2, 2, 3, 3], seconds_a_poll=10, stall_seconds=25) == 8
