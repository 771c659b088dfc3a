"""A drawn room as a game of ALFWorld's engine: the problem in PDDL, the words of the task, and the solution.

Since whoever hides a thing knows where it is, the solution needs no planner, which takes up to minutes in a large room.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_rl.environments.alfworld_rooms import LAMPS, TOOLS, Room, may_lie, openable


def game_data(room: Room, seed: int) -> dict[str, Any]:
    """The game as the engine loads it (its `game.tw-pddl`)."""
    from alfworld.gen.goal_library import gdict
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    goal, texts = room.goal, gdict[room.goal.task_type]
    told = random.Random(seed).choice(texts["templates"])
    words = {"obj": goal.thing.lower(), "recep": goal.target.lower(), "toggle": goal.lamp.lower(), "mrecep": ""}
    wanted = texts["pddl"].format(obj=goal.thing, recep=goal.target, toggle=goal.lamp, mrecep="").replace("#", "-")
    return {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(),
        "grammar": Path(ALFRED_TWL2_PATH).read_text().replace("UNKNOWN GOAL", told.format(**words)),
        "pddl_problem": _problem(room) + wanted,
        "walkthrough": None,
    }


def solution_of(room: Room) -> list[str]:
    """The commands that solve the task, with ids in the place of names."""
    opened: set[str] = set()

    def visit(place: str) -> Iterator[str]:
        yield f"go to {place}"
        if place not in opened and openable(_type_of(room, place)):
            opened.add(place)
            yield f"open {place}"

    goal = room.goal
    commands: list[str] = []
    for thing in room.of_type(goal.thing):
        commands += [*visit(thing.place), f"take {thing.id} from {thing.place}"]
        if goal.lamp:
            (lamp,) = room.of_type(goal.lamp)
            return [*commands, f"go to {lamp.place}", f"use {lamp.id}"]
        if goal.task_type in TOOLS:
            verb, where, _ = TOOLS[goal.task_type]
            tool = room.of_type(where)[0].id
            commands += [f"go to {tool}", f"{verb} {thing.id} with {tool}"]
        target = room.of_type(goal.target)[0].id
        commands += [*visit(target), f"move {thing.id} to {target}"]
    return commands


def _problem(room: Room) -> str:
    """Objects and initial facts in PDDL; the engine wants them before the goal."""
    from alfworld.gen.constants import VAL_ACTION_OBJECTS

    thing_types = sorted({thing.type for thing in room.things})
    places = sorted({piece.type for piece in room.receptacles} | {"SinkBasin", "Microwave", "Fridge"})
    declared = [f"{name}Type - otype" for name in thing_types] + [f"{name}Type - rtype" for name in places]
    declared += [f"{thing.id} - object" for thing in room.things]
    declared += [f"{piece.id} - receptacle\nat_{piece.id} - location" for piece in room.receptacles]
    facts = [f"(canContain {a}Type {b}Type)" for a in places for b in thing_types if may_lie(b, a)]
    for piece in room.receptacles:
        facts += [f"(receptacleType {piece.id} {piece.type}Type)", f"(receptacleAtLocation {piece.id} at_{piece.id})"]
        facts += [f"(openable {piece.id})"] if openable(piece.type) else []
    for thing in room.things:
        facts += [f"(objectType {thing.id} {thing.type}Type)", f"(inReceptacle {thing.id} {thing.place})"]
        facts += [f"(objectAtLocation {thing.id} at_{thing.place})"]
        facts += [f"(toggleable {thing.id})" if thing.type in LAMPS else f"(pickupable {thing.id})"]
        facts += [
            f"({able.lower()} {thing.id})" for _, _, able in TOOLS.values() if thing.type in VAL_ACTION_OBJECTS[able]
        ]
    return (
        "(define (problem room) (:domain alfred)\n(:objects agent1 - agent at_start - location\n"
        + "\n".join(declared)
        + "\n)\n(:init (= (total-cost) 0) (atLocation agent1 at_start)\n"
        + "\n".join(facts)
        + "\n)\n"
    )


def _type_of(room: Room, place: str) -> str:
    return next(piece.type for piece in room.receptacles if piece.id == place)
