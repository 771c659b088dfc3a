"""The peer: an instant environment in `skyrl-gym`, with the loop that its package leaves to its user.

skyrl-gym defines environments (`make`, `init`, `step`) and no rollout loop. The one here is the least that plays them:
a coroutine a session, no deadline, no typed failure, the step run on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

ENVIRONMENT = "openmanus-instant"


def load() -> tuple[Callable[[int, int, int], Coroutine[Any, Any, None]] | None, str]:
    """The loop (sessions, turns, hops), or None and the reason why it is skipped."""
    try:
        import skyrl_gym
        from skyrl_gym.envs.base_text_env import BaseTextEnv
    except ImportError as error:
        return None, f"skyrl-gym was skipped: {error}; pip install skyrl-gym"

    class Instant(BaseTextEnv):
        def step(self, action: str) -> dict[str, Any]:
            self.turns += 1
            observations = [{"role": "user", "content": "went on"}]
            return {"observations": observations, "reward": 0.0, "done": False, "metadata": {}}

    async def session(turns: int, hops: int) -> None:
        environment = skyrl_gym.make(ENVIRONMENT)
        conversation, _ = environment.init([{"role": "user", "content": "begin"}])
        conversation, rewards = list(conversation), []
        for _ in range(turns):
            for _ in range(2 * hops):
                await asyncio.sleep(0)
            output = environment.step("go on")
            conversation += [{"role": "assistant", "content": "go on"}, *output["observations"]]
            rewards.append(output["reward"])
        environment.close()

    async def play(sessions: int, turns: int, hops: int) -> None:
        await asyncio.gather(*(session(turns, hops) for _ in range(sessions)))

    if ENVIRONMENT not in skyrl_gym.envs.registration.registry:
        skyrl_gym.register(id=ENVIRONMENT, entry_point=Instant)
    return play, ""
