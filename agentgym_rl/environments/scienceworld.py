"""ScienceWorld: thirty tasks of a school science lesson in a house with ten places, from boiling water to genetics.

The simulator runs in a Java machine of the worker's own. Each step asks it for the answer, the score and the end alone;
the list of what can be done (hundreds of actions, a tenth of a second) is made when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentgym_rl.environment import Facts
from agentgym_rl.environments.jvm import Jvm
from agentgym_rl.environments.text_game import Outcome, TextGame
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

TASKS = (
    "boil",
    "melt",
    "freeze",
    "change-the-state-of-matter-of",
    "use-thermometer",
    "measure-melting-point-known-substance",
    "measure-melting-point-unknown-substance",
    "power-component",
    "power-component-renewable-vs-nonrenewable-energy",
    "test-conductivity",
    "test-conductivity-of-unknown-substances",
    "find-living-thing",
    "find-non-living-thing",
    "find-plant",
    "find-animal",
    "grow-plant",
    "grow-fruit",
    "chemistry-mix",
    "chemistry-mix-paint-secondary-color",
    "chemistry-mix-paint-tertiary-color",
    "lifespan-longest-lived",
    "lifespan-shortest-lived",
    "lifespan-longest-lived-then-shortest-lived",
    "identify-life-stages-1",
    "identify-life-stages-2",
    "inclined-plane-determine-angle",
    "inclined-plane-friction-named-surfaces",
    "inclined-plane-friction-unnamed-surfaces",
    "mendelian-genetics-known-plant",
    "mendelian-genetics-unknown-plant",
)
SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "openDoors",
    "openContainers",
    "noElectricalAction",
    "selfWateringFlowerPots",
)
FORMS = (
    "look around, inventory, task, look at X, look in X, examine X, read X, focus on X, open X, close X, activate X, "
    "deactivate X, connect X to Y, disconnect X, use X on Y, mix X, pour X in Y, dunk X in Y, move X to Y, pick up X, "
    "put down X, eat X, flush X, go to X, teleport to X, wait1"
)
"""The forms of actions; X and Y are things in reach, or places."""
_REFUSALS = ("No known action", "Unknown action")


class ScienceWorld(TextGame):
    """Carry out an elementary science experiment.

    Task: `arguments` holds `task` (one of `TASKS`), `variation` (a whole number; `variations()` gives those of a split)
        and, if wanted, `simplifications` (a list of `SIMPLIFICATIONS`; default ["easy"], which is all of them) and
        `max_turns` (default 200). The seed has no meaning.
    Actions: one of `FORMS` with things filled in ("focus on apple", "move metal pot to sink"), as the last line of the
        reply; case, a final dot and a leading "Action:" don't matter. Where it may mean several things, the simulator
        numbers them, and the number is the next action. Anything else is not valid and counts as a turn.
    Observations: the simulator's own text; the first one opens with the task's description.
    Reward: how much the score rises, in hundredths; the scores of a solved task add up to 1. Focusing on the wrong
        thing sets the score to -1.
    End: terminated when the task is complete, or the score is below 0; truncated after `max_turns` turns.
    Splits: the package's own, by the variations of each task; `data_preprocess/scienceworld.py` keeps them.
    Expert: the simulator's own solution, from the start only. It solves variation 0 of all 30 tasks, in 5 to 177 turns;
        making it takes the simulator from under a second to two minutes (mendelian-genetics, on a busy machine: ask for
        it with a deadline above the usual one of a step).
    Source: Wang et al., ScienceWorld, EMNLP 2022, https://arxiv.org/abs/2203.07540; package `scienceworld`.
    Licence: Apache-2.0.

    A played episode (cut), `Task("t", "scienceworld", {"task": "find-living-thing", "variation": 0})`:

        user: Your task is to find a(n) living thing. First, focus on the thing. Then, move it to the red box in the
            kitchen. This room is called the hallway. In it, you see: [...] A door to the kitchen (that is open) [...]
        assistant: go to kitchen
        user: You move to the kitchen.  (reward 0.17)
        assistant: go to outside
        user: You move to the outside.
        assistant: look around
        user: This outside location is called the outside. Here you see: the agent, [...] a blue jay egg [...]
        assistant: focus on blue jay
        user: You focus on the blue jay egg.  (reward 0.5)
        assistant: pick up blue jay
        user: You move the blue jay to the inventory.  (reward 0.08)
        assistant: go to kitchen
        user: You move to the kitchen.
        assistant: move egg blue jay egg in inventory to red box
        user: You move the blue jay to the red box.  (reward 0.17, terminated, success)
    """

    facts = Facts(
        reward_range=(-2.0, 1.0),
        max_turns=200,
        expert_success=0.99,
        can_snapshot=True,
        lists_actions=True,
        domain="text game",
        source="https://arxiv.org/abs/2203.07540",
        licence="Apache-2.0",
    )
    instructions = f"Do the task. Answer with one action. Forms of actions: {FORMS}."
    own_process = True

    def __init__(self) -> None:
        self._jvm = Jvm(
            "scienceworld", "scienceworld.jar", "scienceworld.runtime.pythonapi.PythonInterface", "scienceworld"
        )

    def set_up(self, task: Task, with_solution: bool) -> str:
        name, variation, simplifications = _arguments(task)
        self._server = self._jvm.interface()
        refusal = self._server.load(name, variation, simplifications, with_solution)
        if refusal:
            raise ConfigurationError(f"task {task.id!r} of ScienceWorld: {refusal.strip()}")
        return f"{self._server.getTaskDescription()}\n\n{self._server.step('look around').strip()}"

    def understand(self, line: str) -> str | None:
        return line or None

    def do(self, command: str) -> Outcome:
        observation = self._server.step(command).strip()
        score = round(float(self._server.getScore()), 2)
        solved = score >= 1 and bool(self._server.getCompleted())
        return Outcome(observation, score, solved, score < 0, not observation.startswith(_REFUSALS))

    def actions(self) -> Sequence[str]:
        self.require_open("was asked for its actions")
        listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
        in_reach = self._in_reach()
        return sorted({one["action"] for one in listed if _is_known(one["action"], one["obj_ids"], in_reach)})

    def help(self) -> str:
        return f"Forms of actions: {FORMS}."

    def solution(self) -> Sequence[str]:
        return list(self._server.getGoldActionSequence())

    def variations(self, task: str, split: str) -> Sequence[int]:
        """The package's own variations of a task in one of its splits ("train", "dev", "test").

        Ends the episode that was being played.
        """
        self.turns_left = None
        self.set_up(Task("t", "scienceworld", {"task": task, "variation": 0}), with_solution=False)
        server = self._server
        ask = {"train": server.getVariationsTrain, "dev": server.getVariationsDev, "test": server.getVariationsTest}
        return list(ask[split]())

    def close(self) -> None:
        self._jvm.close()

    def _in_reach(self) -> set[int]:
        """Ids of the things among which the simulator looks for those of an action: of the place, and carried."""
        parser = self._server.agentInterface().get().inputParser()
        agent = self._server.agent().get()
        ids: set[int] = set()
        for root in (agent.getContainer().get(), agent):
            names = json.loads(parser.getAllUniqueReferentsWithTypeLUTJSON(root, False, False))
            ids.update(int(key) for of_kind in names.values() for key in of_kind if key != "desc")
        return ids


def _is_known(action: str, things: Sequence[int], in_reach: set[int]) -> bool:
    """Whether the simulator understands an action that it lists: it also lists those on things in closed containers.

    Places to teleport to are known from everywhere; a number answers the simulator's own question.
    """
    return in_reach.issuperset(things) or action.startswith("teleport to ") or action.isdigit()


def _arguments(task: Task) -> tuple[str, int, str]:
    """Name, variation, and the simplifications as the package reads them."""
    given = task.arguments
    require_allowed_keys(given, ("task", "variation", "simplifications", "max_turns"), "a ScienceWorld task")
    if given.get("task") not in TASKS:
        raise ConfigurationError(
            f"no ScienceWorld task {given.get('task')!r}; {did_you_mean(str(given.get('task')), TASKS)}"
        )
    variation = given.get("variation")
    if not isinstance(variation, int) or isinstance(variation, bool) or not 0 <= variation < 2**31:
        raise ConfigurationError(f"variation of a ScienceWorld task is a whole number from 0; given: {variation!r}")
    simplifications = given.get("simplifications", ["easy"])
    for name in simplifications:
        if name not in SIMPLIFICATIONS:
            raise ConfigurationError(f"no ScienceWorld simplification {name!r}; {did_you_mean(name, SIMPLIFICATIONS)}")
    return given["task"], variation, ",".join(simplifications)
