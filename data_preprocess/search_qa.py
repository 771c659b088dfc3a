"""Questions of HotpotQA, NQ, TriviaQA and the like, from a file that you have -> train, validation and test tasks.

Takes the fields of FlashRAG and Search-R1 (`question`, `golden_answers`) and those of HotpotQA (`question`, `answer`,
`context`), in .jsonl, .json, .csv or .parquet. What is searched is a corpus of yours (`--corpus`), or else each
question's own `context`. A question that stands in the file twice is taken once, so no question is in two splits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.data.rows import rows_of
from agentgym_rl.environments.search_qa import plain, right_answers
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task
from data_preprocess.splits import deal, parser_of, sizes_of, write_splits

ENVIRONMENT = "search-qa"
IDS = ("id", "_id", "qid", "question_id")
ANSWERS = ("golden_answers", "answers", "answer")
_LIST = re.compile(r"""\[\s*["'\]]""")
"""How a list begins that was written as text."""


def build(
    files: Iterable[Path], sizes: Mapping[str, int], corpus: Path | None, max_turns: int, seed: int
) -> dict[str, list[Task]]:
    """Deal the questions to the splits.

    Args:
        files: of questions; of several, the file's number stands before each id.
        sizes: tasks per split.
        corpus: file of passages; None: each question brings its own as `context`.
        max_turns: limit of turns of every task.
        seed: of the draw.

    Raises:
        ConfigurationError: a size that can't work.
        DataError: a row that is no question, named by its place, or fewer questions than tasks.
    """
    shared = {"max_turns": max_turns} | ({"corpus": str(corpus.resolve())} if corpus else {})
    tasks: dict[str, Task] = {}
    files = list(files)
    for number, path in enumerate(files, start=1):
        mark = f"{number}-" if len(files) > 1 else ""  # FlashRAG's sets all have the ids test_0, test_1, ...
        for place, row in rows_of(path):
            try:
                if isinstance(row, DataError):
                    raise row
                task = _task(row, f"{path.stem}-{place.split()[-1]}", mark, shared)
            except (ConfigurationError, DataError) as error:
                raise DataError(f"{path}: {place}: {error}") from error
            tasks.setdefault(plain(task.arguments["question"]), task)
    dealt = deal("the file", list(tasks), sizes, seed)
    return {split: [replace(tasks[key], split=split) for _, key in pairs] for split, pairs in dealt.items()}


def _task(row: Mapping[str, Any], otherwise: str, mark: str, shared: Mapping[str, Any]) -> Task:
    question, answers = row.get("question"), next((row[name] for name in ANSWERS if row.get(name)), None)
    if not isinstance(question, str) or not plain(question):
        raise DataError(f"a question is a text under `question`; given: {question!r:.80}")
    arguments = {"question": question, **shared}
    if "corpus" not in shared:
        arguments["passages"] = _passages(row.get("context"))
    id = next((str(row[name]) for name in IDS if row.get(name) not in (None, "")), otherwise)
    return Task(mark + id, ENVIRONMENT, arguments, reference_answer=list(right_answers(_listed(answers))))


def _listed(answers: Any) -> Any:
    """A cell of a CSV file holds a list of answers as JSON."""
    if not isinstance(answers, str) or not _LIST.match(answers):
        return answers
    try:
        return json.loads(answers)
    except json.JSONDecodeError as error:
        raise DataError(f"a list of answers in a text is JSON; given: {answers:.80}") from error


def _passages(context: Any) -> list[dict[str, str]]:
    """Of HotpotQA: pairs of a title and its sentences; in its parquet files, an object with a list of each."""
    try:
        pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, Mapping) else context
        passages = [{"title": title, "text": "".join(sentences)} for title, sentences in pairs or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"`context` must be pairs of a title and its sentences; given: {context!r:.80}") from error
    if not passages:
        raise DataError("it has no `context` to search; give a --corpus")
    return passages


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("search_qa", __doc__, train=1024, validation=128, test=256)
    parser.add_argument("files", type=Path, nargs="+", help="files of questions")
    parser.add_argument("--corpus", type=Path, help="file of passages (`title` and `text`, or `contents`)")
    parser.add_argument("--max-turns", type=int, default=8, help="limit of turns of every task")
    given = parser.parse_args(arguments)
    write_splits(build(given.files, sizes_of(given), given.corpus, given.max_turns, given.seed), given.out)


if __name__ == "__main__":
    main()
