"""Any environment that takes text, in which a reply writes its action in a form of its own (`reply_form`).

Invariant: no reply is dropped in silence. One that can't be read is answered with what is wrong and counts as not
valid; the environment does not see it, so only the limits of the episode count it as a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentgym_rl.environment import StepResult
from agentgym_rl.environments.wrapper import Wrapper
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import Message
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task


class WrittenAction(Wrapper):
    """Reads the action in a reply, and gives the environment that alone.

    `play()` puts it around the environment of a task whose `reply_form` is not "bare".
    """

    _form = FORMS["bare"]

    @property
    def instructions(self) -> str:  # type: ignore[override]
        return self._told(self.inner.instructions)

    def task(self, task: Task) -> Task:
        """The task with what its own system prompt, if it brings a whole one, has to say of the form."""
        self._form = FORMS[task.reply_form]
        return replace(task, prompt=self._told(task.prompt)) if task.replaces_instructions else task

    async def reset(self, task: Task) -> Sequence[Message]:
        observation = await self.inner.reset(task)
        if self.inner.tools:
            raise ConfigurationError(
                f"environment {task.environment!r} takes calls that stand beside the text; the task's reply_form must "
                f"be 'bare'; given: {task.reply_form!r}"
            )
        return observation

    async def step(self, action: Message) -> StepResult:
        written = self._form.read(action.content)
        if written.problem:
            return StepResult.going_on(written.problem, valid=False)
        return await self.inner.step(replace(action, content=written.action))

    def _told(self, prompt: str) -> str:
        return "\n\n".join(filter(None, [prompt, self._form.instructions]))
