"""`serve()`: one of our environments behind AgentGym's HTTP protocol, so that it can run on another machine.

What is served and its limits are a `Service`; the routes stand in `server`, which needs FastAPI.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agentgym_rl.environments import registry
from agentgym_rl.errors import ConfigurationError, did_you_mean

logger = logging.getLogger(__name__)

Errors = Literal["status", "agentgym"]

DEFAULT_PORT = 36001
"""The first port in AgentGym's own README."""
STOP_SECONDS = 10
"""What calls under way get to finish once the server is told to stop."""


@dataclass(frozen=True)
class Service:
    """What is served, and to whom."""

    name: str
    """The environment."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the tasks that clients ask for by number (`data_idx`, as AgentGym's do); the number is the seed. The
    environment's `host_arguments` among them are those of every task: clients can't set these."""
    token: str | None = None
    """Bearer token that every request but /health must bring; None: whoever reaches the port may play."""
    lease_seconds: float = 600.0
    """An instance that gets no request for so long is closed; no call takes longer."""
    max_instances: int = 64
    """Instances at once; further ones are refused with status 503."""
    max_body_bytes: int = 2**20
    """Longest request; longer ones are refused with status 413."""
    isolation: registry.Isolation = "thread"
    """"process" for environments that may hang or crash: only a process can be ended."""
    errors: Errors = "status"
    """"agentgym" answers errors of an instance with status 200, as AgentGym's servers do and its clients insist on."""

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "max_instances", "max_body_bytes"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be above 0; given: {getattr(self, name)}")
        for name, kind in (("isolation", registry.Isolation), ("errors", Errors)):
            value = getattr(self, name)
            if value not in get_args(kind):
                raise ConfigurationError(f"no {name} {value!r}; {did_you_mean(str(value), get_args(kind))}")
        if self.token == "":
            raise ConfigurationError("the token of a server must not be empty; None serves without one")


def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve until SIGINT or SIGTERM, then let calls under way finish and close every instance.

    Args:
        service: what is served.
        host, port: where; port 0 takes a free one.
        announce: called with one line that names the address, once connections are taken.

    Raises:
        ConfigurationError: no such environment, the port is taken, or FastAPI or uvicorn is not installed.
    """
    uvicorn, make_app = _server_packages()
    app = make_app(service)
    if service.token is None and host not in ("127.0.0.1", "::1", "localhost"):
        logger.warning("serving on %s without a token: whoever reaches port %d may play", host, port)
    with listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        announce(f"serving {service.name} on http://{shown}:{listener.getsockname()[1]}")
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=STOP_SECONDS)
        uvicorn.Server(config).run(sockets=[listener])


def _server_packages() -> tuple[Any, Any]:
    try:
        import uvicorn

        from agentgym_rl.environments.agentgym.server import make_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'serving an environment needs {error.name!r}: pip install "openmanus-rl[agentgym]"'
        ) from error
    return uvicorn, make_app


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections.

    Raises:
        ConfigurationError: the address can't be used.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigurationError(f"can't listen on {host}:{port}: {error}") from error
    # Connections inherit it. asyncio sets it on sockets of its own making only, and without it each answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
