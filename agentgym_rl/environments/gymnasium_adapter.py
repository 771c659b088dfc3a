"""Any Gymnasium environment with a finite or a text action space, as a text game.

Gymnasium's `terminated` and `truncated` (its TimeLimit among them) stay what they are. What the agent sees is rendered
by the task's own function, or else as the environment renders itself to text, or else as the observation's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.gymnasium_actions import FiniteActions, TextActions
from agentgym_rl.environments.gymnasium_expert import model_of, value_iteration
from agentgym_rl.environments.gymnasium_game import Game, make_world
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task

_ESCAPE = r"\x1b\[[0-9;]*m"
_HIGHLIGHTED = re.compile(rf"(?:{_ESCAPE})+([^\x1b]*)(?:{_ESCAPE})+")


class Gymnasium(Replayed):
    """Play a Gymnasium environment whose actions can be listed.

    Task: `arguments` holds `id` ("FrozenLake-v1"; "module:Id" imports the module that registers it) and, if wanted,
        `kwargs` (of `gymnasium.make`), `actions` (names, in the order of the space), `renderer` ("module:function",
        which takes the unwrapped environment and the observation and returns text), `success` and `max_turns` (default
        100). The seed is the environment's.
    Actions: of Discrete and MultiDiscrete spaces (up to 512) the name, as the last line of the reply; without names
        their numbers. The first observation lists them. Anything else is not valid, leaves the world as it is and
        counts as a turn.
    Observations: by `renderer`, or the environment's "ansi" rendering with highlighted text in [brackets], or the
        observation's value with its space.
    Reward: the environment's.
    End: terminated and truncated as the environment says; truncated after `max_turns` turns as well.
    Success: of an episode that terminated: "positive_reward" (default) if the last reward is above 0, "terminated"
        always, a number if the sum of rewards is at least that.
    Splits: `data_preprocess/gymnasium_adapter.py` tells them apart by their first observation.
    Expert: `expert_action` answers where the environment exposes its model `P`, by value iteration; `facts` can't
        promise one for all (see `toy_text`).
    Source: Towers et al., Gymnasium, 2024, https://arxiv.org/abs/2407.17032.
    Licence: MIT; each environment its own.

    An episode ("FrozenLake-v1", kwargs {"is_slippery": false}, actions left, down, right, up):
        [S]FFF / FHFH / FFFH / HFFG / Actions: left, down, right, up.
        > down
        (Down) / SFFF / [F]HFH / FFFH / HFFG
        > right
        (terminated, reward 0: a hole)
    """

    facts = Facts(
        reward_range=(-float("inf"), float("inf")),
        max_turns=100,
        can_snapshot=True,
        lists_actions=True,
        domain="any Gymnasium",
        source="https://arxiv.org/abs/2407.17032",
        licence="MIT; each environment its own",
    )
    instructions = "Act in the environment. Answer with one of its actions."
    host_arguments = frozenset({"id", "kwargs", "renderer"})
    task_command: Sequence[str] = ("data_preprocess.gymnasium_adapter", "--arguments", '{"id": "Blackjack-v1"}')

    _world: Any = None
    _made: tuple[str, Mapping[str, Any]] | None = None
    _model: Any = None
    """Whose expert is known: `_policy`."""

    def begin(self, task: Task) -> str:
        self._game = self.game_of(task)
        if self._made != (self._game.id, self._game.kwargs):
            self.close()
            self._world = make_world(self._game.id, self._game.kwargs)
            self._made = (self._game.id, self._game.kwargs)
        self._actions = self.actions_of(self._world.action_space)
        self._return = 0.0
        observation, _ = self._world.reset(seed=task.seed)
        return f"{self._rendered(observation)}\n{self._actions.told}"

    def act(self, text: str) -> StepResult:
        action = self._actions.understood(text)
        if action is None:
            return StepResult.going_on(f"Not an action. {self._actions.told}", valid=False)
        observation, reward, terminated, truncated, _ = self._world.step(action)
        reward, seen = float(reward), self._rendered(observation)
        self._return += reward
        if terminated:
            return StepResult.at_end(reward, self._game.succeeded(reward, self._return), seen)
        return StepResult.cut_off(seen, reward) if truncated else StepResult.going_on(seen, reward)

    def close(self) -> None:
        self.turns_left = self._made = None
        if self._world is not None:
            self._world.close()
            self._world = None

    def actions(self) -> Sequence[str]:
        self.require_open("was asked for its actions")
        return self._actions.names

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        model = model_of(self._world)
        if self._model is not model:
            self._model, self._policy = model, value_iteration(model)
        return self._actions.names[self._policy[self._world.unwrapped.s]]

    def game_of(self, task: Task) -> Game:
        """What a task asks for.

        Raises:
            ConfigurationError: an unknown or wrong argument, or no such renderer.
        """
        return Game.of(task)

    def actions_of(self, space: Any) -> Any:
        """What may be said."""
        return FiniteActions(space, self._game.actions)

    def _rendered(self, observation: Any) -> str:
        if self._game.renderer is not None:
            return self._game.renderer(self._world.unwrapped, observation)
        if self._world.render_mode == "ansi":
            drawn = self._world.render()
            return _plain(drawn if isinstance(drawn, str) else drawn.getvalue())
        if isinstance(observation, str):
            return observation or "(nothing)"
        return f"Observation: {observation} of {self._world.observation_space}."


class GymnasiumText(Gymnasium):
    """As `Gymnasium`, for Text action spaces: the whole reply is the action, and text outside of the space is not
    valid. There are neither listed actions nor an expert."""

    facts = replace(Gymnasium.facts, lists_actions=False, any_text=True)
    instructions = "Act in the environment. Your whole answer is the action."
    task_command = ("data_preprocess.gymnasium_adapter", "--text")  # Gymnasium itself has no such environment

    def actions_of(self, space: Any) -> Any:
        from gymnasium.spaces import Text

        if not isinstance(space, Text) or self._game.actions is not None:
            raise ConfigurationError(
                f"'gymnasium-text' takes Text action spaces, without names; given: {space}, actions "
                f"{self._game.actions}; for finite spaces take 'gymnasium'"
            )
        return TextActions(space)

    def actions(self) -> Sequence[str]:
        raise ConfigurationError("a text action space can't be listed")

    def expert_action(self) -> str:
        raise ConfigurationError("a text action space has no expert")


def _plain(drawn: str) -> str:
    """Terminal colours would be lost on a model, and they may say where the agent stands."""
    return re.sub(_ESCAPE, "", _HIGHLIGHTED.sub(r"[\1]", drawn)).strip()
