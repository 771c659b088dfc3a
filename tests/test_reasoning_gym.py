"""reasoning-gym: answers and scores by hand, no answer is ever run as code, and every seed asks the same again."""

from __future__ import annotations

import builtins
import importlib.util
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_hostile_replies import HOSTILE

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.reasoning_gym import INSTALL, ReasoningGym, dataset_names
from agentgym_rl.environments.reasoning_gym_answers import MAX_CHARACTERS, answer_in, refusal
from agentgym_rl.environments.turn_limited import TurnLimited
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import reasoning_gym as data_set

installed = importlib.util.find_spec("reasoning_gym") is not None
here = pytest.mark.skipif(not installed, reason='not installed here: pip install "openmanus-rl[reasoning-gym]"')
somewhere = pytest.mark.skipif(
    not installed and interpreter_of("reasoning-gym") is None, reason=f"reasoning-gym is not installed: {INSTALL}"
)


def task(dataset: str, seed: int = 1, **arguments) -> Task:
    return Task(f"{dataset}-{seed}", "reasoning-gym", {"dataset": dataset, **arguments}, seed=seed)


def started(*given, **arguments) -> ReasoningGym:
    game = ReasoningGym()
    game.reset(task(*given, **arguments))
    return game


def answered(game: TurnLimited, answer: str):
    return game.step(assistant(f"I think. <answer>{answer}</answer>"))


def said(messages) -> str:
    return "".join(message.content for message in messages)


# ---- which answer a reply gives


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer> 1 2\n3 4 </answer> as I said", "1 2\n3 4"),
        ("<answer>4</answer> No, <answer>5</answer>", "5"),
        ("I open <answer> and again <answer>6</answer>", "6"),
        ("<answer></answer>", ""),
        ("4", None),
        ("<answer>4", None),
        ("4</answer>", None),
        ("</answer>4<answer>", None),
        ("<ANSWER>4</ANSWER>", None),
    ],
)
def test_the_last_pair_of_tags_holds_the_answer(reply, answer):
    assert answer_in(reply) == answer


def test_ten_megabytes_of_tags_are_read_once():
    assert answer_in("<answer>" * 1_250_000) is None
    assert answer_in("<answer>" * 1_250_000 + "7</answer>") == "7"


# ---- what may be scored


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [
        ("countdown", "94*4 - 61 - 6"),
        ("puzzle24", " (1 + 2) * 8 / 1.0"),
        ("simple_integration", "-34*x**8/15 - 5*X/4 + C"),
        ("intermediate_integration", "-exp(x)*sin(x) + (2*x - 8)**(3/2) + E**x + pi"),
        ("polynomial_multiplication", "-417560*y**6 + 19*z"),
        ("leg_counting", "__import__('os')"),  # its scorer only compares
    ],
)
def test_what_a_scorer_may_read_is_not_refused(dataset, answer):
    assert refusal(dataset, answer, "right") == ""


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "x",
        "4!",
        "2**3",
        "5 ^ 2",
        "True",
        "1 if 1 else 2",
        "__import__('os').getpid()",
        "(1).real",
        "9" * 5000,
        "(" * 300 + "1" + ")" * 300,
        "-" * 19_999 + "1",
    ],
)
def test_arithmetic_is_numbers_and_four_operations(answer):
    assert refusal("countdown", answer, "1").startswith("The answer must be an arithmetic expression")


@pytest.mark.parametrize(
    "answer",
    [
        "Integral(2*x, x)",  # whose derivative is the integrand, whatever it is
        "integrate(2*x, x)",
        "x.__class__",
        "f(x)",
        "exp(x, 2)",
        "exp(x=1)",
        "[x for x in (1, 2)]",
        "'a'*9",
        "9**9**9",
        "(x + 1)**1000",
        "x**(9*9*9*9)",
        "1.5e999",
    ],
)
def test_a_formula_has_letters_powers_and_elementary_functions_of_bounded_size(answer):
    assert refusal("simple_integration", answer, "x**2").startswith("The answer must be a formula")


numbers = st.integers(0, 999).map(str)
expressions = st.recursive(
    numbers, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda three: f"({''.join(three)})")
)


@given(expressions)
def test_any_arithmetic_may_be_scored_and_with_one_name_in_it_none(expression):
    assert refusal("countdown", expression, "1") == ""
    assert refusal("countdown", f"{expression} + answer", "1")


def test_an_answer_may_be_twice_as_long_as_a_long_right_one():
    assert refusal("maze", "1" * MAX_CHARACTERS, "5") == ""
    assert refusal("maze", "1" * (MAX_CHARACTERS + 1), "5") == "An answer has at most 20000 characters."
    assert refusal("maze", "1" * 30_000, "5" * 15_000) == ""


def test_an_exponent_that_no_fraction_can_hold_is_refused():
    assert refusal("coin_flip", "1e-99999999", "0.5") == "A number's exponent has at most four digits."
    assert refusal("coin_flip", "1e-9999", "0.5") == ""


# ---- questions and scores


@here
def test_a_question_and_its_right_answer_by_hand():
    game = ReasoningGym()
    (question,) = game.reset(task("time_intervals"))
    assert question.content == (
        "A system operation started at 18:54:51 and completed at 19:29:19. What was the operation duration? Answer in "
        "HH:MM:SS."
    )
    result = answered(game, "00:34:28")  # 19:29:19 - 18:54:51
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)


@here
@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("94*4 - 61 - 6", 1.0),  # 376 - 67 = 309
        ("94*4 + 61 - 6", 0.05),  # the right numbers, and 431
        ("309", 0.05),  # other numbers
    ],
)
def test_part_of_the_reward_is_no_success(answer, reward):
    game = ReasoningGym()
    assert said(game.reset(task("countdown"))).startswith("Calculate 309 using all of these numbers: 6, 61, 94, 4.")
    result = answered(game, answer)
    assert (result.reward, result.terminated, result.success) == (reward, True, reward == 1.0)


@here
def test_a_reply_without_an_answer_is_cut_off_or_may_be_said_again():
    once = started("time_intervals").step(assistant("00:34:28"))
    assert (once.valid, once.reward, once.truncated, once.success) == (False, 0.0, True, False)
    game = started("time_intervals", max_turns=3)
    again = game.step(assistant("00:34:28"))
    assert (again.valid, again.truncated) == (False, False)
    assert said(again.observation) == "There is no answer between <answer> and </answer>."
    assert answered(game, "00:34:28").success


@here
def test_what_a_scorer_can_not_read_is_wrong():
    game = started("prime_factorization")  # whose scorer raises a ValueError on it
    result = answered(game, "no number")
    assert (result.reward, result.terminated, result.success) == (0.0, True, False)


@here
@pytest.mark.parametrize("dataset", ["list_functions", "pool_matrix", "codeio"])  # they draw from global generators
def test_a_seed_asks_the_same_whatever_was_drawn_before(dataset):
    seeds = list(range(8))
    asked = [said(ReasoningGym().reset(task(dataset, seed))) for seed in seeds]
    assert asked == [said(ReasoningGym().reset(task(dataset, seed))) for seed in reversed(seeds)][::-1]
    assert len(set(asked)) == 8


@here
def test_seeds_that_numpy_does_not_take_ask_a_question():
    assert said(ReasoningGym().reset(task("pool_matrix", -1))) == said(
        ReasoningGym().reset(task("pool_matrix", 2**32 - 1))
    )


@here
def test_a_config_sets_the_difficulty():
    game = ReasoningGym()
    question = said(game.reset(task("chain_sum", config={"min_terms": 6, "max_terms": 6})))
    assert sum(question.count(sign) for sign in (" + ", " - ")) == 5


@here
@pytest.mark.slow
def test_the_expert_answers_all_but_two_of_105_datasets():
    unsolved = []
    for dataset in dataset_names():
        game = started(dataset)
        if not game.step(assistant(game.expert_action())).success:
            unsolved.append(dataset)
    assert len(dataset_names()) == 105
    assert unsolved == ["boxnet", "rush_hour"]


# ---- no answer is run

PEEKING = {
    "binary_matrix": "[[int(x) for x in row.split()] for row in entry['answer'].splitlines()]",
    "n_queens": "entry['metadata']['solutions'][0]",
    "spiral_matrix": "entry['answer'].split()",
    "string_insertion": "oracle_answer",
}


@here
@pytest.mark.parametrize("dataset", PEEKING)
def test_an_answer_that_reads_the_scorers_variables_earns_nothing(dataset, monkeypatch):
    game = started(dataset)
    with monkeypatch.context() as patch:  # what the package would pay for it
        patch.setitem(vars(sys.modules[type(game._dataset).__module__]), "eval", builtins.eval)
        assert game._score(PEEKING[dataset]) > 0
    assert answered(game, PEEKING[dataset]).reward == 0.0


@here
def test_a_right_answer_as_a_list_still_earns_what_the_package_pays_for_it():
    game = started("spiral_matrix")
    assert answered(game, str([int(number) for number in game._entry["answer"].split()])).reward == 0.1


@here
@pytest.mark.parametrize(
    "dataset", ["countdown", "puzzle24", "simple_integration", "polynomial_multiplication", *PEEKING]
)
def test_code_in_an_answer_does_nothing(dataset, tmp_path):
    file = tmp_path / "touched"
    result = answered(started(dataset), f"__import__('pathlib').Path({str(file)!r}).touch()")
    assert (result.reward, result.success) == (0.0, False)
    assert not file.exists()


@here
@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("dataset", ["leg_counting", "countdown", "graph_color", "polynomial_equations"])
def test_a_hostile_reply_solves_nothing_and_nothing_of_it_comes_back(dataset, reply):
    for said_so in (reply, f"<answer>{reply}</answer>"):
        result = started(dataset).step(assistant(said_so))
        assert not result.success
        assert result.terminated or result.truncated
        assert len(said(result.observation)) < 200


# ---- arguments


@here
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a reasoning-gym task needs the argument 'dataset', such as 'leg_counting'; given: None"),
        ({"dataset": ["maze"]}, "such as 'leg_counting'; given: ['maze']"),
        ({"dataset": "leg_countin"}, "reasoning-gym has no dataset 'leg_countin'; did you mean 'leg_counting'?"),
        ({"dataset": "composite"}, "reasoning-gym has no dataset 'composite'"),
        ({"dataset": "maze", "config": 3}, "the argument 'config' must be an object; given: 3"),
        ({"dataset": "maze", "config": {"min_siz": 3}}, "the config of 'maze' has no 'min_siz'"),
        ({"dataset": "maze", "config": {"seed": 3}}, "the config of 'maze' has no 'seed'"),
        (
            {"dataset": "leg_counting", "config": {"min_animals": 0}},
            "reasoning-gym can't make 'leg_counting' with {'min_animals': 0}: min_animals must be positive",
        ),
        ({"dataset": "leg_counting", "config": {"min_animals": "x"}}, "reasoning-gym can't make 'leg_counting'"),
        ({"dataset": "maze", "max_turns": 0}, "'max_turns' must be a whole number of at least 1; given: 0"),
        ({"dataset": "maze", "turns": 4}, "a reasoning-gym task has no 'turns'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        ReasoningGym().reset(Task("t", "reasoning-gym", arguments))
    assert message in str(raised.value)


def test_importing_needs_no_package_and_using_it_without_says_what_to_install():
    code = (
        "import sys; sys.modules['reasoning_gym'] = None\n"
        "from agentgym_rl.environments import reasoning_gym\n"
        "try: reasoning_gym.dataset_names()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"ConfigurationError reasoning-gym needs 'reasoning_gym': {INSTALL}\n"


@here
def test_a_step_before_reset_and_one_after_the_end_are_errors():
    with pytest.raises(EnvironmentFailed, match="before reset"):
        ReasoningGym().step(assistant("<answer>1</answer>"))
    game = started("maze")
    answered(game, "1")
    with pytest.raises(EnvironmentFailed, match="after the end"):
        game.expert_action()


# ---- processes


@somewhere
async def test_an_interpreter_of_its_own_asks_the_same(monkeypatch):
    """In a worker that gets this project's core alone; the name of this interpreter will do, if there is no other."""
    monkeypatch.setenv("OPENMANUS_PYTHON_REASONING_GYM", interpreter_of("reasoning-gym") or sys.executable)
    async with registry.opened("reasoning-gym") as environment:
        assert "started at 18:54:51" in said(await environment.reset(task("time_intervals")))
        assert (await environment.step(assistant("<answer>00:34:28</answer>"))).success


@somewhere
@pytest.mark.slow
async def test_reasoning_gym_keeps_the_environment_contract():
    tasks = [task("list_functions"), task("pool_matrix", 2), task("countdown", 3, max_turns=2)]
    (await check_environment("reasoning-gym", tasks)).raise_if_failed()


# ---- the data set


@here
def test_no_question_is_in_two_splits_and_the_datasets_share_them(tmp_path, capsys):
    sizes = ["--train", "7", "--validation", "1", "--test", "4"]
    chosen = ["--datasets", "leg_counting", "countdown", "--configs", '{"countdown": {"min_numbers": 3}}']
    data_set.main(["--out", str(tmp_path), *sizes, *chosen, "--max-turns", "2"])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert len({said(ReasoningGym().reset(one)) for one in tasks}) == len({one.id for one in tasks}) == 12
    counts = [sum(one.arguments["dataset"] == name for one in tasks) for name in ("leg_counting", "countdown")]
    assert sorted(counts) == [5, 7]  # 4 and 3 of 7, 1 and 0 of 1, 2 and 2 of 4
    assert {one.arguments["max_turns"] for one in tasks} == {2}
    assert all(("config" in one.arguments) == (one.arguments["dataset"] == "countdown") for one in tasks)
    assert "7 tasks" in capsys.readouterr().out


@here
def test_the_same_seed_deals_the_same_tasks_and_fewer_tasks_than_datasets_are_of_some():
    def drawn(seed):
        return data_set.build(["chain_sum", "gcd", "lcm"], {}, {"train": 2, "test": 1}, 1, seed)

    assert drawn(0) == drawn(0) != drawn(1)
    assert {split: len(tasks) for split, tasks in drawn(0).items()} == {"train": 2, "test": 1}


@here
@pytest.mark.parametrize(
    ("datasets", "configs", "sizes", "error", "message"),
    [
        (["mazes"], {}, {"train": 1}, ConfigurationError, "no dataset 'mazes'; did you mean 'maze'?"),
        (["maze"], {"gcd": {}}, {"train": 1}, ConfigurationError, "the choice of datasets has no 'gcd'"),
        (["maze"], {}, {"train": -1}, ConfigurationError, "a split has at least 0 tasks"),
        (
            ["chain_sum"],
            {"chain_sum": {"max_digits": 1, "max_terms": 2}},
            {"train": 999},
            DataError,
            "no further world",
        ),
    ],
)
def test_a_data_set_that_can_not_be_built_says_why(datasets, configs, sizes, error, message):
    with pytest.raises(error) as raised:
        data_set.build(datasets, configs, sizes, 1, 0)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ("{", "--configs must be a JSON object; '{' is no JSON"),
        ("[]", "--configs must be a JSON object; given: []"),
        ('{"lcm": {}, "gcd": 0}', "--configs holds an object for each dataset; given for 'gcd': "),
    ],
)
def test_configs_that_are_no_object_of_objects_are_refused(configs, message, tmp_path):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        data_set.main(["--out", str(tmp_path), "--configs", configs])
