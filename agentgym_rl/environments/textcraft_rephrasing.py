"""TextCraft's observations in another order: the recipes that open it, and what the inventory holds, are sets."""

from __future__ import annotations

import random
import re
from collections.abc import Hashable

from agentgym_rl.rephrasing import Rephrasing, shuffled

_OPENING = re.compile(r"Crafting commands:\n(?P<listed>(?:craft [^\n]+\n)+)\n(?P<goal>Goal: craft [^\n]+\.)")
_INVENTORY = re.compile(r"Inventory: (?P<listed>(?:\[[^]]+\] \(\d+\) )+)")
_COMMAND = re.compile(r"craft [^\n]+\n")
_ITEM = re.compile(r"\[[^]]+\] \(\d+\) ")
_OTHERS = re.compile(
    r"Got \d+ .+|Crafted \d+ .+|Could not .+|Not a command\. .+|Name each ingredient once; .+"
    r"|Inventory: You are not carrying anything\."
)


def _vary(observation: str, chance: random.Random) -> str:
    for whole, one in ((_OPENING, _COMMAND), (_INVENTORY, _ITEM)):
        if match := whole.fullmatch(observation):
            listed = "".join(shuffled(one.findall(match["listed"]), chance))
            return observation[: match.start("listed")] + listed + observation[match.end("listed") :]
    return observation


def _meaning(observation: str) -> Hashable:
    if match := _OPENING.fullmatch(observation):
        return match["goal"], *sorted(_COMMAND.findall(match["listed"]))
    if match := _INVENTORY.fullmatch(observation):
        return "inventory", *sorted(_ITEM.findall(match["listed"]))
    if _OTHERS.fullmatch(observation):
        return observation
    raise ValueError(f"TextCraft never says {observation!r}")


REPHRASING = Rephrasing(_vary, _meaning)
