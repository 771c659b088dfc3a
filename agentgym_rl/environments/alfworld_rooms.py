"""Rooms for ALFWorld's engine, where its published games are not there: own draws, from what the package ships.

The package knows 120 rooms (which receptacles and things stand in each), what can lie where, and what can be cleaned,
heated and cooled. What is asked for, and where things lie, is drawn here.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.errors import ConfigurationError

TOOLS = {
    "pick_clean_then_place_in_recep": ("clean", "SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("heat", "Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("cool", "Fridge", "Coolable"),
}
"""Type of task -> what is done to the thing, in which receptacle, and which things allow it."""
TASK_TYPES = ("pick_and_place_simple", "look_at_obj_in_light", *TOOLS, "pick_two_obj_and_place")
LAMPS = ("DeskLamp", "FloorLamp")
RECEPTACLES_OF_A_TYPE = 4
"""At most; more only make the engine slow."""
OTHER_THINGS = 10
"""How many things lie about that the task does not need."""
DRAWS = 50


@dataclass(frozen=True)
class Thing:
    """A thing or a receptacle, by its name in the problem."""

    id: str
    type: str
    place: str = ""
    """Of a thing: the receptacle that it lies in."""


@dataclass(frozen=True)
class Goal:
    """What is asked for: a thing of this type, in a receptacle of that type, or under a lamp."""

    task_type: str
    thing: str
    target: str
    lamp: str


@dataclass(frozen=True)
class Room:
    """A drawn game."""

    goal: Goal
    receptacles: tuple[Thing, ...]
    things: tuple[Thing, ...]

    def of_type(self, name: str) -> list[Thing]:
        return [thing for thing in (*self.receptacles, *self.things) if thing.type == name]


def draw_room(task_type: str, scene: int, seed: int) -> Room:
    """Draw where things lie in a room, and what is to be done with which.

    Args:
        task_type: one of `TASK_TYPES`.
        scene: number of a room: 1-30 kitchens, 201-230 living rooms, 301-330 bedrooms, 401-430 bathrooms.
        seed: of the draw.

    Raises:
        ConfigurationError: the room has nothing for this type of task.
    """
    chance = random.Random(f"{task_type} {scene} {seed}")
    receptacles, types = _furniture(scene)
    for _ in range(DRAWS):
        room = _drawn(task_type, receptacles, types, chance)
        if room is not None:
            return room
    raise ConfigurationError(f"ALFWorld's room {scene} has nothing for a task {task_type!r}; take another room")


def _furniture(scene: int) -> tuple[tuple[Thing, ...], set[str]]:
    """The receptacles of a room, and all types of things that belong there."""
    import alfworld
    from alfworld.gen import constants

    folder = Path(alfworld.__file__).parent / "gen" / "layouts"
    try:
        listed = json.loads((folder / f"FloorPlan{scene}-openable.json").read_text())
        types = set(json.loads((folder / f"FloorPlan{scene}-objects.json").read_text()))
    except FileNotFoundError as error:
        raise ConfigurationError(f"ALFWorld has no room {scene}; known: 1-30, 201-230, 301-330, 401-430") from error
    fixed = set(constants.VAL_RECEPTACLE_OBJECTS) - set(constants.MOVABLE_RECEPTACLES)
    counts = Counter(_receptacle_type(name) for name in listed)
    numbers = {name: min(max(counts[name], 1), RECEPTACLES_OF_A_TYPE) for name in {*counts, *types} & fixed}
    pieces = (Thing(_id(name, i), name) for name, number in sorted(numbers.items()) for i in range(number))
    return tuple(pieces), types


def _drawn(task_type: str, receptacles: Sequence[Thing], types: set[str], chance: random.Random) -> Room | None:
    goal = _goal(task_type, {piece.type for piece in receptacles}, types, chance)
    if goal is None:
        return None
    things: list[Thing] = []

    def hide(name: str, avoid: str) -> bool:
        places = [piece for piece in receptacles if piece.type != avoid and may_lie(name, piece.type)]
        if places:
            things.append(Thing(_id(name, len(things)), name, chance.choice(places).id))
        return bool(places)

    for _ in range(2 if task_type == "pick_two_obj_and_place" else 1):
        if not hide(goal.thing, avoid=goal.target):
            return None
    if goal.lamp and not _put_lamp(goal.lamp, receptacles, things, chance):
        return None
    others = sorted(_portable(types) - {goal.thing})
    for name in chance.choices(others, k=OTHER_THINGS) if others else ():
        hide(name, avoid="")
    return Room(goal, tuple(receptacles), tuple(things))


def _goal(task_type: str, places: set[str], types: set[str], chance: random.Random) -> Goal | None:
    from alfworld.gen.constants import VAL_ACTION_OBJECTS

    lamps = sorted(set(LAMPS) & types)
    things = _portable(types)
    if task_type in TOOLS:
        _, where, ability = TOOLS[task_type]
        things = things & VAL_ACTION_OBJECTS[ability] if where in places else set()
        places = places - {where}
    if task_type == "look_at_obj_in_light":
        return Goal(task_type, chance.choice(sorted(things)), "", chance.choice(lamps)) if lamps and things else None
    pairs = [(thing, place) for thing in sorted(things) for place in sorted(places) if may_lie(thing, place)]
    return Goal(task_type, *chance.choice(pairs), "") if pairs else None


def _put_lamp(lamp: str, receptacles: Sequence[Thing], things: list[Thing], chance: random.Random) -> bool:
    open_ones = [piece for piece in receptacles if not openable(piece.type) and not piece.type.endswith("Basin")]
    if open_ones:
        things.append(Thing(_id(lamp, len(things)), lamp, chance.choice(open_ones).id))
    return bool(open_ones)


def _portable(types: set[str]) -> set[str]:
    """Types of things that can be taken."""
    from alfworld.gen import constants

    holders = set(constants.VAL_RECEPTACLE_OBJECTS) - set(constants.MOVABLE_RECEPTACLES)
    everywhere = set().union(*(constants.VAL_RECEPTACLE_OBJECTS[name] for name in holders))
    return (types & set(constants.OBJECTS) & everywhere) - holders - set(LAMPS)


def may_lie(thing: str, place: str) -> bool:
    """Whether a type of thing belongs in a type of receptacle."""
    from alfworld.gen.constants import VAL_RECEPTACLE_OBJECTS

    return thing in VAL_RECEPTACLE_OBJECTS.get(place, ())


def openable(receptacle_type: str) -> bool:
    """Whether such receptacles are closed at first."""
    from alfworld.gen.constants import OPENABLE_CLASS_SET

    return receptacle_type in OPENABLE_CLASS_SET


def _receptacle_type(listed: str) -> str:
    """Of an entry such as "Drawer|+01.6|+00.8|+01.2" or "Sink|...|SinkBasin"."""
    last = listed.rpartition("|")[2]
    return last if last.isalpha() else listed.partition("|")[0]


def _id(name: str, number: int) -> str:
    """As the engine reads names from ids: "drawer_bar_3" is a drawer, "sink_bar_0_bar_sinkbasin" a sinkbasin."""
    if name.endswith("Basin"):
        return f"{name.removesuffix('Basin').lower()}_bar_{number}_bar_{name.lower()}"
    return f"{name.lower()}_bar_{number}"
