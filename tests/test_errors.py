"""`boundary()` turns whatever foreign code does into one typed error by the deadline; ours pass through."""

import asyncio
import gc

import pytest
from doubles import IgnoresCancellation, task_for

from agentgym_rl.errors import (
    BudgetExhausted,
    ConfigurationError,
    DataError,
    EnvironmentFailed,
    JudgeFailed,
    Manner,
    PolicyFailed,
    ToolFailed,
    boundary,
    did_you_mean,
    require_allowed_keys,
    require_type,
    signature_of,
)
from agentgym_rl.messages import assistant


async def answer(value):
    await asyncio.sleep(0)
    return value


async def throw(error):
    await asyncio.sleep(0)
    raise error


async def test_an_answer_comes_through():
    assert await boundary(answer(7), ToolFailed, "the tool", 5) == 7


async def test_a_raised_error_becomes_the_boundarys_own_and_keeps_its_cause():
    with pytest.raises(ToolFailed, match=r"^the tool raised KeyError: 'x'$") as caught:
        await boundary(throw(KeyError("x")), ToolFailed, "the tool", 5)
    assert caught.value.manner is Manner.RAISED
    assert caught.value.cause_name == "tool_raised"
    assert isinstance(caught.value.__cause__, KeyError)


async def test_no_answer_by_the_deadline_is_a_time_out_that_cancels_the_call():
    cancelled = asyncio.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(JudgeFailed, match=r"^the judge gave no answer within 0.01 s$") as caught:
        await boundary(hang(), JudgeFailed, "the judge", 0.01)
    assert caught.value.cause_name == "judge_timed_out"
    await cancelled.wait()


async def test_a_call_that_ignores_its_cancellation_is_left_behind():
    environment = IgnoresCancellation()
    await environment.reset(task_for(IgnoresCancellation))
    step = asyncio.ensure_future(environment.step(assistant("1")))
    try:
        with pytest.raises(EnvironmentFailed, match="no answer"):
            await boundary(step, EnvironmentFailed, "the step", 0.05)
        assert not step.done()
    finally:
        await IgnoresCancellation.release()
    assert (await asyncio.wait_for(step, 5)).reward == -1.0


async def test_an_error_after_the_deadline_is_taken_silently():
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def fail_when_cancelled():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("too late") from None

    with pytest.raises(EnvironmentFailed, match="no answer"):
        await boundary(fail_when_cancelled(), EnvironmentFailed, "the step", 0.01)
    await asyncio.sleep(0.01)
    assert not reported


@pytest.mark.parametrize("first", ["the cancellation", "the error"])
async def test_an_error_that_meets_a_cancelled_caller_is_taken_silently(first):
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(context))

    async def fail():
        await asyncio.sleep(0)
        if first == "the cancellation":
            callers[0].cancel()
        else:
            loop.call_soon(callers[0].cancel)
        raise ValueError("too late")

    callers = [asyncio.ensure_future(boundary(fail(), EnvironmentFailed, "the step", 60))]
    with pytest.raises(asyncio.CancelledError):
        await callers[0]
    callers.clear()
    gc.collect()
    await asyncio.sleep(0.01)
    assert not reported


async def test_cancelling_the_caller_cancels_the_call():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hang():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    caller = asyncio.ensure_future(boundary(hang(), ToolFailed, "the tool", 60))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await cancelled.wait()


async def test_a_call_that_cancels_itself_is_a_failure_and_no_cancellation_of_the_caller():
    with pytest.raises(ToolFailed, match="^the tool cancelled itself$"):
        await boundary(throw(asyncio.CancelledError()), ToolFailed, "the tool", 5)


async def test_a_system_exit_does_not_end_the_event_loop():
    with pytest.raises(ToolFailed, match="^the tool raised RuntimeError: SystemExit: 7$"):
        await boundary(throw(SystemExit(7)), ToolFailed, "the tool", 5)


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("c"),
        DataError("d"),
        BudgetExhausted("b"),
        ToolFailed("an inner boundary's", Manner.CRASHED),
    ],
)
async def test_this_packages_own_errors_pass_through_as_they_are(error):
    with pytest.raises(type(error)) as caught:
        await boundary(throw(error), EnvironmentFailed, "the step", 5)
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (EnvironmentFailed("x", Manner.CRASHED), "environment_crashed"),
        (ToolFailed("x"), "tool_raised"),
        (JudgeFailed("x", Manner.TIMED_OUT), "judge_timed_out"),
        (PolicyFailed("x"), "policy_raised"),
    ],
)
def test_a_cause_names_the_boundary_and_the_manner(error, cause):
    assert error.cause_name == cause


def test_a_near_name_is_suggested_and_otherwise_the_known_ones_are_listed():
    assert did_you_mean("sokban", ["sokoban", "babyai"]) == "did you mean 'sokoban'?"
    assert did_you_mean("xyz", ["sokoban", "babyai"]) == "known: babyai, sokoban"
    assert did_you_mean("xyz", []) == "known: none"
    assert did_you_mean("xyz", (f"name{i:02}" for i in range(21))).endswith("name19, ...")


def test_an_unknown_key_is_named_with_what_was_meant():
    require_allowed_keys(["seed"], ["seed", "split"], "a task")
    with pytest.raises(ConfigurationError, match=r"^a task has no 'sede'; did you mean 'seed'\?$"):
        require_allowed_keys(["seed", "sede"], ["seed", "split"], "a task")


def test_an_answer_of_a_wrong_type_is_named():
    assert require_type("x", str) == "x"
    with pytest.raises(TypeError, match="^the answer must be a str; given: NoneType$"):
        require_type(None, str)


def test_a_signature_lists_the_parameters_without_self():
    assert signature_of(IgnoresCancellation.step) == ["action"]
