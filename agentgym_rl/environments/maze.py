"""A maze told in words: only the walls around the agent are known, the rest has to be explored and remembered.

The maze is perfect (one way between any two cells), carved by a depth-first walk, and a function of size and seed
alone.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.maze_rephrasing import REPHRASING
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.turn_limited import last_line, whole_number
from agentgym_rl.errors import require_allowed_keys
from agentgym_rl.task import Task

DIRECTIONS = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
"""Direction -> change of row and column."""

DEFAULT_SIZE = 5
MOST_CELLS_A_SIDE = 100

Cell = tuple[int, int]
"""Row and column, from 0; the agent is told them from 1."""


@dataclass(frozen=True)
class Plan:
    """A maze with its start and goal."""

    size: int
    open_ways: frozenset[tuple[Cell, Cell]]
    """Pairs of neighbours without a wall between them, in both orders."""
    start: Cell
    goal: Cell

    def neighbour(self, cell: Cell, direction: str) -> Cell | None:
        """The cell next to this one; None: there is a wall."""
        rows, columns = DIRECTIONS[direction]
        other = (cell[0] + rows, cell[1] + columns)
        return other if (cell, other) in self.open_ways else None


class Maze(Replayed):
    """Find the way to a given cell.

    Task: `arguments` may hold `size` (cells a side, 2 to 100; default 5) and `max_turns` (default 64). The seed draws
        the maze, the start and the goal.
    Actions: "north", "east", "south" or "west", as the last line of the reply. Moving against a wall is allowed and
        changes nothing. Anything else is not valid. Every turn counts.
    Observations: row and column of the agent and of the goal, from 1, and on which sides there is a wall.
    Reward: 1 when the goal is reached, else 0.
    End: terminated at the goal; truncated after `max_turns` turns.
    Splits: `data_preprocess/maze.py` draws train, validation and test mazes that are all different.
    Expert: breadth-first search, a shortest way; it solves every task whose way is not longer than `max_turns` (always
        so up to size 8).
    Source: this project. Licence: this project's.

    An episode (size 2, seed 2):
        This is a maze of 2 by 2 cells; row 1 is its north end, column 1 its west end. You are at row 2, column 1. The
            goal is at row 1, column 1. Walls: north, south, west.
        > east
        You are at row 2, column 2. The goal is at row 1, column 1. Walls: east, south.
        > north
        You are at row 1, column 2. The goal is at row 1, column 1. Walls: north, east.
        > west
        (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=64,
        expert_success=1.0,
        can_snapshot=True,
        lists_actions=True,
        domain="grid world",
        source="this project",
        licence="this project's",
    )
    rephrasing = REPHRASING
    instructions = f"Find the way to the goal. Answer with one action: {', '.join(DIRECTIONS)}."

    def begin(self, task: Task) -> str:
        require_allowed_keys(task.arguments, ("size", "max_turns"), "a maze task")
        self._plan = plan_of(task)
        self._cell = self._plan.start
        size = self._plan.size
        return (
            f"This is a maze of {size} by {size} cells; row 1 is its north end, column 1 its west end. {self._seen()}"
        )

    def act(self, text: str) -> StepResult:
        direction = last_line(text)
        if direction not in DIRECTIONS:
            return StepResult.going_on(f"Not an action. Allowed: {', '.join(DIRECTIONS)}.", valid=False)
        reached = self._plan.neighbour(self._cell, direction)
        if reached is None:
            return StepResult.going_on(f"A wall stops you. {self._seen()}")
        self._cell = reached
        if reached == self._plan.goal:
            return StepResult.at_end(1.0, success=True)
        return StepResult.going_on(self._seen())

    def actions(self) -> Sequence[str]:
        return tuple(DIRECTIONS)

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        return shortest_way(self._plan, self._cell)[0]

    def _seen(self) -> str:
        walls = [direction for direction in DIRECTIONS if self._plan.neighbour(self._cell, direction) is None]
        return (
            f"You are at {_words(self._cell)}. The goal is at {_words(self._plan.goal)}. "
            f"Walls: {', '.join(walls) or 'none'}."
        )


def plan_of(task: Task) -> Plan:
    """The maze of a task.

    Raises:
        ConfigurationError: its size is no number from 2 to 100.
    """
    size = whole_number(task.arguments, "size", DEFAULT_SIZE, least=2, most=MOST_CELLS_A_SIDE)
    chance = random.Random(task.seed)
    cells = [(row, column) for row in range(size) for column in range(size)]
    return Plan(size, _carved(size, chance), *chance.sample(cells, 2))


def shortest_way(plan: Plan, cell: Cell) -> list[str]:
    """Directions from a cell to the goal, by breadth-first search."""
    came_by: dict[Cell, tuple[Cell, str]] = {}
    waiting = deque([plan.goal])
    backwards = {"north": "south", "south": "north", "east": "west", "west": "east"}
    while cell not in came_by and waiting:
        here = waiting.popleft()
        for direction in DIRECTIONS:
            there = plan.neighbour(here, direction)
            if there is not None and there not in came_by and there != plan.goal:
                came_by[there] = (here, backwards[direction])
                waiting.append(there)
    way = []
    while cell != plan.goal:
        cell, direction = came_by[cell]
        way.append(direction)
    return way


def _carved(size: int, chance: random.Random) -> frozenset[tuple[Cell, Cell]]:
    """A spanning tree of the cells: walk to unseen neighbours at random, go back where there is none."""
    walk = [(0, 0)]
    seen = {(0, 0)}
    open_ways: set[tuple[Cell, Cell]] = set()
    while walk:
        row, column = walk[-1]
        beside = [(row + rows, column + columns) for rows, columns in DIRECTIONS.values()]
        unseen = [cell for cell in beside if max(cell) < size and min(cell) >= 0 and cell not in seen]
        if not unseen:
            walk.pop()
            continue
        chosen = chance.choice(unseen)
        open_ways |= {(walk[-1], chosen), (chosen, walk[-1])}
        seen.add(chosen)
        walk.append(chosen)
    return frozenset(open_ways)


def _words(cell: Cell) -> str:
    return f"row {cell[0] + 1}, column {cell[1] + 1}"
