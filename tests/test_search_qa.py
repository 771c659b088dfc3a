"""Search QA: BM25 finds passages, answers are compared as in SQuAD, and files of questions become tasks."""

from __future__ import annotations

import csv
import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.data import rows
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.registry import opened
from agentgym_rl.environments.search_index import Passage, SearchIndex, corpus_index, passage_of
from agentgym_rl.environments.search_qa import plain, right_answers
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.policy import Reply, ScriptedPolicy
from agentgym_rl.task import Task
from data_preprocess import search_qa as script
from data_preprocess.search_qa import build, main

TARGET = "agentgym_rl.environments.search_qa:SearchQA"
registry.register("search-qa", TARGET)
ALPS = {"title": "Alps", "text": "The Alps are mountains. Mont Blanc is the highest mountain of the Alps."}
ANDES = {"title": "Andes", "text": "The Andes are mountains of South America."}
QUESTION = {"question": "Which is the highest mountain of the Alps?", "passages": [ALPS, ANDES]}


def task(**arguments: object) -> Task:
    return Task("t", TARGET, {**QUESTION, **arguments}, reference_answer=["Mont Blanc", "Monte Bianco"])


# The index


def test_scores_are_those_of_the_formula():
    # N = 2 passages of lengths 3 and 1, mean 2. "red" is in the first alone (twice), "blue" in both.
    index = SearchIndex([Passage("", "red red blue"), Passage("", "blue")])
    red = math.log(1 + 1.5 / 1.5) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2))
    blue_long = math.log(1 + 0.5 / 2.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 2))
    blue_short = math.log(1 + 0.5 / 2.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 / 2))
    assert index.scores("Red BLUE?") == pytest.approx({0: red + blue_long, 1: blue_short})
    assert index.scores("red red") == pytest.approx({0: red})


def test_the_best_come_first_equal_ones_in_order_and_what_shares_no_word_not_at_all():
    index = SearchIndex([Passage("a", "x y"), Passage("b", "x y"), Passage("c", "x x"), Passage("d", "z")])
    assert [one.title for one in index.search("x", 9)] == ["c", "a", "b"]
    assert [one.title for one in index.search("x", 1)] == ["c"]
    assert index.search("nothing", 9) == []
    assert SearchIndex([]).search("x", 3) == []


@given(texts=st.lists(st.text("ab ", max_size=8), max_size=6), query=st.text("ab ", max_size=4))
def test_every_passage_that_shares_a_word_is_found_once(texts, query):
    found = SearchIndex([Passage(str(place), text) for place, text in enumerate(texts)]).search(query, 99)
    words = set(query.split())
    sharing = [str(place) for place, text in enumerate(texts) if words & {str(place), *text.split()}]
    assert sorted(one.title for one in found) == sorted(sharing)


def test_passages_are_read_as_files_have_them():
    assert passage_of({"text": "b", "title": None}) == Passage("", "b")
    assert passage_of({"id": "1", "contents": '"Alps"\nMountains.\nHigh.'}) == Passage("Alps", "Mountains.\nHigh.")
    assert passage_of({"contents": "alone"}) == Passage("", "alone")
    with pytest.raises(DataError, match="a passage is an object with `text`"):
        passage_of({"body": 1})


def test_a_bad_passage_of_a_corpus_is_named(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"text": "a"}\n{"title": "b"}\n')
    with pytest.raises(DataError, match="corpus.jsonl: line 2: a passage is an object"):
        corpus_index(str(tmp_path / "corpus.jsonl"))


def test_a_corpus_that_many_ask_for_at_once_is_read_once(tmp_path, monkeypatch):
    file, read, rows_of = tmp_path / "corpus.jsonl", [], rows.rows_of

    def slowly(path):
        read.append(path)
        time.sleep(0.05)  # a double of a large file
        return rows_of(path)

    monkeypatch.setattr(rows, "rows_of", slowly)
    file.write_text('{"text": "a"}\n')
    with ThreadPoolExecutor(8) as threads:
        indexes = list(threads.map(corpus_index, [str(file)] * 8))
    assert (read, len(set(map(id, indexes)))) == ([file], 1)


# Answers


@pytest.mark.parametrize("text", ["Mont Blanc", "the  MONT blanc.", "'Mont Blanc'", "A mont-blanc".replace("-", " ")])
def test_case_punctuation_articles_and_spaces_do_not_count(text):
    assert plain(text) == "mont blanc"


def test_other_words_count_and_articles_inside_words_stay():
    assert plain("the theatre and a tan man") == "theatre and tan man"


@pytest.mark.parametrize("reference", [None, [], [3], [""], {"a": 1}])
def test_a_question_without_a_text_as_answer_is_refused(reference):
    with pytest.raises(ConfigurationError, match="needs a text, or a list of texts, as answer"):
        right_answers(reference)


# The environment


async def test_a_policy_searches_and_answers():
    said = [
        '<tool_call>{"name": "search", "arguments": {"query": "mountain of the Alps"}}</tool_call>',
        "monte bianco",
    ]
    async with opened(TARGET) as environment:
        won = await play(ScriptedPolicy(said), environment, task())
        lost = await play(ScriptedPolicy(["Everest"]), environment, task())
        one = await play(ScriptedPolicy(said), environment, task(results=1))
        none = await play(
            ScriptedPolicy([said[0].replace("mountain of the Alps", "?!")]), environment, task(max_turns=1)
        )
    shown = won.turns[0].observation[0].content
    assert shown == f"<tool_response>\nAlps: {ALPS['text']}\n\nAndes: {ANDES['text']}\n</tool_response>"
    assert (won.success, won.environment_return, lost.success, lost.environment_return) == (True, 1.0, False, 0.0)
    assert one.turns[0].observation[0].content == f"<tool_response>\nAlps: {ALPS['text']}\n</tool_response>"
    assert "Nothing was found" in none.turns[0].observation[0].content


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_it_keeps_every_rule_of_the_contract(isolation):
    (await check_environment(TARGET, [task(), task(max_turns=2)], isolation=isolation)).raise_if_failed()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corpus": "c.jsonl"}, "needs one of the arguments 'passages' and 'corpus'"),
        ({"passages": []}, "the argument 'passages' must be a list of at least one"),
        ({"passages": [3]}, "a passage is an object"),
        ({"results": 0}, "'results' must be a whole number"),
    ],
)
async def test_a_task_that_can_not_work_is_refused(arguments, message):
    async with opened(TARGET) as environment:
        with pytest.raises(ConfigurationError, match=message):
            await environment.reset(task(**arguments))


async def test_a_corpus_file_that_is_missing_is_named(tmp_path):
    arguments = {"question": "?", "corpus": str(tmp_path / "none.jsonl")}
    async with opened(TARGET) as environment:
        with pytest.raises(ConfigurationError, match="there is no file .*none.jsonl"):
            await environment.reset(Task("t", TARGET, arguments, reference_answer="a"))


# The script


HOTPOT = [
    {
        "_id": f"q{number}",
        "question": f"Which mountain is number {number}?",
        "answer": f"Mount {number}",
        "context": [[f"Mount {number}", ["It is ", f"number {number}."]], ["Other", ["Nothing."]]],
    }
    for number in range(6)
]


async def test_hotpotqas_own_context_is_searched_and_its_answers_win(tmp_path):
    file = tmp_path / "hotpot_dev_distractor_v1.json"
    file.write_text(json.dumps([*HOTPOT, {**HOTPOT[0], "_id": "again", "question": "which mountain is number 0"}]))
    splits = build([file], {"train": 3, "validation": 1, "test": 2}, None, 4, seed=0)
    tasks = [task for split in splits.values() for task in split]
    assert sorted(task.id for task in tasks) == [f"q{number}" for number in range(6)]
    assert [task.split for task in tasks] == ["train"] * 3 + ["validation"] + ["test"] * 2
    first = tasks[0]
    number = first.id[1:]
    assert first.arguments["passages"][0] == {"title": f"Mount {number}", "text": f"It is number {number}."}
    call = assistant("", (ToolCall("search", {"query": first.arguments["question"]}, "c"),))

    class Searching:
        async def reply(self, conversation):
            return Reply(call) if len(conversation) == 2 else Reply(assistant(first.reference_answer[0]))

    async with opened(first.environment) as environment:
        trajectory = await play(Searching(), environment, first)
    assert f"It is number {number}." in trajectory.turns[0].observation[0].content
    assert trajectory.success


def test_questions_with_golden_answers_need_a_corpus_and_parquet_context_is_read(tmp_path):
    rows = [{"id": "n1", "question": "Who?", "golden_answers": ["Ann", "Anne"]}]
    (tmp_path / "nq.jsonl").write_text(json.dumps(rows[0]))
    with pytest.raises(DataError, match="line 1: it has no `context` to search; give a --corpus"):
        build([tmp_path / "nq.jsonl"], {"test": 1}, None, 4, 0)
    (found,) = build([tmp_path / "nq.jsonl"], {"test": 1}, tmp_path / "wiki.jsonl", 4, 0)["test"]
    assert found.reference_answer == ["Ann", "Anne"]
    assert found.arguments == {"question": "Who?", "max_turns": 4, "corpus": str(tmp_path / "wiki.jsonl")}
    nested = [{"id": "h", "question": "Who?", "answer": "Ann", "context": {"title": ["T"], "sentences": [["A", "B"]]}}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(nested), tmp_path / "h.parquet")
    (found,) = build([tmp_path / "h.parquet"], {"test": 1}, None, 4, 0)["test"]
    assert found.arguments["passages"] == [{"title": "T", "text": "AB"}]


def test_a_cell_of_a_csv_file_holds_a_list_of_answers_as_json(tmp_path):
    def answers(text):
        with open(tmp_path / "q.csv", "w", newline="") as file:
            csv.writer(file).writerows([["question", "golden_answers"], ["Which city?", text]])
        (found,) = build([tmp_path / "q.csv"], {"test": 1}, tmp_path / "wiki.jsonl", 4, 0)["test"]
        return found.reference_answer

    assert answers('["Paris", "Lutetia"]') == ["Paris", "Lutetia"]
    assert answers("Paris") == ["Paris"]
    assert answers("[Untitled]") == ["[Untitled]"]
    for listed in ("['Paris', 'Lutetia']", "['Paris' 'Lutetia']", '["Paris", '):
        with pytest.raises(DataError, match="line 2: a list of answers in a text is JSON; given: "):
            answers(listed)
    with pytest.raises(DataError, match="line 2: a question needs a text, or a list of texts, as answer"):
        answers("[ ]")


def test_sets_of_the_same_ids_stay_apart(tmp_path):
    for name in ("nq", "triviaqa"):
        (tmp_path / name).mkdir()
        rows = [
            {"id": "test_0", "question": f"Who of {name}?", "answer": "Ann"},
            {"question": f"{name}?", "answer": "B"},
        ]
        (tmp_path / name / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [tmp_path / name / "test.jsonl" for name in ("nq", "triviaqa")]
    splits = build(iter(files), {"train": 2, "test": 2}, tmp_path / "wiki.jsonl", 4, 0)
    tasks = {task.id: task.arguments["question"] for split in splits.values() for task in split}
    assert tasks == {
        "1-test_0": "Who of nq?", "1-test-2": "nq?", "2-test_0": "Who of triviaqa?", "2-test-2": "triviaqa?"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": " ?"}, "row 1: a question is a text under `question`"),
        ({"answer": None}, "row 1: a question needs a text, or a list of texts, as answer"),
        ({"context": {"sentences": [["A"]]}}, "row 1: `context` must be pairs of a title and its sentences"),
        ({"context": {"title": ["T"], "sentences": 3}}, "row 1: `context` must be pairs of a title"),
        ({"context": [3]}, "row 1: `context` must be pairs of a title and its sentences"),
    ],
)
def test_a_row_that_is_no_question_is_named(tmp_path, change, message):
    (tmp_path / "q.json").write_text(json.dumps([{**HOTPOT[0], **change}]))
    with pytest.raises(DataError, match=message):
        build([tmp_path / "q.json"], {"test": 1}, None, 4, 0)


def test_the_command_line_writes_a_file_a_split(tmp_path, capsys):
    (tmp_path / "q.json").write_text(json.dumps(random.Random(0).sample(HOTPOT, 6)))
    main([str(tmp_path / "q.json"), "--train", "4", "--validation", "0", "--test", "2", "--out", str(tmp_path / "out")])
    assert "test.parquet: 2 tasks" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test.parquet", "train.parquet"]
    assert script.ENVIRONMENT == "search-qa"
