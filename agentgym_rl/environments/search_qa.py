"""Questions that are answered by searching: HotpotQA, NQ, TriviaQA and the like, over passages of the user's own."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_rl.environment import Facts
from agentgym_rl.environments.search_index import SearchIndex, corpus_index, passage_of
from agentgym_rl.environments.toolbox import Toolbox
from agentgym_rl.environments.turn_limited import whole_number
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.task import Task

DEFAULT_RESULTS = 3
NOTHING = "Nothing was found; try other words."
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SearchQA(Toolbox):
    """Answer a question in a few words, after searching as often as is needed.

    Task: `arguments` holds `question`, and what is searched: `passages` (a list of objects with `title` and `text`) or
        `corpus` (a .jsonl, .csv or .parquet file of them, or of `contents` whose first line is the title); if wanted,
        `results` (passages that a search shows, default 3), `tool_format` and `max_turns` (default 8). The reference
        answer is a text, or a list of texts that are all right.
    Actions: calls of `search`, any number in a reply; the reply without a call is the answer.
    Observations: the question, then the best passages by BM25.
    Reward: 1 for an answer that equals a right one, without case, punctuation, articles and extra spaces; else 0.
    End: the answer, or `max_turns`.
    Differs from the paper: it searches Wikipedia with a dense retriever on a server; here words are matched, in memory.
    Source: Jin et al., Search-R1, 2025, https://arxiv.org/abs/2503.09516; answers are compared as by Rajpurkar et al.,
        SQuAD, 2016, https://arxiv.org/abs/1606.05250. Data: `data_preprocess/search_qa.py`.
    Licence: none of its own; that of the questions and passages that are given.

    An episode:

    user:       Which is the highest mountain of the Alps?
    assistant:  <tool_call>{"name": "search", "arguments": {"query": "highest mountain Alps"}}</tool_call>
    user:       <tool_response>Alps: Mont Blanc is the highest mountain of the Alps.</tool_response>
    assistant:  Mont Blanc
    (reward 1, success)
    """

    facts = Facts(
        (0.0, 1.0),
        max_turns=8,
        domain="question answering",
        source="https://arxiv.org/abs/2503.09516",
        licence="that of the given data",
    )
    host_arguments = frozenset({"corpus"})
    instructions = (
        "Answer the question. Search for what you need to know, as often as you need. End with the answer alone, in as "
        "few words as can be, such as a name, a date, or yes or no."
    )

    def search(self, query: str) -> str:
        """Passages that have words of the query, the best first."""
        found = self._index.search(query, self._results)
        return "\n\n".join(f"{title}: {text}" if title else text for title, text in found) or NOTHING

    functions = (search,)

    def begin(self, task: Task) -> None:
        given = task.arguments
        self._results = whole_number(given, "results", DEFAULT_RESULTS)
        self._right = right_answers(task.reference_answer)
        if ("passages" in given) == ("corpus" in given):
            raise ConfigurationError(f"task {task.id!r} needs one of the arguments 'passages' and 'corpus'")
        try:
            self._index = _index(given)
        except DataError as error:
            raise ConfigurationError(f"task {task.id!r}: {error}") from error

    def check(self, answer: str, task: Task) -> float:
        return float(plain(answer) in map(plain, self._right))


def _index(arguments: Mapping[str, Any]) -> SearchIndex:
    if "corpus" in arguments:
        return corpus_index(str(arguments["corpus"]))
    passages = arguments["passages"]
    if not isinstance(passages, list) or not passages:
        raise DataError(f"the argument 'passages' must be a list of at least one; given: {passages!r:.80}")
    return SearchIndex(map(passage_of, passages))


def right_answers(reference: object) -> Sequence[str]:
    """The texts of a reference answer.

    Raises:
        ConfigurationError: there are none.
    """
    answers = [reference] if isinstance(reference, str) else reference
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one for one in answers):
        raise ConfigurationError(f"a question needs a text, or a list of texts, as answer; given: {reference!r}")
    return answers


def plain(text: str) -> str:
    """What counts when answers are compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
