"""Training plans: what one may say, the command that each stage becomes, and the message for what can't work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentgym_rl.cli import app
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.training.plan import Plan, read_plan
from agentgym_rl.training.references import resolve_variables, substitute
from agentgym_rl.training.verl_arguments import override


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("sft", "grpo"):
        (tmp_path / f"{name}.yaml").write_text("")
    return tmp_path


def read(folder: Path, content: object, **settings: str) -> Plan:
    (folder / "plan.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return read_plan(folder / "plan.yaml", folder / "out", settings)


def stages(folder: Path, *given: dict, **top: object) -> dict[str, list[str]]:
    """Full name -> command."""
    return {stage.name: list(stage.command) for stage in read(folder, {**top, "stages": list(given)}).stages}


def refused(folder: Path, *given: dict, **top: object) -> str:
    with pytest.raises(ConfigurationError) as error:
        stages(folder, *given, **top)
    return str(error.value)


def run(name: str, *words: str, **more: object) -> dict:
    return {"name": name, "kind": "command", "command": list(words or ["true"]), **more}


# The command of each kind


def test_an_sft_stage_is_verls_sft_trainer(folder: Path) -> None:
    stage = {"name": "warm", "kind": "sft", "config": str(folder / "sft.yaml"), "data": "d.parquet", "steps": 90}
    assert stages(folder, {**stage, "overrides": ["trainer.seed=3"], "processes": 2}, policy="start") == {
        "warm": [
            *("torchrun", "--standalone", "--nproc_per_node=2", "-m", "verl.trainer.sft_trainer"),
            *("--config-dir", str(folder), "--config-name", "sft"),
            "data.train_files=d.parquet",
            "model.path=start",
            "checkpoint.save_contents=[model,optimizer,extra,hf_model]",
            "trainer.total_training_steps=90",
            f"trainer.default_local_dir={folder}/out/warm/checkpoints",
            "trainer.resume_mode=auto",
            "trainer.logger=[console,file]",
            "trainer.seed=3",
        ]
    }


def test_a_grpo_stage_is_verls_main_ppo_from_the_policy_that_the_round_starts_from(folder: Path) -> None:
    stage = {"name": "learn", "kind": "grpo", "config": str(folder / "grpo.yaml"), "steps": 60}
    stage |= {"train": "a.parquet", "validation": "b.parquet", "overrides": ["data.seed=3"]}
    made = stages(folder, {"rounds": 2, "stages": [stage]}, policy="start")

    def command(start: str, number: int) -> list[str]:
        return [
            *("python", "-m", "verl.trainer.main_ppo", "--config-dir", str(folder), "--config-name", "grpo"),
            "data.train_files=a.parquet",
            "data.val_files=b.parquet",
            f"actor_rollout_ref.model.path={start}",
            "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
            "trainer.total_training_steps=60",
            f"trainer.default_local_dir={folder}/out/round-{number}/learn/checkpoints",
            "trainer.resume_mode=auto",
            "trainer.logger=[console,file]",
            "data.seed=3",
        ]

    first = f"{folder}/out/round-1/learn/policy"
    assert made == {"round-1/learn": command("start", 1), "round-2/learn": command(first, 2)}


@pytest.mark.parametrize("kind", ["sample", "evaluate"])
def test_a_stage_that_plays_is_openmanus_rl_eval(folder: Path, kind: str) -> None:
    stage = {"name": "play", "kind": kind, "tasks": "t.parquet", "episodes": 4, "temperature": 0.5, "max_tokens": 6}
    made = stages(folder, {**stage, "seed": 7}, policy="start")
    written = [
        "--out",
        f"{folder}/out/play/result.json",
        "--save-trajectories",
        f"{folder}/out/play/trajectories.jsonl",
    ]
    options = ["--episodes", "4", "--temperature", "0.5", "--max-tokens", "6", "--seed", "7"]
    words = ["openmanus-rl", "eval", "--tasks", "t.parquet", "--policy", "checkpoint:start"]
    assert made == {"play": [*words, *options, *written]}


def test_a_select_stage_is_openmanus_rl_select(folder: Path) -> None:
    stage = {"name": "best", "kind": "select", "trajectories": ["a.jsonl", "b.jsonl"], "top": 2, "min_return": 0.5}
    short = {"name": "any", "kind": "select", "trajectories": "a.jsonl"}
    made = stages(folder, {**stage, "only_success": True, "distinct": True}, short)
    assert made["best"] == [
        *("openmanus-rl", "select", "--trajectories", "a.jsonl", "--trajectories", "b.jsonl"),
        *("--top", "2", "--min-return", "0.5", "--only-success", "--distinct"),
        *("--out", f"{folder}/out/best/sft.parquet"),
    ]
    assert made["any"] == [
        *("openmanus-rl", "select", "--trajectories", "a.jsonl", "--out", f"{folder}/out/any/sft.parquet")
    ]


def test_a_command_stage_is_what_it_says(folder: Path) -> None:
    assert stages(folder, run("data", "make", "it all", "${HOME}")) == {"data": ["make", "it all", "${HOME}"]}


def test_every_option_that_a_stage_gives_is_one_of_its_command(folder: Path) -> None:
    play = {"name": "p", "kind": "evaluate", "tasks": "none.parquet", "policy": "expert", "episodes": 1, "seed": 1}
    play |= {"temperature": 1, "max_tokens": 1, "max_turns": 1, "concurrency": 1, "limit": 1, "isolation": "thread"}
    pick = {"name": "s", "kind": "select", "trajectories": "none.jsonl", "top": 1, "min_return": 1}
    for command in stages(folder, play, {**pick, "only_success": True, "distinct": True}).values():
        result = CliRunner().invoke(app, command[1:])
        assert "error: there is no file none" in result.stderr, result.output


# References


def test_references_are_resolved_in_every_value(folder: Path) -> None:
    made = stages(
        folder,
        run("data", "make", "{out}/x", policy="{out}/start"),
        run("use", "{data}/x", "{policy}", "{root}-{seed}"),
        variables={"root": "/r{seed}", "seed": 3},
    )
    out = f"{folder}/out"
    assert made == {"data": ["make", f"{out}/data/x"], "use": [f"{out}/data/x", f"{out}/data/start", "/r3-3"]}


def test_a_stage_name_is_the_newest_folder_and_a_round_has_its_number(folder: Path) -> None:
    made = stages(
        folder,
        run("play"),
        {"rounds": "{n}", "stages": [run("pick", "{round}", "{play}"), run("play", "{pick}")]},
        run("after", "{play}"),
        variables={"n": 2},
    )
    out = f"{folder}/out"
    assert made == {
        "play": ["true"],
        "round-1/pick": ["1", f"{out}/play"],
        "round-1/play": [f"{out}/round-1/pick"],
        "round-2/pick": ["2", f"{out}/round-1/play"],
        "round-2/play": [f"{out}/round-2/pick"],
        "after": [f"{out}/round-2/play"],
    }


def test_other_braces_stay_as_they_are(folder: Path) -> None:
    words = ["agentgym.limits={max_turns: 8}", "${a}", "{}", "{A}", "{a b}"]
    assert stages(folder, run("x", *words), variables={"a": "no"}) == {"x": words}


def test_settings_replace_variables_and_numbers_may_come_as_text(folder: Path) -> None:
    play = {"name": "p", "kind": "sample", "policy": "expert", "tasks": "t", "episodes": "{n}", "seed": "{seed}"}
    content = {"variables": {"n": 1, "seed": "{n}"}, "stages": [play]}
    (stage,) = read(folder, content, n="5").stages
    assert stage.command[6:10] == ("--episodes", "5", "--seed", "5")


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_-]{0,3}", fullmatch=True), st.text("ab {}$", max_size=6)))
def test_variables_without_references_stay_what_they_are(variables: dict[str, str]) -> None:
    plain = {name: value.replace("{", "<") for name, value in variables.items()}
    assert resolve_variables(plain) == plain
    assert substitute(list(plain.values()), plain, "here") == list(plain.values())


# Values that hydra reads


@example("~")
@example("it's")
@given(st.text(st.characters(exclude_characters="\\$", exclude_categories=["C"]), min_size=1, max_size=12))
def test_hydra_reads_a_value_back_as_the_text_that_it_was(value: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    read = OverridesParser.create().parse_override(override("a.b", f"/data/{value}"))
    assert read.key_or_group == "a.b"
    assert str(read.value()) == f"/data/{value}"


# What can't work


GRPO = {"name": "learn", "kind": "grpo", "config": "c.yaml", "train": "a", "validation": "b", "steps": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"name": "x", "kind": "stf"}], "stage 'x': there is no kind 'stf'; did you mean 'sft'?"),
        ([{"name": "x"}], "stage 'x': there is no kind 'None'; known: command, evaluate, grpo, sample, select, sft"),
        ([run("x", colour="red")], "stage 'x' has no 'colour'; known: command, policy"),
        ([run("x", polcy="p")], "stage 'x' has no 'polcy'; did you mean 'policy'?"),
        ([{"kind": "command"}], "every stage needs a name; given: kind"),
        ([{"name": "x", "kind": "sample"}], "stage 'x' needs 'tasks'; given: nothing"),
        ([{**GRPO, "steps": "ten"}], "stage 'learn': steps must be a whole number; given: 'ten'"),
        ([{**GRPO, "steps": 1.5}], "stage 'learn': steps must be a whole number; given: 1.5"),
        ([{**GRPO, "overrides": {"a": 1}}], "stage 'learn': overrides must be text or a list of texts"),
        ([{**GRPO}], "stage 'learn': config must be a .yaml file; given: 'c.yaml', which is none"),
        ([run("x", "{y}")], "stage 'x': there is no {y} here; known: out"),
        ([run("x", "{otu}")], "stage 'x': there is no {otu} here; did you mean 'out'?"),
        ([run("x", "{y}"), run("y")], "stage 'x': there is no {y} here; that stage does not come before this one"),
        ([run("x", "{x}")], "stage 'x': there is no {x} here; that stage does not come before this one"),
        ([run("x", "{round}")], "stage 'x': there is no {round} here; this stage is in no block of rounds"),
        ([run("x"), run("x")], "2 stages are called 'x'"),
        ([run("X")], "a stage's name is lower case, such as warm-start; given: 'X'"),
        ([run("../x")], "a stage's name is lower case, such as warm-start; given: '../x'"),
        ([run("out")], "no stage can be called 'out': {out} has a meaning of its own"),
        ([run("round-1")], "no stage can be called 'round-1': that is the folder of a round"),
        ([{"rounds": 0, "stages": [run("x")]}], "rounds must be at least 1; given: 0"),
        ([{"rounds": 1, "stages": []}], "the stages of a block of rounds must be a list with at least one stage"),
        ([{"rounds": 1, "stage": []}], "a block of rounds has no 'stage'; did you mean 'stages'?"),
        ([{"rounds": 1, "stages": [{"rounds": 2, "stages": []}]}], "every stage needs a name; given: rounds, stages"),
        ([3], "a stage must be a mapping; given: 3"),
        ([], "stages must be a list with at least one stage; given: []"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_with_the_stage_and_the_reason(
    folder: Path, given: list, message: str
) -> None:
    top = {"policy": "start"} if "steps" in str(given) else {}
    assert refused(folder, *given, **top).startswith(message)


def test_a_policy_that_nobody_gives_is_said(folder: Path) -> None:
    message = "stage 'learn': there is no {policy} here; no stage before it trains one: give the plan's `policy`"
    assert refused(folder, GRPO) == message


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"a": "{b}", "b": "x{c}", "c": "{b}"}, "variables refer to each other in a circle: b -> c -> b"),
        ({"a": "{a}"}, "variables refer to each other in a circle: a -> a"),
        ({"a": "{b}"}, "variable 'a': there is no {b} here; known: none"),
        ({"a": [1]}, "variable 'a' must be text, a number, true or false; given: [1]"),
        ({"A": 1}, "a variable's name is lower case, such as max_turns; given: 'A'"),
        ({"policy": 1}, "no variable can be called 'policy': {policy} has a meaning of its own"),
        ({"x": 1}, "no stage can be called 'x': that is a variable's name"),
        (3, "variables must be a mapping; given: 3"),
    ],
)
def test_variables_that_cannot_work_are_refused(folder: Path, variables: object, message: str) -> None:
    assert refused(folder, run("x"), variables=variables) == message


def test_a_file_that_is_no_plan_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"there is no plan .*none\.yaml"):
        read_plan(folder / "none.yaml", folder)
    with pytest.raises(DataError, match=r"plan\.yaml is no YAML: "):
        read(folder, "stages: [")
    with pytest.raises(ConfigurationError, match=r"the plan .* must be a mapping; given: \[1\]"):
        read(folder, [1])
    with pytest.raises(ConfigurationError, match=r"the plan .* has no 'stage'; did you mean 'stages'\?"):
        read(folder, {"stage": []})
    with pytest.raises(ConfigurationError, match="the plan has no variable 'sede'; did you mean 'seed'?"):
        read(folder, {"variables": {"seed": 1}, "stages": [run("x")]}, sede="2")


# The command line


def test_a_dry_run_prints_every_command_and_touches_nothing(folder: Path) -> None:
    content = {"variables": {"word": "a"}, "stages": [run("one", "echo", "{word}"), run("two", "cat", "{one}/x")]}
    (folder / "plan.yaml").write_text(yaml.safe_dump(content))
    before = sorted(folder.iterdir())
    options = ["--plan", str(folder / "plan.yaml"), "--out", str(folder / "out"), "--set", "word=it is", "--dry-run"]
    result = CliRunner().invoke(app, ["train", *options])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[::2] == ["# one", "# two"]
    assert list(map(shlex.split, lines[1::2])) == [["echo", "it is"], ["cat", f"{folder}/out/one/x"]]
    assert sorted(folder.iterdir()) == before


def test_a_setting_without_a_value_is_refused(folder: Path) -> None:
    result = CliRunner().invoke(app, ["train", "--plan", "p.yaml", "--set", "seed"])
    assert result.exit_code == 2
    assert "error: --set reads VARIABLE=VALUE; given: 'seed'" in result.stderr
