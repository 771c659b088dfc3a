"""Tasks between the bounds are drawn more often, none is forgotten, and a resumed run draws what it would have drawn.

The data loader is torchdata's own, as verl uses it.
"""

from __future__ import annotations

import io
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchdata.stateful_dataloader import StatefulDataLoader

from agentgym_rl.errors import ConfigurationError
from verl_ext.curriculum import Curriculum, Played, Row, TaskSampler, played_tasks


def sampler_of(tasks: int = 4, curriculum: Curriculum | None = None, seed: int = 0, apart: int = 0) -> TaskSampler:
    rows = [Row(f"t{index}", "maze") for index in range(tasks)]
    return TaskSampler(rows, curriculum or Curriculum(), seed, apart)


def test_weights_by_hand():
    # task      t0         t1          t2       t3 (not played)   bounds 0.25 and 0.75, floor 0.2
    # success   0 of 4     2 of 4      4 of 4   -
    # weight    0.2        1           0.2      1
    sampler = sampler_of(4, Curriculum(low=0.25, high=0.75, floor=0.2))
    sampler.update({"t0": Played(4, 0), "t1": Played(4, 2), "t2": Played(4, 4)})
    assert sampler.weights().tolist() == [0.2, 1.0, 0.2, 1.0]
    shares = {"curriculum/played_share": 0.75, "curriculum/between_bounds_share": 0.25, "curriculum/draws/maze": 1.0}
    assert sampler.metrics() == shares


@pytest.mark.parametrize(("successes", "preferred"), [(0, False), (1, False), (2, True), (3, False), (4, False)])
def test_a_rate_at_a_bound_is_outside(successes, preferred):
    sampler = sampler_of(1, Curriculum(low=0.25, high=0.75))
    sampler.update({"t0": Played(4, successes)})
    assert sampler.preferred().tolist() == [preferred]


def test_older_sessions_are_decayed_by_hand():
    # decay 0.5        sessions            successes        rate
    # first 4, 4       4                   4                1
    # then  4, 0       0.5 * 4 + 4 = 6     0.5 * 4 = 2      1/3
    # then  4, 0       0.5 * 6 + 4 = 7     0.5 * 2 = 1      1/7
    sampler = sampler_of(1, Curriculum(low=0.3, high=0.5, decay=0.5))
    preferred = []
    for successes in (4, 0, 0):
        sampler.update({"t0": Played(4, successes)})
        preferred.append(sampler.preferred().item())
    assert preferred == [False, True, False]


def test_a_task_that_was_not_judged_or_is_of_another_dataset_changes_nothing():
    sampler = sampler_of(2)
    before = sampler.weights()
    sampler.update({"t0": Played(0, 0), "elsewhere": Played(8, 8)})
    assert torch.equal(sampler.weights(), before)


def test_shares_hold_whatever_the_tasks_weigh():
    # maze      t0 weighs 1, t1 mastered: 0.1      share 1
    # shop      t2 mastered: 0.1                   share 3
    rows = [Row("t0", "maze"), Row("t1", "maze"), Row("t2", "shop")]
    sampler = TaskSampler(rows, Curriculum(shares={"shop": 3, "maze": 1}), seed=0, apart=0)
    sampler.update({"t1": Played(8, 8), "t2": Played(8, 8)})
    assert sampler.weights().tolist() == pytest.approx([1 / 1.1, 0.1 / 1.1, 3.0])


def test_tasks_between_the_bounds_are_drawn_as_often_as_they_weigh_and_none_is_forgotten():
    sampler = sampler_of(4, Curriculum(floor=0.25))
    sampler.update({"t0": Played(8, 0), "t1": Played(8, 4), "t2": Played(8, 8), "t3": Played(8, 4)})
    drawn = Counter(sampler.draw() for _ in range(4000))
    # weights 0.25, 1, 0.25, 1 of 2.5; four standard deviations of a share of 0.4 are 0.03
    shares = [drawn[index] / 4000 for index in range(4)]
    assert shares == pytest.approx([0.1, 0.4, 0.1, 0.4], abs=0.032)


@given(st.integers(1, 8), st.integers(0, 10), st.integers(0, 2**32))
def test_no_row_comes_twice_within_the_draws_that_lie_apart(tasks, apart, seed):
    sampler = sampler_of(tasks, seed=seed, apart=apart)
    drawn = [sampler.draw() for _ in range(30)]
    apart = min(apart, tasks - 1)
    assert all(drawn[n] not in drawn[max(0, n - apart) : n] for n in range(30))
    assert set(drawn) <= set(range(tasks))


def test_the_seed_decides_what_is_drawn():
    assert [*sampler_of(50, seed=1)] == [*sampler_of(50, seed=1)]
    assert [*sampler_of(50, seed=1)] != [*sampler_of(50, seed=2)]


def loader_of(sampler: TaskSampler, batch_size: int) -> StatefulDataLoader:
    return StatefulDataLoader(
        list(range(len(sampler))), batch_size=batch_size, num_workers=0, drop_last=True, sampler=sampler
    )


def steps(loader: StatefulDataLoader, sampler: TaskSampler, iterator: object, count: int) -> tuple[object, list]:
    """Draw batches as verl's trainer does, over the ends of epochs, and report that even tasks are always solved."""
    drawn = []
    for _ in range(count):
        try:
            iterator = iter(loader) if iterator is None else iterator
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            batch = next(iterator)
        drawn.append(batch.tolist())
        sampler.update({f"t{index}": Played(4, 4 if index % 2 == 0 else 2) for index in drawn[-1]})
    return iterator, drawn


@pytest.mark.parametrize("batch_size", [1, 4, 5])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 5, 7])
def test_a_resumed_loader_goes_on_as_if_it_had_not_been_stopped(batch_size, before):
    sampler = sampler_of(12, seed=3, apart=batch_size)
    loader = loader_of(sampler, batch_size)
    iterator, _ = steps(loader, sampler, None, before)
    saved = io.BytesIO()
    torch.save(loader.state_dict(), saved)
    _, expected = steps(loader, sampler, iterator, 20)

    resumed = sampler_of(12, seed=99, apart=batch_size)
    loader = loader_of(resumed, batch_size)
    saved.seek(0)
    loader.load_state_dict(torch.load(saved, weights_only=False))
    _, drawn = steps(loader, resumed, None, 20)
    assert drawn == expected
    assert torch.equal(resumed.weights(), sampler.weights())


def test_a_state_does_not_change_with_the_sampler_that_gave_it():
    sampler = sampler_of(6, apart=2)
    state = sampler.state_dict()
    first = [sampler.draw() for _ in range(10)]
    sampler.update({"t0": Played(1, 1)})
    sampler.load_state_dict(state)
    assert [sampler.draw() for _ in range(10)] == first
    assert sampler.metrics()["curriculum/played_share"] == 0


def test_a_state_loads_beside_a_dataset_that_has_changed():
    old = sampler_of(4, apart=3)
    old.update({"t1": Played(8, 8), "t3": Played(8, 8)})
    old.draw()
    rows = [Row("new", "maze"), Row("t3", "maze")]
    sampler = TaskSampler(rows, Curriculum(), seed=0, apart=1)
    sampler.load_state_dict(old.state_dict())
    assert sampler.weights().tolist() == [1.0, 0.1]
    assert sampler.draw() in (0, 1)


def test_a_steps_episodes_are_counted_by_task_and_only_where_they_were_judged():
    episodes = [("a", True), ("a", False), ("b", None), ("a", True), ("b", False), ("c", None)]
    counted = played_tasks([{"task": task, "success": success} for task, success in episodes])
    assert counted == {"a": Played(3, 2), "b": Played(1, 0)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 0.9, "high": 0.1}, "low below high; given: 0.9 and 0.1"),
        ({"low": 0.5, "high": 0.5}, "low below high; given: 0.5 and 0.5"),
        ({"low": -0.1}, "must be success rates"),
        ({"high": 1.1}, "must be success rates"),
        ({"floor": 0}, "floor must be above 0 and at most 1, decay from 0 to 1; given: 0 and 0.5"),
        ({"floor": 1.5}, "floor must be above 0"),
        ({"decay": -1}, "decay from 0 to 1; given: 0.1 and -1"),
        ({"low": math.nan}, "must be success rates"),
        ({"shares": {"maze": 0}}, "curriculum.shares of 'maze' must be above 0; given: 0"),
        ({"shares": {"maze": math.inf}}, "must be above 0; given: inf"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        Curriculum(**settings)


@pytest.mark.parametrize(
    ("rows", "shares", "message"),
    [
        ([], {}, "given: 0 rows with 0 ids"),
        ([Row("a", "maze"), Row("a", "maze")], {}, "given: 2 rows with 1 ids"),
        ([Row("a", "maze")], {"maze": 1, "shop": 1}, "'shop' is in one of them only; known: maze"),
        ([Row("a", "maze"), Row("b", "mace")], {"maze": 1}, "'mace' is in one of them only; did you mean 'maze'?"),
    ],
)
def test_rows_that_can_not_work_are_refused(rows, shares, message):
    with pytest.raises(ConfigurationError, match=message):
        TaskSampler(rows, Curriculum(shares=shares), seed=0, apart=1)
