"""A reply's form: what is written is read again, what can't be read is answered, and `play()` keeps to the task's."""

from __future__ import annotations

import asyncio

import pytest
from doubles import Guess, task_for
from doubles_toolbox import Numbers, question
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data.annotate import actions
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import Limits, play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.exported_tools import by_calls
from agentgym_rl.policy import ExpertPolicy, RandomPolicy, ScriptedPolicy
from agentgym_rl.reply_form import FORMS
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason

SECRET_4 = next(seed for seed in range(50) if Guess().draw(task_for(Guess, seed=seed)) == 4)


def guessing(form, prompt=""):
    task = task_for(Guess, seed=SECRET_4)
    return Task(task.id, task.environment, task.arguments, prompt, seed=SECRET_4, reply_form=form)


def played(task, lines=None, limits=None, make_policy=None):
    async def episode():
        async with opened(task.environment) as environment:
            policy = make_policy(environment) if make_policy else ScriptedPolicy(lines)
            return await play(policy, environment, task, limits)

    return asyncio.run(episode())


def test_a_prompt_around_the_environments_instructions_tells_the_form_once():
    within = played(guessing("tags", "Be brief. {{instructions}}"), []).opening[0].content
    assert within == f"Be brief. {played(guessing('tags'), []).opening[0].content}"
    assert (
        within.count("<action>") == played(guessing("tags", "Be brief."), []).opening[0].content.count("<action>") > 0
    )


@pytest.mark.parametrize(
    ("form", "reply", "action"),
    [
        ("bare", " go north\n", " go north\n"),
        ("bare", "<think>a</think>go", "<think>a</think>go"),
        ("think", "<think>It is open.</think>\n\ngo north\n", "go north"),
        ("think", "It is open, says a template that began the thought.</think>go north", "go north"),
        ("think", "<think></think><action>go</action>", "<action>go</action>"),
        ("tags", "\n<action> go north </action> ", "go north"),
        ("tags", "<action>two\nlines</action>", "two\nlines"),
        ("think-tags", "<think>a <action>no</action></think><action>go</action>", "go"),
    ],
)
def test_an_action_is_read(form, reply, action):
    assert FORMS[form].read(reply) == (action, "")


@pytest.mark.parametrize(
    ("form", "reply", "problem"),
    [
        ("think", "go north", "there is no </think> in it"),
        ("think", "<think>I never end", "there is no </think> in it"),
        ("think", "<think>a</think> \n", "it has no action"),
        ("tags", "go north", "must stand once between <action> and </action>, and alone"),
        ("tags", "I say <action>go</action>", "and alone"),
        ("tags", "<action>go</action><action>stay</action>", "must stand once"),
        ("tags", "<action>go", "must stand once"),
        ("tags", "<action>  </action>", "it has no action"),
        ("think-tags", "<action>go</action>", "there is no </think> in it"),
        ("think-tags", "<think>a</think>go", "must stand once"),
    ],
)
def test_what_can_not_be_read_is_answered_with_what_is_wrong_and_with_the_form(form, reply, problem):
    action, said = FORMS[form].read(reply)
    assert action == ""
    assert problem in said
    assert said.endswith(FORMS[form].instructions)


@given(st.sampled_from(sorted(FORMS)), st.text(), st.text())
def test_an_action_that_is_written_is_read_again(name, action, thought):
    form = FORMS[name]
    thought = thought.replace("</think>", "")
    unclear = form.tags and ("<action>" in action or "</action>" in action)
    written = form.read(form.write(action, thought))
    if form.is_bare:
        assert written == (action, "")
    elif action.strip() and not unclear:
        assert written == (action.strip(), "")
    else:
        assert written.problem


@given(st.sampled_from(sorted(FORMS)), st.text())
def test_any_text_is_an_action_or_a_problem_and_never_both(name, text):
    action, problem = FORMS[name].read(text)
    assert FORMS[name].is_bare or bool(action) != bool(problem)


def test_the_environment_sees_the_action_and_the_trajectory_keeps_the_reply():
    replies = ["<think>The middle.</think><action>4</action>"]
    trajectory = played(guessing("think-tags"), replies)
    assert (trajectory.stop, trajectory.success) == (StopReason.TERMINATED, True)
    assert [turn.reply.message.content for turn in trajectory.turns] == replies
    assert trajectory.task == guessing("think-tags")


def test_a_reply_without_the_form_is_not_valid_and_does_not_reach_the_environment():
    trajectory = played(guessing("tags"), ["4", "<action>4</action>"])
    first, second = trajectory.turns
    assert (first.valid, second.valid, trajectory.success) == (False, True, True)
    assert "This reply can't be read" in first.observation[0].content


def test_replies_that_can_not_be_read_end_with_the_limits_of_the_episode():
    trajectory = played(guessing("tags"), ["4"] * 99, Limits(max_turns=9))  # Guess itself would end after 6
    assert (trajectory.stop, len(trajectory.turns)) == (StopReason.MAX_TURNS, 9)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_the_prompt_tells_of_the_form_whoever_wrote_it(form):
    for prompt, expected in (("", "Find the number."), ("Guess well.", "Guess well.")):
        system = played(guessing(form, prompt), ["4"]).opening[0].content
        assert system == "\n\n".join(filter(None, [expected, FORMS[form].instructions]))


@pytest.mark.parametrize("form", sorted(FORMS))
def test_expert_and_random_policy_write_in_the_form(form):
    expert = played(guessing(form), make_policy=ExpertPolicy)
    assert expert.success
    assert expert.turns[0].reply.message.content == FORMS[form].write("4")
    guesses = played(guessing(form), make_policy=lambda environment: RandomPolicy(environment, 0))
    assert all(turn.valid for turn in guesses.turns)


async def test_calls_that_stand_beside_the_text_have_no_form():
    task = question(Numbers, tool_format="native")
    formed = Task(task.id, task.environment, task.arguments, reply_form="tags")
    async with opened(task.environment) as environment:
        with pytest.raises(ConfigurationError, match="takes calls that stand beside the text; .*given: 'tags'"):
            await play(ScriptedPolicy(["x"]), environment, formed)


def test_a_task_that_is_played_by_calls_has_no_form():
    with pytest.raises(ConfigurationError, match="played by calls of tools, so its reply_form must be 'bare'"):
        by_calls(guessing("think"))


def test_an_unknown_form_is_named():
    with pytest.raises(DataError, match="no reply_form 'tag'; did you mean 'tags'?"):
        guessing("tag")


def test_what_was_done_is_told_without_the_thoughts_before_it():
    replies = ["<think>a</think>1", "<think>b</think>1", "no thought"]
    assert actions(played(guessing("think"), replies)) == ["1", "1", "no thought"]
