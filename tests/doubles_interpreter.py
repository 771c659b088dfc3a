"""Environments that say where they ran."""

import os
import subprocess
import sys

from doubles import Guess

from agentgym_rl.environment import StepResult
from agentgym_rl.messages import Message

ELSEWHERE = '''
import importlib.util, sys
import only_here
from agentgym_rl.environment import BlockingEnvironment, Facts, StepResult
from agentgym_rl.messages import user

class Maze(BlockingEnvironment):
    """Answers whether a package can be imported, and from which file."""

    facts = Facts(reward_range=(0.0, only_here.BEST), max_turns=3)

    def reset(self, task):
        return [user(sys.executable)]

    def step(self, action):
        found = importlib.util.find_spec(action.content)
        return StepResult.going_on(str(found and found.origin))

class Guided(Maze):
    """Has an expert, whose only action is the end."""

    facts = Facts(reward_range=(0.0, 1.0), max_turns=3, expert_success=1.0)

    def step(self, action):
        return StepResult.at_end(1.0, success=action.content == "out")

    def expert_action(self):
        return "out"
'''
"""A module that is installed, with its package `only_here`, in another interpreter alone."""


class WantsOwnProcess(Guess):
    """Writes to its standard output in each of the ways there are, and tells its process."""

    own_process = True

    def step(self, action: Message) -> StepResult:
        print("by print")
        sys.stdout.flush()
        os.write(1, b"by descriptor\n")
        subprocess.run(["echo", "by a child"], check=True)
        return StepResult.going_on(str(os.getpid()))


class WantsNoProcess(WantsOwnProcess):
    own_process = False
