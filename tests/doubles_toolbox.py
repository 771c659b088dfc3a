"""Toolboxes for tests, which keep every rule of the environment contract."""

import asyncio
import threading

from agentgym_rl.environments.toolbox import Toolbox
from agentgym_rl.task import Task
from agentgym_rl.tools import ToolError


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def halve(number: int) -> float:
    """Half of a number."""
    return number / 2


class Numbers(Toolbox):
    """A notebook, and functions that are no methods."""

    instructions = "Compute."

    def note(self, number: int) -> list[int]:
        """Write a number down, and read all of them."""
        self.notes.append(number)
        return self.notes

    def erase(self, number: int) -> None:
        """Strike a number out."""
        if number not in self.notes:
            raise ToolError(f"{number} is not written down; there is: {self.notes}")
        self.notes.remove(number)

    def blank(self) -> str:
        """Nothing."""
        return ""

    def crash(self) -> str:
        """Crash."""
        raise OSError("disk full")

    def hang(self) -> str:
        """Hang."""
        self.release.wait(10)
        return "late"

    functions = (note, erase, blank, crash, hang, add, halve)

    def begin(self, task: Task) -> None:
        self.notes: list[int] = []
        self.release = threading.Event()

    def check(self, answer: str, task: Task) -> float:
        if answer == "nearly":
            return 0.5
        return float(answer == task.reference_answer)


class Submits(Numbers):
    """Answers through a tool, and sets itself up and judges while it awaits."""

    answer_tool = "submit"

    async def begin(self, task: Task) -> None:
        await asyncio.sleep(0)
        super().begin(task)

    async def check(self, answer: str, task: Task) -> float:
        await asyncio.sleep(0)
        return super().check(answer, task)


class Overpays(Numbers):
    def check(self, answer: str, task: Task) -> float:
        return 2.0


def name_of(box: type) -> str:
    return f"{box.__module__}:{box.__name__}"


def question(box: type, id: str = "t", **arguments: object) -> Task:
    return Task(id, name_of(box), {"question": "How much is 1 + 2?", **arguments}, reference_answer="3")
