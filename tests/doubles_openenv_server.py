"""Real OpenEnv servers of games, run by an interpreter that has openenv-core: prints their ports and serves.

    python doubles_openenv_server.py GAME:MAX_SESSIONS ...

They ping their clients five times a second, and hang up on one that does not answer within a second.
"""

import asyncio
import socket
import sys

import uvicorn
from doubles_openenv_games import GAMES, action_model
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Heard(Observation):
    text: str


class Seen(Observation):
    at: int
    goal: int


OBSERVATIONS = {"Numbers": Heard, "Walk": Seen}


def environment_of(name):
    class Served(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self.game = GAMES[name]()

        def _seen(self, fields, reward, done):
            return OBSERVATIONS[name](**fields, reward=reward, done=done)

        def reset(self, seed=None, episode_id=None, **options):
            return self._seen(*self.game.reset(seed, **options))

        def step(self, action, timeout_s=None, **options):
            return self._seen(*self.game.step(action.model_dump()))

        @property
        def state(self):
            return State()

    return Served


def server_of(name, sessions):
    action = action_model(name, Action)
    app = create_fastapi_app(environment_of(name), action, OBSERVATIONS[name], max_concurrent_envs=sessions)
    return uvicorn.Server(uvicorn.Config(app, log_level="error", ws_ping_interval=0.2, ws_ping_timeout=1.0))


async def main(wanted):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in wanted]
    print(*[listener.getsockname()[1] for listener in listeners], flush=True)
    servers = [server_of(name, int(sessions)) for name, sessions in (one.split(":") for one in wanted)]
    await asyncio.gather(*[server.serve([listener]) for server, listener in zip(servers, listeners, strict=True)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
