"""Text games: what counts as a command, rewards as rises of the score, the ends, the expert on its one way."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.environment import Facts
from agentgym_rl.environments.text_game import COMMAND_CHARACTERS, Outcome, TextGame
from agentgym_rl.errors import EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task

SCORES = {"north": 0.25, "south": -0.25, "take Coin": 0.5, "pit": -1.0, "mumble": 0.0}
"""What each command adds; "take Coin" after a step north solves the game; "mumble" is heard and not understood."""


class Cave(TextGame):
    """Go north three times, or once and take the coin."""

    facts = Facts(reward_range=(-2.0, 1.0), max_turns=5, expert_success=1.0)
    solutions_made = 0

    def set_up(self, task: Task, with_solution: bool) -> str:
        self.solutions_made += with_solution
        self.heard: list[str] = []
        self.total = 0.25 * task.arguments.get("north", 0)
        return "A cave."

    def solution(self) -> Sequence[str]:
        return ("north", "TAKE COIN")

    def understand(self, line: str) -> str | None:
        return {command.lower(): command for command in SCORES}.get(line)

    def do(self, command: str) -> Outcome:
        self.heard.append(command)
        self.total += SCORES[command]
        solved = command == "take Coin" and self.total >= 0.75
        return Outcome(f"After {command}.", self.total, solved, command == "pit", command != "mumble")

    def help(self) -> str:
        return "Try north."


def started(**arguments):
    cave = Cave()
    cave.reset(Task("t", "cave", arguments))
    return cave


def seen(result):
    return " ".join(message.content for message in result.observation)


def test_rewards_are_the_rises_of_the_score_and_add_up_to_it():
    # Scores after each command: 0.25, 0.0, 0.25, 0.75.
    cave = started()
    results = [cave.step(assistant(command)) for command in ("north", "south", "north", "take coin")]
    assert [result.reward for result in results] == [0.25, -0.25, 0.25, 0.5]
    assert [(result.terminated, result.success) for result in results] == [(False, None)] * 3 + [(True, True)]


def test_a_failure_is_terminated_without_success_and_gives_its_fall_of_the_score():
    cave = started()
    cave.step(assistant("north"))
    result = cave.step(assistant("pit"))
    assert (result.reward, result.terminated, result.success) == (-1.0, True, False)


@pytest.mark.parametrize("reply", ["take coin", "I see it.\nAction: Take  Coin.", "take COIN\n\n"])
def test_the_world_gets_the_command_of_the_last_line_as_it_is_spelt(reply):
    cave = started()
    cave.step(assistant(reply))
    assert cave.heard == ["take Coin"]


@pytest.mark.parametrize("reply", ["", "east", "north\nor not", "nor\x00th", "north\ud800", "n" * 10_000_000])
def test_a_reply_without_a_command_is_refused_with_help_and_does_not_reach_the_world(reply):
    cave = started()
    result = cave.step(assistant(reply))
    assert (result.valid, result.reward, cave.heard) == (False, 0.0, [])
    assert seen(result) == "That is no action here. Try north."


def test_a_command_may_be_as_long_as_the_limit_and_no_longer(monkeypatch):
    monkeypatch.setattr(Cave, "understand", lambda self, line: "mumble")
    cave = started()
    for length in (COMMAND_CHARACTERS, COMMAND_CHARACTERS + 1):
        cave.step(assistant("x" * length))
    assert cave.heard == ["mumble"]


@given(st.text())
def test_no_text_breaks_the_game(text):
    cave = started()
    result = cave.step(assistant(text))
    assert result.valid == (bool(cave.heard) and cave.heard != ["mumble"])


def test_what_the_world_did_not_understand_is_invalid_and_carries_its_answer_and_help():
    cave = started()
    result = cave.step(assistant("mumble"))
    assert (result.valid, seen(result)) == (False, "After mumble. Try north.")


def test_the_limit_cuts_off_also_when_nothing_was_understood():
    cave = started(max_turns=2)
    assert not cave.step(assistant("")).truncated
    result = cave.step(assistant(""))
    assert (result.truncated, result.terminated, result.success) == (True, False, False)
    with pytest.raises(EnvironmentFailed, match="after the end"):
        cave.expert_action()


def test_the_expert_leads_to_the_end_and_its_solution_is_made_once_and_only_when_it_is_asked():
    cave = started()
    assert cave.solutions_made == 0
    cave.step(assistant(cave.expert_action()))
    result = cave.step(assistant(cave.expert_action()))
    assert result.success
    assert cave.solutions_made == 1


def test_an_expert_who_is_asked_late_goes_on_in_the_same_world_with_the_same_score():
    cave = started(north=1)
    cave.step(assistant("north"))
    cave.step(assistant("not a command"))
    assert cave.expert_action() == "TAKE COIN"
    assert cave.heard == ["north"]
    # 0.25 from the task and 0.25 from going north are told already; the coin adds 0.5.
    assert cave.step(assistant("take coin")).reward == 0.5


@pytest.mark.parametrize("other", ["south", "mumble"])
@pytest.mark.parametrize("asked_before", [True, False])
def test_an_expert_is_lost_where_something_else_was_done_and_says_so(other, asked_before):
    cave = started()
    if asked_before:
        cave.expert_action()
    cave.step(assistant(other))
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match=f"knows the way from the start only; '{other}' led away from it$"):
            cave.expert_action()
        cave.step(assistant("north"))


def test_a_solution_that_ends_before_the_game_does_leaves_its_expert_lost(monkeypatch):
    monkeypatch.setattr(Cave, "solution", lambda self: ("north",))
    cave = started()
    cave.step(assistant("north"))
    with pytest.raises(EnvironmentFailed, match="from the start only; it is at its end$"):
        cave.expert_action()


@pytest.mark.parametrize("asked_before", [True, False])
def test_commands_of_the_solution_that_would_be_refused_are_left_out(monkeypatch, asked_before):
    monkeypatch.setattr(Cave, "solution", lambda self: ("open the open door", "north", "west", "take coin"))
    cave = started()
    if asked_before:
        assert cave.expert_action() == "north"
    cave.step(assistant("north"))
    assert cave.expert_action() == "take coin"
    assert cave.step(assistant("take coin")).success


def test_a_new_task_has_a_new_score_and_its_own_solution():
    cave = started()
    cave.step(assistant(cave.expert_action()))
    cave.reset(Task("t", "cave"))
    assert cave.expert_action() == "north"
    assert cave.step(assistant("north")).reward == 0.25


def test_a_snapshot_is_continued_in_another_instance_with_its_score_and_its_expert():
    cave, other = started(), Cave()
    cave.step(assistant("north"))
    cave.step(assistant("?"))
    other.restore(cave.snapshot())
    assert other.expert_action() == "TAKE COIN"
    assert other.step(assistant("take coin")).reward == 0.5


def test_asking_for_a_tasks_solution_ends_what_was_being_played():
    cave = started()
    assert cave.solution_of(Task("u", "cave")) == ["north", "TAKE COIN"]
    with pytest.raises(EnvironmentFailed, match="before reset"):
        cave.step(assistant("north"))
