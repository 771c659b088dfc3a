"""The routes of AgentGym's protocol over one of our environments (FastAPI; its schema is at /docs and /openapi.json).

AgentGym's own BabyAI client can play here: fields have the names of that server. Our client finds the whole messages
and results beside them. Every error is `{"error": text, "detail": {...}}`: 400 wrong task, 401 token, 404 no such
instance, 409 busy, 413 too long, 422 malformed, 500 the environment raised, 502 it crashed, 503 all instances lent,
504 it was late. With `Service.errors` "agentgym", errors of an instance have status 200 instead.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym.instances import Instances, Refused
from agentgym_rl.environments.agentgym.service import Service
from agentgym_rl.environments.wire import RESULTS, encode_error
from agentgym_rl.errors import AgentGymError, BoundaryError, ConfigurationError, DataError, EnvironmentFailed, Manner
from agentgym_rl.messages import Message, assistant
from agentgym_rl.task import Task

_STATUS = {Manner.RAISED: 500, Manner.CRASHED: 502, Manner.TIMED_OUT: 504}
_AT_THE_DOOR = (401, 413, 422, 503)
"""Errors of no instance: they keep their status for AgentGym's clients, too."""


class TaskBody(BaseModel):
    """A task of the served environment; its `host_arguments` are the server's own."""

    model_config = ConfigDict(extra="forbid")
    id: str = "served"
    arguments: dict[str, Any] = {}
    seed: int = 0
    prompt: str = ""
    reference_answer: Any = None
    split: str = "train"


class ResetBody(BaseModel):
    """Which task: by number, or whole."""

    id: int
    data_idx: int | None = Field(None, description="The seed of a task with the server's own arguments.")
    task: TaskBody | None = None


class StepBody(BaseModel):
    """The reply: its text, or the whole chat message, with tool calls where it has some."""

    id: int
    action: str | None = None
    message: dict[str, Any] | None = None


class CloseBody(BaseModel):
    id: int


class CreateAnswer(BaseModel):
    id: int


class ResetAnswer(BaseModel):
    observation: str
    reward: float = 0.0
    score: float = 0.0
    done: bool = False
    messages: list[dict[str, Any]]
    instructions: str


class StepAnswer(BaseModel):
    observation: str
    reward: float
    score: float = Field(description="The sum of the episode's rewards.")
    done: bool = Field(description="Terminated or truncated.")
    result: dict[str, Any] = Field(description="terminated, truncated, success, valid, info and whole messages.")


class Health(BaseModel):
    status: str
    instances: int
    max_instances: int


class Version(BaseModel):
    environment: str
    openmanus_rl: str | None
    max_turns: int
    deterministic: bool
    instructions: str


def _instances(request: Request) -> Instances:
    return request.app.state.instances


def _service(request: Request) -> Service:
    return request.app.state.service


Lent = Annotated[Instances, Depends(_instances)]
Served = Annotated[Service, Depends(_service)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def _authorized(service: Served, credentials: Credentials) -> None:
    if service.token is None:
        return
    given = credentials.credentials.encode("latin-1") if credentials else b""  # as it came: headers are latin-1
    if not hmac.compare_digest(given, service.token.encode()):
        raise Refused(401, f"the bearer token is {'wrong' if credentials else 'missing'}")


router = APIRouter(dependencies=[Depends(_authorized)])
health_router = APIRouter()


@health_router.get("/health")
async def health(service: Served, instances: Lent) -> Health:
    """Needs no token."""
    return Health(status="ok", instances=len(instances), max_instances=service.max_instances)


@router.get("/version")
async def version(service: Served) -> Version:
    """What is served, by which version of this package."""
    cls = registry.environment_class(service.name)
    return Version(
        environment=service.name,
        openmanus_rl=_package_version(),
        max_turns=cls.facts.max_turns,
        deterministic=cls.facts.deterministic,
        instructions=cls.instructions,
    )


@router.post("/create")
async def create(instances: Lent, _: Annotated[dict[str, Any] | None, Body()] = None) -> CreateAnswer:
    """A new instance. A body is not needed and not read."""
    return CreateAnswer(id=instances.create())


@router.post("/reset", response_model=ResetAnswer)
async def reset(body: ResetBody, service: Served, instances: Lent) -> Response:
    """Set a task up."""
    seen = await instances.reset(body.id, _task(body, service))
    instance = instances.get(body.id)
    return _json(
        {
            "observation": instance.observation,
            "reward": 0.0,
            "score": 0.0,
            "done": False,
            "messages": RESULTS["reset"].encode(seen),
            "instructions": instance.environment.instructions,
        }
    )


@router.post("/step", response_model=StepAnswer)
async def step(body: StepBody, service: Served, instances: Lent) -> Response:
    """Carry an action out."""
    result = await instances.step(body.id, _action(body))
    instance = instances.get(body.id)
    try:
        return _json(
            {
                "observation": instance.observation,
                "reward": float(result.reward),
                "score": instance.score,
                "done": result.terminated or result.truncated,
                "result": RESULTS["step"].encode(result),
            }
        )
    except (TypeError, ValueError) as error:  # e.g. an array in `info`
        raise EnvironmentFailed(f"step of environment {service.name!r} answered what is no JSON: {error}") from error


@router.get("/observation")
async def observation(id: int, instances: Lent) -> str:
    """The latest observation's text."""
    return instances.get(id).observation


@router.post("/close")
async def close(body: CloseBody, instances: Lent) -> bool:
    """Close an instance; false: there is none."""
    return await instances.close(body.id)


def make_app(service: Service) -> FastAPI:
    """The ASGI application.

    Raises:
        ConfigurationError: no such environment, or what it imports is not installed.
    """
    registry.environment_class(service.name)
    app = FastAPI(title=f"Environment {service.name}", description=__doc__, lifespan=_lifespan)
    app.state.service = service
    app.state.instances = Instances(service.name, service.isolation, service.max_instances, service.lease_seconds)
    app.include_router(router)
    app.include_router(health_router)
    app.add_middleware(_BodyLimit, max_bytes=service.max_body_bytes)
    for kind in (AgentGymError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _on_error)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service, instances = app.state.service, app.state.instances
    reaper = asyncio.ensure_future(_reap_for_ever(instances, min(5.0, service.lease_seconds / 4)))
    try:
        yield
    finally:
        reaper.cancel()
        await instances.close_all()


async def _reap_for_ever(instances: Instances, pause_seconds: float) -> None:
    while True:
        await asyncio.sleep(pause_seconds)
        await instances.reap()


class _BodyLimit:
    """Refuses a request that is longer than allowed, declared or not, before it is held in memory."""

    def __init__(self, app: Any, max_bytes: int):
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        declared, size = int(lengths[0]) if lengths else 0, 0

        async def counted() -> Any:
            nonlocal size
            self._require(declared)
            message = await receive()
            size += len(message.get("body", b""))
            self._require(size)
            return message

        await self._app(scope, counted, send)

    def _require(self, size: int) -> None:
        if size > self._max_bytes:  # as an HTTPException, because FastAPI lets no other one through
            raise HTTPException(413, f"a request may have {self._max_bytes} bytes")


def _task(body: ResetBody, service: Service) -> Task:
    if (body.task is None) == (body.data_idx is None):
        raise DataError("a reset needs either data_idx or task")
    if body.task is not None:
        given = body.task.model_dump()
        return Task(environment=service.name, **{**given, "arguments": _arguments(given["arguments"], service)})
    return Task(f"item-{body.data_idx}", service.name, service.arguments, seed=body.data_idx or 0)


def _arguments(given: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """A client's, with the service's own where they act on this machine."""
    host = registry.environment_class(service.name).host_arguments
    refused = sorted(host & given.keys())
    if refused:
        raise DataError(f"the server sets {', '.join(refused)} itself")
    return {**given, **{name: value for name, value in service.arguments.items() if name in host}}


def _action(body: StepBody) -> Message:
    if body.message is not None and body.action is None:
        return Message.from_chat(body.message)
    if body.action is None or body.message is not None:
        raise DataError("a step needs either action or message")
    return assistant(body.action)


async def _on_error(request: Request, error: Exception) -> Response:
    status, message = _status(error), str(error)
    row: dict[str, Any] = {}
    if isinstance(error, HTTPException):
        message = str(error.detail)
    elif isinstance(error, RequestValidationError):
        message = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    elif not isinstance(error, Refused):
        row = {"detail": encode_error(error)}
        if isinstance(error, DataError):  # the client's own mistake: where it came to light is not for it to see
            row["detail"]["traceback"] = ""
    if _service(request).errors == "agentgym" and status not in _AT_THE_DOOR:
        status = 200
    return _json({"error": message, **row}, status)


def _status(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, RequestValidationError):
        return 422
    if isinstance(error, (ConfigurationError, DataError)):
        return 400
    return _STATUS[error.manner] if isinstance(error, BoundaryError) else 500


def _json(row: Mapping[str, Any], status: int = 200) -> Response:
    """Not FastAPI's own encoder: that refuses NaN, and what an environment says is for the caller to judge."""
    return Response(json.dumps(row), status, media_type="application/json")


def _package_version() -> str | None:
    try:
        return metadata.version("openmanus-rl")
    except metadata.PackageNotFoundError:
        return None  # run from a checkout
