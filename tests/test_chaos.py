"""Chaos: each fault ends as what it should, what happens can be repeated, and no episode is lost or emitted twice."""

import asyncio
import io
import math
import random
from errno import ECONNRESET

import pytest
from doubles import Guess, Raises, task_for
from doubles_chaos import NoSnapshots, Walk, walk
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentgym_rl.data.trajectory_json import read_trajectories, to_line
from agentgym_rl.environments import registry
from agentgym_rl.environments.chaos import HUGE_CHARACTERS, Chaos, Fault, Faults, Injected, chaotic, drawn, garbage
from agentgym_rl.environments.process import ProcessEnvironment
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import BudgetExhausted, ConfigurationError
from agentgym_rl.evaluation.chaos import SURVIVED, Books, Session, ended_as, play_in_chaos
from agentgym_rl.messages import assistant
from agentgym_rl.policy import RandomPolicy, Reply, ScriptedPolicy
from agentgym_rl.trajectory import StopReason
from agentgym_rl.viewer.chaos_table import chaos_table, chaos_total
from benchmarks.rollout.virtual_clock import run

SOON = Limits(reset_seconds=5, step_seconds=5)
LINES = ["left"] * 6


@pytest.fixture(autouse=True)
def nothing_stays_open():
    Walk.open_now = 0
    yield
    assert Walk.open_now == 0


async def chaotic_walk(faults, nonce=0, seed=0, policy=None, limits=SOON):
    """One episode of six turns, and what was injected."""
    async with registry.opened("Walk") as environment:
        chaos = Chaos(environment, faults, f"walk-{seed}", nonce)
        trajectory = await play(policy or ScriptedPolicy(LINES), chaos, walk(seed), limits)
    return trajectory, chaos.injected


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crash": 1.5}, "the rate of crash must be from 0 to 1; given: 1.5"),
        ({"hang": -0.1}, "the rate of hang must be from 0 to 1; given: -0.1"),
        ({"slow": math.nan}, "the rate of slow must be from 0 to 1; given: nan"),
        ({"crash": 0.6, "hang": 0.5}, "the rates of all faults must add up to 1 at most; given: crash 0.6 + hang 0.5"),
        ({"crsh": 0.1}, "chaos has no 'crsh'; did you mean 'crash'?"),
        ({"error": "often"}, "error of chaos must be a number; given: 'often'"),
        ({"error": True}, "error of chaos must be a number; given: True"),
        ({"seed": 0.5}, "the seed of chaos must be a whole number; given: 0.5"),
        ({"slow_median_seconds": 0}, "slow_median_seconds must be above 0 and slow_sigma at least 0; given: 0 and 1.0"),
        ({"slow_sigma": -1}, "slow_median_seconds must be above 0 and slow_sigma at least 0; given: 1.0 and -1"),
    ],
)
def test_rates_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigurationError) as caught:
        Faults.of(settings)
    assert str(caught.value) == message


def test_rates_are_read_from_a_line():
    assert Faults.parse("crash=0.05, hang=0.02,slow_sigma=2", seed=7) == Faults(0.05, hang=0.02, slow_sigma=2.0, seed=7)
    assert Faults.parse("") == Faults()
    for text in ("crash", "crash=", "crash=often"):
        with pytest.raises(ConfigurationError, match=f"rates are written NAME=NUMBER,...; given: '{text}'"):
            Faults.parse(text)
    with pytest.raises(ConfigurationError, match="chaos has no 'nan'"):
        Faults.parse("nan=0.1")


def test_rates_may_add_up_to_exactly_1():
    assert sum(Faults(*[1 / 7] * 7).rates.values()) == pytest.approx(1)
    Faults(*[0.1, 0.2, 0.7, 0, 0, 0, 0])


# Which fault befalls which call


def test_faults_come_at_their_rates():
    # of 10000 calls 500, 2000 and 7500, standard deviations 22, 40 and 43
    faults = Faults(crash=0.05, slow=0.2)
    kinds = [drawn(faults, "t", session, call).fault for session in range(100) for call in range(100)]
    assert 400 < kinds.count(Fault.CRASH) < 600
    assert 1840 < kinds.count(Fault.SLOW) < 2160
    assert kinds.count(None) + kinds.count(Fault.CRASH) + kinds.count(Fault.SLOW) == 10000


def test_seed_task_and_session_each_change_what_happens():
    def happening(seed=0, task="t", nonce=0):
        return [drawn(Faults(crash=0.5, seed=seed), task, nonce, call).fault for call in range(64)]

    happenings = [happening(), happening(seed=1), happening(task="u"), happening(nonce=1), happening(nonce="a")]
    assert all(one != other for i, one in enumerate(happenings) for other in happenings[:i])
    assert happening() == happenings[0]


@given(st.integers(0, 99), st.integers(0, 9))
def test_a_session_can_be_repeated(seed, nonce):
    faults = Faults(*[0.1] * 7, slow_sigma=0.5, seed=seed)
    (one, injected), (other, injected_again) = (run(chaotic_walk(faults, nonce)) for _ in range(2))
    assert injected == injected_again
    assert (one.messages, one.stop, one.fingerprint) == (other.messages, other.stop, other.fingerprint)
    assert (one.failure and one.failure.message) == (other.failure and other.failure.message)


def test_a_call_has_the_same_fault_in_store_whatever_befell_those_before():
    # calls 0 and 4 are resets; calls 1, 2, 3 and 5, 6, 7 are the steps of turns 0, 1, 2
    async def twice():
        async with registry.opened("Walk") as environment:
            chaos = Chaos(environment, faults, "walk-0", nonce)
            for _ in range(2):
                await chaos.reset(walk())
                for _ in range(3):
                    await chaos.step(assistant("left"))
            return chaos.injected

    faults, nonce = Faults(garbage=0.8), 0
    store = [drawn(faults, "walk-0", nonce, call).fault for call in range(8)]
    expected = [
        Injected(Fault.GARBAGE, call, call % 4 - 1) for call in range(8) if store[call] is Fault.GARBAGE and call % 4
    ]
    assert {injected.call // 4 for injected in expected} == {0, 1}
    assert run(twice()) == expected


# What each fault does


@pytest.mark.parametrize(
    ("fault", "turn", "cause", "message"),
    [
        ("crash", None, "environment_crashed", "injected crash in reset"),
        ("error", None, "environment_raised", "reset of environment 'Walk' raised RuntimeError: injected error"),
        ("hang", None, "environment_timed_out", "reset of environment 'Walk' gave no answer within 5 s"),
        (
            "connection_reset",
            None,
            "environment_raised",
            f"reset of environment 'Walk' raised ConnectionResetError: [Errno {ECONNRESET}] injected connection reset",
        ),
        (
            "nan_reward",
            0,
            "environment_raised",
            "step of environment 'Walk' raised ValueError: a reward is a finite number; given: nan",
        ),
    ],
)
def test_a_fault_ends_the_episode_as_its_typed_failure(fault, turn, cause, message):
    trajectory, injected = run(chaotic_walk(Faults(**{fault: 1.0})))
    assert (trajectory.failure.cause, trajectory.failure.message) == (cause, message)
    assert injected == [Injected(Fault(fault), 0 if turn is None else 1, turn)]
    assert ended_as(trajectory, injected[0]) == cause


def test_a_slow_call_answers_after_its_delay():
    async def timed():
        begin = asyncio.get_running_loop().time()
        trajectory, injected = await chaotic_walk(faults)
        return trajectory, injected, asyncio.get_running_loop().time() - begin

    faults = Faults(slow=1.0, slow_median_seconds=2, slow_sigma=0)
    trajectory, injected, seconds = run(timed())
    assert trajectory.messages == run(chaotic_walk(Faults()))[0].messages
    assert [each.turn for each in injected] == [None, 0, 1, 2, 3, 4, 5]
    assert seconds == pytest.approx(7 * 2)
    assert {ended_as(trajectory, each) for each in injected} == {SURVIVED}


def test_a_slow_call_may_be_too_slow():
    trajectory, injected = run(chaotic_walk(Faults(slow=1.0, slow_median_seconds=6, slow_sigma=0)))
    assert ended_as(trajectory, injected[0]) == trajectory.failure.cause == "environment_timed_out"


def test_delays_have_a_long_tail_around_their_median():
    # log-normal with sigma 1: half are above the median, 1.07% above 10 times the median (z = 2.3026)
    async def delays():
        return [await delay(session) for session in range(2000)]

    async def delay(session):
        begin = asyncio.get_running_loop().time()
        async with registry.opened("Walk") as environment:
            await Chaos(environment, Faults(slow=1.0, slow_median_seconds=3), "t", session).reset(walk())
        return asyncio.get_running_loop().time() - begin

    seconds = run(delays())
    assert 900 < sum(each > 3 for each in seconds) < 1100
    assert 5 < sum(each > 30 for each in seconds) < 45


def test_garbage_replaces_the_observations_of_steps_and_nothing_else():
    trajectory, injected = run(chaotic_walk(Faults(garbage=1.0)))
    clean, _ = run(chaotic_walk(Faults()))
    assert (trajectory.opening, trajectory.stop) == (clean.opening, clean.stop)
    assert [turn.reward for turn in trajectory.turns] == [turn.reward for turn in clean.turns]
    assert all("place" not in turn.observation[0].content for turn in trajectory.turns)
    assert [each.turn for each in injected] == list(range(6))


def test_garbage_is_noise_control_characters_or_huge():
    texts = [garbage(random.Random(seed)) for seed in range(60)]
    huge = [text for text in texts if len(text) == HUGE_CHARACTERS]
    control = [text for text in texts if max(text) < " "]
    noise = [text for text in texts if max(text) > "\uffff"]
    assert len(huge) > 9
    assert len(control) > 9
    assert len(noise) > 9
    assert any("\ud800" <= character <= "\udfff" for text in noise for character in text)


def test_an_episode_full_of_garbage_can_be_written_and_read(tmp_path):
    for nonce in range(5):
        trajectory, _ = run(chaotic_walk(Faults(garbage=1.0), nonce))
        (tmp_path / "garbage.jsonl").write_text(to_line(trajectory), encoding="utf-8")
        assert read_trajectories(tmp_path / "garbage.jsonl")[-1].stop is trajectory.stop


def call_with(fault, faults, task):
    """A nonce with which this fault befalls call 1, the first step, and none befalls the reset."""
    return next(n for n in range(999) if [drawn(faults, task, n, call).fault for call in (0, 1)] == [None, fault])


@pytest.mark.parametrize("method", ["reset", "step"])
async def test_a_crash_really_kills_the_worker_process_and_the_next_reset_starts_another(method):
    task = task_for(Guess)
    faults = Faults(crash=1.0 if method == "reset" else 0.5)
    nonce = 0 if method == "reset" else call_with(Fault.CRASH, faults, task.id)
    inner = ProcessEnvironment("doubles:Guess")
    chaos = Chaos(inner, faults, task.id, nonce)
    trajectory = await play(ScriptedPolicy(["4"]), chaos, task)
    assert trajectory.failure.cause == "environment_crashed"
    assert trajectory.failure.message == f"{method} of 'doubles:Guess': its worker process was killed by SIGKILL"
    assert chaos.injected == [Injected(Fault.CRASH, 0, None) if method == "reset" else Injected(Fault.CRASH, 1, 0)]
    assert inner.pid is None
    assert (await play(ScriptedPolicy(["4", "7"]), inner, task)).success
    await chaos.close()
    assert inner.pid is None


# Around any environment


async def test_what_is_not_a_fault_goes_through():
    inner = Walk()
    chaos = Chaos(inner, Faults(), "t", 0)
    assert (chaos.facts, chaos.instructions) == (Walk.facts, "Walk.")
    await chaos.reset(walk())
    assert await chaos.actions() == ["left", "right"]
    assert await chaos.expert_action() == "right"
    snapshot = await chaos.snapshot()
    await chaos.step(assistant("right"))
    await chaos.restore(snapshot)
    assert await inner.snapshot() == snapshot
    await chaos.close()
    assert inner.state is None


def test_without_rates_the_environment_stays_as_it_is():
    environment = Walk()
    assert chaotic(environment, Faults(seed=3), "t", 0) is environment
    around = chaotic(environment, Faults(hang=0.1), "t", 0)
    assert isinstance(around, Chaos)
    assert around.inner is environment


# Every episode that was started is emitted exactly once

EXPECTED = {
    Fault.CRASH: {"environment_crashed"},
    Fault.ERROR: {"environment_raised"},
    Fault.HANG: {"environment_timed_out"},
    Fault.SLOW: {SURVIVED, "environment_timed_out"},
    Fault.GARBAGE: {SURVIVED},
    Fault.NAN_REWARD: {"environment_raised"},
    Fault.CONNECTION_RESET: {"environment_raised"},
}
rates = st.lists(st.floats(0, 1), min_size=8, max_size=8).filter(any).map(lambda w: [x / sum(w) for x in w[:7]])
"""Any rates that leave some calls alone."""


def random_policy(environment, task, number):
    return RandomPolicy(environment, number)


@given(rates, st.integers(0, 999), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.1, 4.0]))
def test_every_episode_is_emitted_exactly_once_whatever_is_injected(rates, seed, episodes, concurrency, median):
    faults = Faults(*rates, slow_median_seconds=median, seed=seed)
    tasks = [walk(number) for number in range(episodes)]
    books = run(play_in_chaos(random_policy, tasks, faults, SOON, concurrency))
    assert sorted(books.started) == sorted(session.number for session in books.emitted) == list(range(episodes))
    assert books.balance
    assert episodes == books.finished + books.failed
    for session in books.emitted:
        assert session.trajectory.task is tasks[session.number]
        endings = [ended_as(session.trajectory, injected) for injected in session.injected]
        ended = [ending for ending in endings if ending != SURVIVED]
        assert ended == ([session.trajectory.failure.cause] if session.trajectory.failed else [])
        assert endings[len(endings) - len(ended) :] == ended  # the last one ended it
        assert all(e in EXPECTED[injected.fault] for e, injected in zip(endings, session.injected, strict=True))
    fates = books.fates()
    assert None not in fates
    assert sum(f.total() for f in fates.values()) == sum(len(session.injected) for session in books.emitted)


@given(rates, st.integers(0, 999))
def test_how_many_play_at_once_changes_nothing_that_happens(rates, seed):
    faults = Faults(*rates, seed=seed)
    tasks = [walk(number) for number in range(6)]
    one_by_one, together = (
        run(play_in_chaos(random_policy, tasks, faults, SOON, concurrency)) for concurrency in (1, 6)
    )
    assert one_by_one.fates() == together.fates()
    assert one_by_one.failed == together.failed


async def test_so_it_is_with_real_crashes_and_real_time():
    faults = Faults(crash=0.3, error=0.1, seed=1)
    tasks = [task_for(Guess, f"t{number}", number) for number in range(4)]
    books = await play_in_chaos(random_policy, tasks, faults, concurrency=2, isolation="process")
    assert books.balance
    fates = books.fates()
    assert set(fates) == {Fault.CRASH, Fault.ERROR}
    assert set(fates[Fault.CRASH]) == {"environment_crashed"}
    assert set(fates[Fault.ERROR]) == {"environment_raised"}


def test_wrong_configuration_stops_all_and_leaves_nothing_open():
    with pytest.raises(ConfigurationError, match="a random policy needs"):
        run(play_in_chaos(random_policy, [walk(), walk(1, NoSnapshots)], Faults()))
    with pytest.raises(ConfigurationError, match="concurrency must be at least 1; given: 0"):
        run(play_in_chaos(random_policy, [walk()], Faults(), concurrency=0))


# What is told of it


class Chokes:
    """Goes left until it has seen garbage."""

    def __init__(self, error):
        self.error = error

    async def reply(self, conversation):
        if "place" not in conversation[-1].content:
            raise self.error
        return Reply(assistant("left"))


@pytest.mark.parametrize(
    ("error", "ending"), [(UnicodeError("no such token"), "policy_raised"), (BudgetExhausted("full"), "token_budget")]
)
def test_garbage_that_the_policy_chokes_on_is_told_by_how_the_episode_ended(error, ending):
    trajectory, injected = run(chaotic_walk(Faults(garbage=1.0), policy=Chokes(error)))
    assert [ended_as(trajectory, each) for each in injected] == [ending]


def test_a_hang_that_meets_the_episodes_own_deadline_is_a_truncation():
    limits = Limits(reset_seconds=5, episode_seconds=1)
    trajectory, injected = run(chaotic_walk(Faults(hang=1.0), limits=limits))
    assert trajectory.stop is StopReason.EPISODE_DEADLINE
    assert ended_as(trajectory, injected[0]) == "episode_deadline"


def test_a_failure_of_its_own_is_told_apart_from_injected_ones():
    tasks = [task_for(Raises)]
    playing = play_in_chaos(lambda *_: ScriptedPolicy(["4"]), tasks, Faults())
    books = asyncio.run(playing)  # its thread does not wait for a clock that jumps
    assert books.fates() == {None: {"environment_raised": 1}}
    assert "not injected" in shown(chaos_table(books))


def shown(thing):
    console = Console(width=120, file=io.StringIO())
    console.print(thing)
    return console.file.getvalue()


def test_the_table_has_a_line_for_each_way_in_which_a_fault_ended():
    (dead, crash), (fine, slow) = (run(chaotic_walk(faults)) for faults in (Faults(1.0), Faults(slow=1, slow_sigma=0)))
    books = Books([0, 1, 2], [Session(0, dead, tuple(crash)), Session(1, fine, tuple(slow)), Session(2, fine, ())])
    rows = [line.replace("│", " ").split() for line in shown(chaos_table(books)).splitlines()]
    assert ["crash", "1", "environment_crashed", "1"] in rows
    assert ["slow", "7", "survived", "7"] in rows
    assert str(chaos_total(books)) == "3 started = 2 finished + 1 failed, each exactly once"


def test_a_session_that_is_lost_or_emitted_twice_is_told():
    trajectory, _ = run(chaotic_walk(Faults()))
    session = Session(0, trajectory, ())
    for books in (Books([0, 1], [session]), Books([0, 1], [session, session]), Books([0], [session, session])):
        assert not books.balance
        assert "does not come out: a session was lost or emitted twice" in str(chaos_total(books))
    assert Books([0, 1], [session._replace(number=1), session]).balance
