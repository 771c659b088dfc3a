"""Wordle answers -> train, validation and test tasks, in parquet. Every answer belongs to one split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_rl.environments.wordle_words import word_lists
from agentgym_rl.task import Task
from data_preprocess.splits import deal, parser_of, sizes_of, write_splits


def build(
    sizes: Mapping[str, int],
    max_turns: int,
    seed: int,
    answers_file: str | None = None,
    guesses_file: str | None = None,
) -> dict[str, list[Task]]:
    """Deal the answers to the splits.

    Args:
        sizes: tasks per split; there are 2,315 published answers.
        max_turns: limit of turns of every task; six guesses, and what is refused.
        seed: of the draw.
        answers_file: one's own answers; None: the published ones.
        guesses_file: further words that may be guessed.

    Raises:
        ConfigurationError: a size that can't work, or there are no lists.
        DataError: there are fewer answers than tasks.
    """
    files = {"answers_file": answers_file, "guesses_file": guesses_file}
    given = {name: file for name, file in files.items() if file is not None}
    answers = word_lists(answers_file, guesses_file).answers
    return {
        split: [
            Task(name, "wordle", {"word": word, "max_turns": max_turns, **given}, split=split) for name, word in dealt
        ]
        for split, dealt in deal("wordle", answers, sizes, seed).items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = parser_of("wordle", __doc__, train=1024, validation=128, test=256)
    parser.add_argument("--max-turns", type=int, default=8, help="limit of turns of every task")
    parser.add_argument("--answers-file", type=Path, help="one's own answers, a word a line; default: the published")
    parser.add_argument("--guesses-file", type=Path, help="further words that may be guessed, a word a line")
    given = parser.parse_args(arguments)
    files = [str(file.resolve()) if file else None for file in (given.answers_file, given.guesses_file)]
    write_splits(build(sizes_of(given), given.max_turns, given.seed, *files), given.out)


if __name__ == "__main__":
    main()
