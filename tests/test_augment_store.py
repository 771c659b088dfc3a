"""The step as a whole: one seed one store, nothing half-written, parents unchanged, and what a trainer sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from doubles_augment import augmented, made, record_of, said
from doubles_cli import Stairs, stairs
from doubles_store import ids, store_of
from typer.testing import CliRunner

from agentgym_rl.commands.augment import add_to
from agentgym_rl.data.annotate import annotate_store
from agentgym_rl.data.augment_rules import RULES
from agentgym_rl.data.augment_try import Script
from agentgym_rl.data.derive import STEP_FILE
from agentgym_rl.data.export import export
from agentgym_rl.data.store import TrajectoryStore
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import Reply
from agentgym_rl.task import Task

ALL = dict.fromkeys(RULES, 2)


def parents():
    return [
        record_of(stairs("a", height=3)),
        record_of(stairs("b"), "down", "up", "up"),
        record_of(stairs("c"), "down"),
        record_of(Task("d", "winding_stairs", {"height": 4}), "up", "down", "up", "up", "up", "up"),
    ]


def digests(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


# One seed, one store


def test_a_seed_gives_the_same_store_whatever_runs_at_once(tmp_path):
    given = parents()
    first = augmented(tmp_path, *given, rules=ALL, out="first", concurrency=1, seed=3)
    second = augmented(tmp_path, *given, rules=ALL, out="second", concurrency=8, seed=3)
    assert digests(tmp_path / "first") == digests(tmp_path / "second")
    assert len(made(first)) == first.report.kept > 0
    assert second.report.to_json() == first.report.to_json()


def test_another_seed_changes_something_else(tmp_path):
    given = record_of(stairs("a", height=9))
    turns = {
        tuple(
            one.provenance.perturbation
            for one in made(augmented(tmp_path, given, rules={"recovery": 1}, seed=seed, out=str(seed)))
        )
        for seed in range(5)
    }
    assert len(turns) > 1


# Parents


def test_parents_stay_as_they_were_and_stand_before_what_was_made_of_them(tmp_path):
    given = parents()
    TrajectoryStore(tmp_path / "source").append(given)
    before = digests(tmp_path / "source")
    done = augmented(tmp_path, rules=ALL)
    assert digests(tmp_path / "source") == before
    records = list(done.store.records())
    assert [one for one in records if one.provenance.source != "augment"] == given
    last = ""
    for one in records:
        assert one.provenance.source != "augment" or one.provenance.parent == last
        last = one.provenance.parent or one.id
    assert len({one.id for one in records}) == len(records)
    assert (done.report.given, done.report.originals) == (4, 4)


def test_originals_may_be_left_out(tmp_path):
    done = augmented(tmp_path, *parents(), rules={"recovery": 1}, keep_originals=False)
    assert list(done.store.records()) == made(done)
    assert (done.report.given, done.report.originals) == (4, 0)


def test_annotations_of_the_parent_are_not_those_of_what_was_made_of_it(tmp_path):
    annotated = annotate_store(store_of(tmp_path / "s", record_of(stairs("a"))), tmp_path / "annotated").store
    done = augmented(tmp_path, *annotated.records(), rules={"recovery": 1})
    assert [one.annotations for one in made(done)] == [{}]


# Twice, and half-way


def test_what_the_store_has_already_is_not_made_again(tmp_path):
    once = augmented(tmp_path / "1", record_of(stairs("a")), rules={"recovery": 1})
    twice = augmented(tmp_path / "2", *once.store.records(), rules={"recovery": 1, "prefix": 1})
    assert twice.report.rules["recovery"].rejected == {"in the store already": 1}
    assert ids(twice.store) == ids(once.store)
    alone = augmented(tmp_path / "3", *once.store.records(), rules={"recovery": 1}, keep_originals=False)
    assert ids(alone.store) == ids(once.store)[1:]


def test_a_mistake_with_half_a_surrogate_pair_is_kept(tmp_path):
    one = record_of(Task("a", "mute_stairs"), "up", "up")
    call = Reply(assistant("", (ToolCall("jump", {"to": "\ud83d"}, "c1"),)))
    other = record_of(Task("b", "mute_stairs"), policy=Script([call, Reply(assistant("up")), Reply(assistant("up"))]))
    new = made(augmented(tmp_path, one, other, policy="script:up,up,up", rules={"recovery": 1}))
    (of_one,) = [record for record in new if record.provenance.parent == one.id]
    (called,) = json.loads(of_one.provenance.perturbation)["mistake"]["tool_calls"]
    assert called["function"]["arguments"] == {"to": "\ud83d"}


def test_the_same_step_again_plays_nothing_and_says_the_same(tmp_path):
    first = augmented(tmp_path, *parents(), rules=ALL)
    Stairs.played.clear()
    again = augmented(tmp_path, rules=ALL)
    assert Stairs.played == []
    assert again.report.to_json() == first.report.to_json()
    with pytest.raises(ConfigurationError, match="was made by another step"):
        augmented(tmp_path, rules=ALL, seed=1)


def test_a_step_that_fails_at_once_leaves_nothing_open_and_nothing_written(tmp_path):
    pytest.importorskip("minigrid", reason='minigrid is not installed: pip install "openmanus-rl[babyai]"')
    played = record_of(Task("b", "babyai", {"level": "GoToObj"}))
    nowhere = replace(played.trajectory, task=Task("b", "babyai", {"level": "GoToNowhere"}))
    broken = replace(played, trajectory=nowhere)
    one = record_of(stairs("a"))
    waiting = replace(one, trajectory=replace(one.trajectory, task=stairs("a", hangs=True)))
    with pytest.raises(ConfigurationError, match="no BabyAI level 'GoToNowhere'"):
        augmented(tmp_path, waiting, broken, rules={"prefix": 1})
    assert Stairs.open_now == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


# What a trainer sees


def test_the_mask_of_the_sft_dataset_covers_the_recovery_and_not_the_mistake(tmp_path):
    pytest.importorskip("verl", reason="verl is not installed")
    from transformers import AutoTokenizer

    from verl_ext.agent_loop.chat_tokens import ChatTokens
    from verl_ext.default_policy import make_default_policy
    from verl_ext.sft_dataset import SftDataset

    words = ["You are on stair 1.", "up", "down", "Answer with up or down."]
    tokenizer = AutoTokenizer.from_pretrained(make_default_policy(tmp_path / "policy", words, hidden_size=8))
    chat = ChatTokens(tokenizer)
    done = augmented(tmp_path, record_of(stairs("a", height=3)), rules={"recovery": 3}, keep_originals=False)
    export(done.store, "sft", tmp_path / "sft.parquet")
    data = SftDataset(str(tmp_path / "sft.parquet"), tokenizer, {})
    assert len(data) == 3
    for item, record in zip(data, done.store.records(), strict=True):
        trajectory = record.trajectory
        ids = chat.opening(trajectory.opening)
        mask = [0] * len(ids)
        mistake = json.loads(record.provenance.perturbation)["turn"]
        for number, turn in enumerate(trajectory.turns):
            reply = chat.encode_reply(turn.reply.message.content)
            last = number == len(trajectory.turns) - 1
            after = [] if last else chat.continuation(turn.observation, reply)
            ids += reply + after
            mask += [int(number != mistake)] * len(reply) + [0] * len(after)
        assert said(record)[mistake] == "down"
        assert item["input_ids"].tolist() == ids
        assert item["loss_mask"].tolist() == mask


# The command


app = typer.Typer()
add_to(app)


@app.callback()
def _several_commands():
    """One command alone would take no name."""


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command_says_what_became_of_every_try(tmp_path):
    store_of(tmp_path / "s", record_of(stairs("a", height=3)), record_of(stairs("c"), "down"))
    command = [
        "augment",
        "--store",
        tmp_path / "s",
        "--out",
        tmp_path / "o",
        "--rule",
        "recovery=2",
        "--rule",
        "prefix",
    ]
    shown = run(*command)
    assert "new 3" in shown.stderr
    rows = [line.rsplit(None, 1) for line in shown.stdout.splitlines()[2:]]
    # a: two mistakes, and a prefix after which the expert does the same; c: not solved, its prefix goes up twice
    assert [(row[0].strip(), int(row[1])) for row in rows if len(row) == 2] == [
        ("given", 2),
        ("recovery: tried", 2),
        ("kept", 2),
        ("parents passed over: not solved", 1),
        ("prefix: tried", 2),
        ("kept", 1),
        ("rejected: the same as its parent", 1),
        ("in the new store", 5),
        ("originals", 2),
        ("new", 3),
    ]
    assert run(*command).stdout == shown.stdout
    settings = json.loads((tmp_path / "o" / STEP_FILE).read_text())["step"]
    assert settings["rules"] == {"recovery": 2, "prefix": 1}
    assert len(TrajectoryStore(tmp_path / "o")) == 5
