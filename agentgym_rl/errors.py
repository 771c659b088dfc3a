"""One error per boundary, and `boundary()`, the only place where foreign code's exceptions become ours.

A boundary is where somebody else's code or service is called: an environment, a tool, a judge, a policy server.
Whatever goes wrong behind it arrives as that boundary's `Failed` error with a typed cause, and always by a deadline.
Wrong configuration and wrong data are no failures of a boundary: they raise at once and are never caught.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Any, TypeVar

from agentgym_rl.alarm import LATE, Alarm

T = TypeVar("T")


class AgentGymError(Exception):
    """Every error that this package raises on purpose."""


class ConfigurationError(AgentGymError, ValueError):
    """A name, option or combination that can't work; says what was given and what is allowed."""


class DataError(AgentGymError, ValueError):
    """A task, message or file that can't be read as what it claims to be."""


class BudgetExhausted(AgentGymError):
    """The policy has no token left for another turn; a truncation, not a failure."""


class Manner(Enum):
    """How a call across a boundary went wrong."""

    RAISED = "raised"  # the code behind the boundary raised an exception
    TIMED_OUT = "timed_out"  # no answer by the deadline
    CRASHED = "crashed"  # the process or connection behind the boundary is gone
    DIVERGED = "diverged"  # played again, it did not do the same again


class BoundaryError(AgentGymError):
    """A call across a boundary failed. `cause_name` reads `environment_timed_out`, `policy_raised`, ..."""

    boundary = "boundary"

    def __init__(self, message: str, manner: Manner = Manner.RAISED):
        super().__init__(message)
        self.manner = manner

    @property
    def cause_name(self) -> str:  # not `cause`: Ray sets that on errors that cross its actors
        return f"{self.boundary}_{self.manner.value}"


class EnvironmentFailed(BoundaryError):
    boundary = "environment"


class ToolFailed(BoundaryError):
    boundary = "tool"


class NoVerdict(Enum):
    """Why a judge that is asked the same again gives no verdict either."""

    REFUSED = "refused"  # its server does not take this very question, for its length or its content
    UNREADABLE = "unreadable"  # in none of all the tries had the answer the agreed form


class JudgeFailed(BoundaryError):
    boundary = "judge"

    def __init__(self, message: str, manner: Manner = Manner.RAISED, no_verdict: NoVerdict | None = None):
        super().__init__(message, manner)
        self.no_verdict = no_verdict
        """None: asked another time there may be one."""


class PolicyFailed(BoundaryError):
    boundary = "policy"


async def boundary(
    call: Awaitable[T],
    failed: type[BoundaryError],
    what: str,
    timeout_seconds: float,
    alarm: Alarm | None = None,
    on_late: Callable[[], None] | None = None,
) -> T:
    """Await foreign code; every failure of it becomes `failed`, and nothing is waited for past the deadline.

    A call that ignores its cancellation is left behind rather than awaited (`asyncio.wait_for` would wait for it). It
    runs in a task of its own, whose last act is to answer: waiting for the task itself would take one more round of
    the event loop.

    Args:
        call: what to await.
        failed: the boundary's error.
        what: names the call in the message, e.g. "step of environment 'babyai'".
        timeout_seconds: deadline of this call, > 0.
        alarm: of a caller that makes many calls, one after the other; None: one for this call.
        on_late: called where this very deadline has passed, and not one that the call kept itself.

    Raises:
        BoundaryError: the call raised, or was late.
        ConfigurationError, DataError, BudgetExhausted: passed through as they are.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    watching = alarm or Alarm()
    watching.watch(answer, timeout_seconds)
    running = loop.create_task(_deliver(answer, call, failed, what))
    try:
        given = await answer
    except asyncio.CancelledError:
        running.cancel()
        raise
    finally:
        if alarm is None:
            watching.stop()
    if given is LATE:
        running.cancel()
        if on_late:
            on_late()
        raise failed(f"{what} gave no answer within {timeout_seconds:.3g} s", Manner.TIMED_OUT)
    return given


async def _deliver(answer: asyncio.Future[T], call: Awaitable[T], failed: type[BoundaryError], what: str) -> None:
    """Fill the answer with what came of the call, unless nobody waits for it any more."""
    try:
        result = await call
    except AgentGymError as error:
        _fail(answer, error)
    except asyncio.CancelledError as error:
        _fail(answer, failed(f"{what} cancelled itself"), error)
    except SystemExit as error:  # in a task it would end the event loop itself, with every other episode on it
        _fail(answer, failed(f"{what} raised RuntimeError: SystemExit: {error.code}"), error)
    except Exception as error:
        _fail(answer, failed(f"{what} raised {type(error).__name__}: {error}"), error)
    else:
        if not answer.done():
            answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: AgentGymError, cause: BaseException | None = None) -> None:
    if cause is not None:
        error.__cause__ = cause
    if not answer.done():
        answer.set_exception(error)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest known name, or the known names."""
    known = sorted(known)
    near = difflib.get_close_matches(given, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"known: {shown or 'none'}"


def require_allowed_keys(given: Iterable[str], allowed: Iterable[str], where: str) -> None:
    """Raise a ConfigurationError that names the first key of `given` which is not in `allowed`."""
    allowed = list(allowed)
    for key in given:
        if key not in allowed:
            raise ConfigurationError(f"{where} has no {key!r}; {did_you_mean(key, allowed)}")


def require_type(given: object, kind: type[T]) -> T:
    """Raise a TypeError unless foreign code answered with a `kind`; belongs behind a boundary."""
    if not isinstance(given, kind):
        raise TypeError(f"the answer must be a {kind.__name__}; given: {type(given).__name__}")
    return given


def signature_of(function: object) -> list[str]:
    """The parameter names that a callable takes, for messages about wrong arguments."""
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]
