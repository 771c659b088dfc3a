"""The contract check passes whole environments, and names each rule that is broken once."""

import doubles
import pytest
from doubles import Countdown, Guess, name_of, tasks_for

from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import ContractBroken, Report, Result, check_environment
from agentgym_rl.environments.contract_rules import RULES
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task

SOON = Limits(reset_seconds=0.2, step_seconds=0.2)

BROKEN = [
    # double, the rules that it breaks, what their messages say
    ("NoFacts", ["facts"], "`facts` must be a Facts; given: NoneType"),
    ("WantsArguments", ["facts"], "making an instance raised TypeError: .*missing 1 required positional argument"),
    ("ReversedRange", ["facts"], r"reward_range must be \(lowest, highest\); given: \(1.0, 0.0\)"),
    ("NoTurns", ["facts"], "max_turns must be at least 1; given: 0"),
    ("OverclaimingFacts", ["facts"], r"expert_success is a share in \(0, 1\], or None without expert; given: 90.0"),
    ("RaisesInReset", ["answers"], "reset for task 't0' raised ValueError: the level file is broken"),
    ("HangsInReset", ["answers"], "reset for task 't0' gave no answer within 0.2 s"),
    ("ReturnsNothingFromReset", ["answers"], "reset for task 't0' raised TypeError"),
    ("Raises", ["answers"], "step with '4' raised ValueError: seven"),
    ("HangsAwaiting", ["answers"], "step with '2' gave no answer within 0.2 s"),
    ("ReturnsNothing", ["answers"], "step with '4' raised TypeError: the answer must be a StepResult; given: NoneType"),
    ("ListsNothing", ["answers"], r"`actions` names at least one action as text; given: \[\]"),
    ("EmptyOpening", ["observations"], "the first observation of task 't0' is empty"),
    (
        "SystemOpening",
        ["observations"],
        "the first observation of task 't0' has a message of role 'system'; allowed: u",
    ),
    ("SilentTurns", ["observations"], "the observation of turn 0 of task 't0' is empty"),
    ("RewardTooHigh", ["rewards"], r"reward of turn 2 of task 't0' is 1.0, outside of facts.reward_range \(0.0, 0.5\)"),
    ("NeverEnds", ["ends_by_limit"], "task 't0' had not ended after 6 turns of garbage actions; count every turn"),
    ("InvalidTurnsAreFree", ["ends_by_limit"], "had not ended after 6 turns of garbage actions"),
    ("BothEndings", ["one_ending"], "turn 2 of task 't0' is terminated and truncated; a task that came to its own end"),
    (
        "DifferentOpening",
        ["reproducible", "no_leak", "concurrent", "reusable", "snapshot"],
        "its first observation was",
    ),
    ("DriftingReward", ["reproducible", "no_leak", "concurrent", "reusable", "snapshot"], "the reward of turn 2 was"),
    ("SharedSecret", ["no_leak", "concurrent"], "while another instance took turns with it .* 'lower'.* 'higher'"),
    ("OnlyFew", ["concurrent"], "reset for task '..' raised RuntimeError: no free slot"),
    ("ClosesOnce", ["close_twice"], "the second close before reset raised RuntimeError: closed already"),
    ("ClosesOnlyWhatWasReset", ["close_twice"], "the first close before reset raised AttributeError"),
    ("ClosesOnlyWhatWorked", ["close_twice"], "the first close after a failed step raised RuntimeError: it is broken"),
    ("HangsInClose", ["close_twice"], "the first close before reset gave no answer within 0.1 s"),
    ("ResetsOnce", ["reusable"], "reset for task 't1' raised RuntimeError: make a new one"),
    ("MustBeFinished", ["reusable"], "reset for task 't1' raised RuntimeError: finish the last one first"),
    ("KeepsOldBounds", ["reusable"], "task 't1' went differently after another task was left half-way"),
    ("PoorExpert", ["expert"], "the expert solved 0.67 of 3 tasks, facts.expert_success claims 1.0; unsolved: t0"),
    ("ForgetfulSnapshot", ["snapshot"], "task 't0' went differently after a restore in the same instance"),
    ("RestoresOnlyItself", ["snapshot"], "restore in a new instance raised AttributeError"),
    ("TextSnapshot", ["snapshot"], "a snapshot is bytes; given: str"),
    ("ListsTooMuch", ["listed_actions"], "the action '0' was listed, but answered with valid=False"),
    ("RaisesOnGarbage", ["invalid_action"], "step with '' raised ValueError: invalid literal for int"),
    ("TakesGarbage", ["invalid_action"], "the action '' was taken as valid; answer with StepResult.going_on"),
    ("RefusesWithoutAWord", ["invalid_action", "observations"], "the action '' was refused without a word"),
    ("GarbageSolves", ["invalid_action"], "the action '' solved the task"),
    ("AnyTextSolves", ["invalid_action"], "the action '' solved the task"),
]


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("double", [Guess, Countdown])
async def test_a_whole_environment_keeps_every_rule(double, isolation):
    report = await check_environment(name_of(double), tasks_for(double, 2), isolation=isolation)
    assert not report.broken, str(report)
    report.raise_if_failed()
    assert [result.rule for result in report.results] == ["facts", *RULES]


@pytest.mark.parametrize(("double", "rules", "message"), BROKEN, ids=[row[0] for row in BROKEN])
async def test_a_broken_rule_is_named_and_its_message_says_what_is_wrong(double, rules, message, monkeypatch):
    hangs = double.startswith("Hangs")
    if hangs:
        monkeypatch.setattr(registry, "CLOSE_SECONDS", 0.1)
    double = getattr(doubles, double)
    report = await check_environment(name_of(double), tasks_for(double), SOON if hangs else None)
    assert [result.rule for result in report.broken] == rules
    with pytest.raises(ContractBroken, match=f"{rules[0]}: .*{message}"):
        report.raise_if_failed()


def test_every_rule_is_broken_at_least_once():
    assert {rule for _, rules, _ in BROKEN for rule in rules} == {"facts", *RULES}


async def test_a_reward_that_is_no_number_is_named():
    report = await check_environment("double-nanreward", tasks_for(doubles.NanReward))
    assert "the reward of turn 0 of task 't0' is nan; a reward is a finite number" in str(report)


async def test_draws_that_no_seed_decides_are_found():
    report = await check_environment("double-unseeded", tasks_for(doubles.Unseeded))
    assert "reproducible" in [result.rule for result in report.broken]


async def test_an_environment_that_says_it_is_random_is_not_compared_but_still_played():
    report = await check_environment("double-honestlyrandom", tasks_for(doubles.HonestlyRandom))
    assert not report.broken, str(report)
    passed = {result.rule: result.passed for result in report.results}
    assert passed["reproducible"] is None
    assert passed["concurrent"] is True


async def test_what_the_facts_do_not_promise_is_not_checked_and_says_so():
    report = await check_environment(name_of(Countdown), tasks_for(Countdown))
    not_checked = {result.rule: result.message for result in report.results if result.passed is None}
    assert not_checked == {"listed_actions": "facts.lists_actions is False", "snapshot": "facts.can_snapshot is False"}
    report = await check_environment("double-resetsonceandsaysso", tasks_for(doubles.ResetsOnceAndSaysSo))
    assert not report.broken, str(report)
    assert "-    reusable: facts.reusable is False" in str(report)
    report = await check_environment("double-liststoomuch", tasks_for(doubles.ListsTooMuch))
    assert "-    expert: facts.expert_success is None" in str(report)


async def test_where_any_text_is_an_action_none_need_be_refused():
    report = await check_environment("double-anytext", tasks_for(doubles.AnyText))
    assert not report.broken, str(report)


async def test_after_a_call_that_fails_nothing_else_is_tried():
    report = await check_environment("double-hangsinreset", tasks_for(doubles.HangsInReset), SOON)
    assert [result.passed for result in report.results] == [True, False, *[None] * (len(RULES) - 1)]
    assert report.results[-1].message == "not checked: 'answers' is broken"


async def test_one_task_is_enough():
    report = await check_environment(name_of(Guess), tasks_for(Guess, 1))
    assert not report.broken, str(report)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "checking 'double-guess' needs tasks of it; given: none"),
        ([Task("t", "maze")], "checking 'double-guess' needs tasks of it; given: t"),
    ],
)
async def test_tasks_that_can_not_be_checked_are_refused(tasks, message):
    with pytest.raises(ConfigurationError, match=message):
        await check_environment(name_of(Guess), tasks)


async def test_an_unknown_environment_is_refused():
    with pytest.raises(ConfigurationError, match="no environment 'moor'"):
        await check_environment("moor", [Task("t", "moor")])


def test_a_report_reads_as_one_line_a_rule():
    report = Report("maze", (Result("a", True), Result("b", False, "is wrong"), Result("c", None, "not claimed")))
    assert str(report) == "ok   a\nFAIL b: is wrong\n-    c: not claimed"
    with pytest.raises(ContractBroken, match=r"^environment 'maze' breaks its contract:\n  b: is wrong$"):
        report.raise_if_failed()
