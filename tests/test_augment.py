"""Each rule of augmentation on a staircase, worked out by hand: what is kept, trained, and rejected."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from doubles_augment import augmented, made, record_of, said, seen
from doubles_cli import stairs
from doubles_store import record

from agentgym_rl.data.augment_rules import rule_counts
from agentgym_rl.data.chat_files import to_line
from agentgym_rl.data.sft_parquet import is_trained
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.policy import SampledTokens
from agentgym_rl.task import Task


def changed(record):
    return json.loads(record.provenance.perturbation)


def flags(record):
    return [is_trained(turn) for turn in record.trajectory.turns]


def with_tokens(record):
    """Turn t was sampled as the id t."""
    turns = [
        replace(turn, reply=replace(turn.reply, tokens=SampledTokens((number,), (-1.0,))))
        for number, turn in enumerate(record.trajectory.turns)
    ]
    return replace(record, trajectory=replace(record.trajectory, turns=tuple(turns)))


def tokens(record):
    return [turn.reply.tokens and turn.reply.tokens.ids for turn in record.trajectory.turns]


# recovery: the only other action is `down`; from stair 1 it leads to stair 0, and three times `up` to the top


def test_a_recovery_makes_a_mistake_that_is_not_trained_and_makes_it_good(tmp_path):
    parent = with_tokens(record_of(stairs("t", height=3)))
    new = {changed(one)["turn"]: one for one in made(augmented(tmp_path, parent, rules={"recovery": 3}))}
    assert sorted(new) == [0, 1, 2]
    assert said(new[1]) == ["up", "down", "up", "up", "up"]
    assert seen(new[1])[:3] == ["You are on stair 1.", "You are on stair 0.", "You are on stair 1."]
    assert flags(new[1]) == [True, False, True, True, True]
    assert tokens(new[1]) == [(0,), None, None, None, None]
    assert changed(new[1]) == {"rule": "recovery", "turn": 1, "mistake": "down"}
    assert (new[1].provenance.parent, new[1].provenance.policy) == (parent.id, "expert")
    assert new[1].trajectory.success is True


def test_a_mistake_is_written_as_the_other_replies_are(tmp_path):
    parent = record_of(replace(stairs("t"), reply_form="think-tags"))
    (new,) = made(augmented(tmp_path, parent, rules={"recovery": 1}))
    assert set(said(new)) == {"<think></think><action>up</action>", "<think></think><action>down</action>"}


def test_a_recovery_that_does_not_get_there_is_not_kept(tmp_path):
    # the script takes the place of the expert: one `up` from stair 0 is no recovery of two stairs
    done = augmented(tmp_path, record_of(stairs("t")), policy="script:up", rules={"recovery": 1})
    assert made(done) == []
    assert done.report.rules["recovery"].rejected == {"not solved": 1}


def test_an_expert_that_is_missing_is_a_reason(tmp_path):
    done = augmented(tmp_path, record_of(Task("t", "mute_stairs"), "up", "up"), rules={"recovery": 1})
    reason = "an expert policy needs an environment that has an expert"
    assert done.report.rules["recovery"].rejected == {reason: 1}


def test_where_no_action_is_listed_the_mistake_is_another_trajectorys(tmp_path):
    one = record_of(Task("a", "mute_stairs"), "up", "up")
    other = record_of(Task("b", "mute_stairs"), "jump", "up", "up")
    done = augmented(tmp_path, one, other, policy="script:up,up,up", rules={"recovery": 2})
    # a's turns are all `up`, so that its mistakes are b's `jump`; b's may be `up` in place of `jump`
    of_a = [record for record in made(done) if record.provenance.parent == one.id]
    assert sorted(map(said, of_a)) == [["jump", "up", "up"], ["up", "jump", "up"]]
    assert flags(of_a[0]).count(False) == 1


def test_an_only_action_leaves_no_mistake(tmp_path):
    done = augmented(
        tmp_path, record_of(Task("a", "mute_stairs"), "up", "up"), policy="script:up", rules={"recovery": 1}
    )
    assert done.report.rules["recovery"].rejected == {"there is no other action": 1}


def test_what_the_expert_would_do_is_no_mistake(tmp_path):
    # on stair 1, the parent goes down and the expert would go up: no action is left to be wrong
    done = augmented(tmp_path, record_of(stairs("t"), "up", "down", "up", "up"), rules={"recovery": 4})
    assert sorted(changed(one)["turn"] for one in made(done)) == [0, 2, 3]
    assert done.report.rules["recovery"].rejected == {"there is no other action": 1}


def test_a_mistake_that_solves_the_task_is_none(tmp_path):
    # on stair 1, the parent goes down; the expert is not asked, and the only other action, `up`, ends the episode
    parent = record_of(stairs("t"), "up", "down", "up", "up")
    done = augmented(tmp_path, parent, policy="script:up,up", rules={"recovery": 4})
    assert done.report.rules["recovery"].rejected["the mistake ended the episode"] == 1


def test_a_mistake_beyond_the_limit_of_turns_is_none(tmp_path):
    # two turns may be played, and the parent's first two stand before the third
    done = augmented(tmp_path, record_of(stairs("t", height=3)), rules={"recovery": 3}, limits=Limits(max_turns=2))
    assert done.report.rules["recovery"].rejected == {"not solved": 2, "no turn was left for the mistake": 1}


# reorder: down, up, up. Swapped (0, 1): up, down, up ends on stair 1; (0, 2): up, up is at the top a turn earlier


def test_a_reordering_is_kept_if_it_gets_there(tmp_path):
    done = augmented(tmp_path, with_tokens(record_of(stairs("t"), "down", "up", "up")), rules={"reorder": 9})
    (new,) = made(done)
    assert (said(new), flags(new), tokens(new)) == (["up", "up"], [True, True], [None, None])
    assert changed(new) == {"rule": "reorder", "turn": 0, "swapped": [0, 2]}
    assert (new.provenance.policy, new.trajectory.environment_return) == ("a script", 1.0)
    assert done.report.rules["reorder"].rejected == {"not solved": 1}


def test_equal_actions_and_replies_that_reason_are_not_reordered(tmp_path):
    thoughts = record("thinks", "ab")
    turns = [
        replace(turn, reply=replace(turn.reply, message=replace(turn.reply.message, content=f"I think.\n{n}")))
        for n, turn in enumerate(thoughts.trajectory.turns)
    ]
    thinks = replace(thoughts, trajectory=replace(thoughts.trajectory, turns=tuple(turns), fingerprint="known"))
    done = augmented(tmp_path, record_of(stairs("t"), "up", "up"), thinks, rules={"reorder": 1})
    assert done.report.rules["reorder"].passed_over == {"no two bare actions to swap": 2}
    assert done.report.rules["reorder"].tried == 0


# prefix: up, down, up, up. After turn 0 the expert goes up at once; after any other it does what the parent did


def test_a_prefix_is_context_and_ends_another_way(tmp_path):
    done = augmented(tmp_path, with_tokens(record_of(stairs("t"), "up", "down", "up", "up")), rules={"prefix": 3})
    (new,) = made(done)
    assert (said(new), flags(new), tokens(new)) == (["up", "up"], [False, True], [(0,), None])
    assert changed(new) == {"rule": "prefix", "turn": 1}
    assert done.report.rules["prefix"].rejected == {"the same as its parent": 2}


def test_a_prefix_may_be_of_an_episode_that_was_not_solved_and_no_other_rule(tmp_path):
    lost = record_of(stairs("t"), "down")
    done = augmented(tmp_path, lost, rules={"prefix": 1, "recovery": 1, "reorder": 1, "tool_error": 1, "rephrase": 1})
    (new,) = made(done)
    assert (said(new), flags(new)) == (["down", "up", "up"], [False, True, True])
    for name in ("recovery", "reorder", "tool_error", "rephrase"):
        assert done.report.rules[name].passed_over == {"not solved": 1}


# tool_error


def test_a_tool_error_is_answered_by_the_same_action_again(tmp_path):
    (new,) = made(augmented(tmp_path, with_tokens(record_of(stairs("t"))), rules={"tool_error": 1}))
    assert (said(new), flags(new)) == (["up", "up", "up"], [True, True, True])
    assert seen(new) == [changed(new)["error"], "You are on stair 1.", "You are at the top."]
    assert seen(new)[0].startswith("Error: ")
    assert tokens(new) == [(0,), None, None]  # the first was sampled in this conversation, the others were not


def test_the_turn_that_fails_is_found_behind_a_reply_that_can_not_be_read(tmp_path):
    # the environment sees the second reply as its first action
    task = replace(stairs("t"), reply_form="tags")
    parent = record_of(task, "up", "<action>up</action>", "<action>up</action>")
    (new,) = made(augmented(tmp_path, parent, rules={"tool_error": 1}))
    assert changed(new)["turn"] == 1
    assert seen(new)[1:] == [changed(new)["error"], "You are on stair 1.", "You are at the top."]
    assert flags(new) == [False, True, True, True]


# rephrase


def test_other_words_lead_to_the_same_end(tmp_path):
    parent = with_tokens(record_of(Task("t", "winding_stairs", {"height": 3})))
    (new,) = made(augmented(tmp_path, parent, rules={"rephrase": 1}))
    assert said(new) == ["up", "up", "up"]
    assert seen(new) == ["Stair 1 is under your feet.", "Stair 2 is under your feet.", "You are at the top."]
    assert changed(new) == {"rule": "rephrase", "turn": 0, "observations": [1, 2]}
    assert (flags(new), tokens(new)) == ([True] * 3, [(0,), None, None])
    assert new.trajectory.fingerprint == parent.trajectory.fingerprint


def test_words_that_mean_something_else_are_not_kept(tmp_path):
    done = augmented(tmp_path, record_of(Task("t", "lying_stairs")), rules={"rephrase": 1})
    assert done.report.rules["rephrase"].rejected == {"its words mean something else": 1}


def test_nothing_is_rephrased_that_the_environment_does_not_declare(tmp_path):
    done = augmented(tmp_path, record_of(stairs("t")), rules={"rephrase": 1})
    assert done.report.rules["rephrase"].passed_over == {"its environment declares no rephrasing": 1}


# What is context in a parent stays so


def test_a_reply_that_the_parent_does_not_train_is_not_trained_in_what_is_made_of_it(tmp_path):
    parent = record_of(Task("t", "winding_stairs", {"height": 3}))
    first, *others = parent.trajectory.turns
    turns = (replace(first, info={"trained": False}), *others)
    parent = replace(parent, trajectory=replace(parent.trajectory, turns=turns))
    done = augmented(tmp_path, parent, rules={"rephrase": 1, "tool_error": 2, "recovery": 3})
    assert {(changed(new)["rule"], changed(new)["turn"]): flags(new) for new in made(done)} == {
        ("rephrase", 0): [False, True, True],
        ("tool_error", 0): [False, False, True, True],  # done again, it is no better than the first time
        ("tool_error", 1): [False, True, True, True],
        ("recovery", 0): [False, True, True, True],  # the mistake stands in its place
        ("recovery", 1): [False, False, True, True, True],
        ("recovery", 2): [False, True, False, True, True],
    }


# What can't be played again


def test_an_environment_that_does_not_do_the_same_again_gives_nothing(tmp_path):
    # before turn 1, the replay finds out; before turn 0 there is nothing to replay, and only playing it twice does
    drifting = record_of(Task("t", "drifting_stairs"))
    done = augmented(tmp_path, drifting, rules={"recovery": 2, "tool_error": 1})
    assert made(done) == []
    rejected = {"environment_diverged": 1, "played again, it is not the same": 1}
    assert done.report.rules["recovery"].rejected == rejected
    assert done.report.rules["tool_error"].rejected == {"played again, it is not the same": 1}


def test_what_can_not_be_played_again_is_passed_over_or_rejected_with_its_reason(tmp_path):
    dice = record_of(Task("d", "dice_stairs"))
    imported = record("i", "ab", source="import")
    done = augmented(tmp_path, dice, imported, rules={"recovery": 1})
    assert done.report.rules["recovery"].rejected == {"its environment is not deterministic": 1}
    assert done.report.rules["recovery"].passed_over == {"its start is unknown": 1}


def test_what_was_augmented_is_not_augmented_again(tmp_path):
    once = augmented(tmp_path, record_of(stairs("t")), rules={"recovery": 1})
    again = augmented(tmp_path / "again", *once.store.records(), rules={"recovery": 1})
    assert again.report.rules["recovery"].passed_over == {"augmented itself": 1}
    assert again.report.rules["recovery"].tried == 1


def test_two_tries_with_one_outcome_are_kept_once(tmp_path):
    done = augmented(tmp_path, record_of(stairs("t")), rules={"recovery": 4})  # two turns, one mistake each
    assert done.report.rules["recovery"].kept == 2
    assert done.report.rules["recovery"].rejected == {"the same as another one": 2}


# What others read


def test_the_mistake_has_weight_0_in_what_others_read(tmp_path):
    (new,) = made(augmented(tmp_path, record_of(stairs("t")), rules={"recovery": 1}))
    mistake = changed(new)["turn"]
    chat = [one for one in to_line(new.trajectory, "openai")["messages"] if one["role"] == "assistant"]
    assert [one.get("weight", 1) for one in chat] == [int(turn != mistake) for turn in range(len(chat))]
    shared = [one for one in to_line(new.trajectory, "sharegpt")["conversations"] if one["from"] == "gpt"]
    assert [one["loss"] for one in shared] == [turn != mistake for turn in range(len(shared))]


# Rules as they are written


def test_rules_are_read_with_their_tries():
    assert rule_counts(["recovery=3", "reorder"]) == {"recovery": 3, "reorder": 1}


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "an augmentation needs at least one rule; there are: recovery, reorder"),
        (["recovry"], "no rule 'recovry'; did you mean 'recovery'?"),
        (["recovery=0"], "a rule is written RULE or RULE=TRIES, with at least 1 try; given: 'recovery=0'"),
        (["recovery="], "a rule is written RULE or RULE=TRIES, with at least 1 try; given: 'recovery='"),
        (["recovery", "recovery=2"], "the rule 'recovery' stands twice"),
    ],
)
def test_a_rule_that_can_not_work_is_refused(specs, message):
    with pytest.raises(ConfigurationError, match=message):
        rule_counts(specs)


def test_nothing_is_played_without_a_slot(tmp_path):
    with pytest.raises(ConfigurationError, match="concurrency must be at least 1; given: 0"):
        augmented(tmp_path, record_of(stairs("t")), rules={"recovery": 1}, concurrency=0)
