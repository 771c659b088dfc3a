"""A file is whole or not there, whoever writes it at the same time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentgym_rl.data.replaced import replaced
from agentgym_rl.judge.cache import AnswerCache


def test_writers_of_one_file_in_one_process_do_not_take_each_others_place(tmp_path):
    def write(text):
        with replaced(tmp_path / "file") as beside:
            beside.write_text(text * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, "abcdefgh" * 25))  # raises what one of them raised
    text = (tmp_path / "file").read_text()
    assert text == text[0] * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    (tmp_path / "file").write_text("before")

    def write_half():
        with replaced(tmp_path / "file") as beside:
            beside.write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_an_answer_that_the_disk_does_not_take_is_logged_and_not_lost(tmp_path, caplog):
    (tmp_path / "cache").write_text("a file where a folder should be")
    cache = AnswerCache(tmp_path / "cache")
    cache.put({"model": "m"}, "the answer")
    assert "could not be kept" in caplog.text
    assert cache.get({"model": "m"}) is None
