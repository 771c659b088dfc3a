"""Rows of a file that others made: JSON Lines, a JSON array or one object, CSV with a head line, or parquet.

A line that is no row comes as the error that says why, so that a reader can name every bad line at once.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_rl.errors import DataError

Row = tuple[str, "dict[str, Any] | DataError"]
"""Where it stands, such as "line 3", and what stands there."""
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
ROWS_AT_ONCE = 1024
LONGEST_CELL = 2**31 - 1
"""Characters; the `csv` module stops at 131,072 by itself."""


def rows_of(path: str | Path) -> Iterator[Row]:
    """The rows of a file, in its order; blank lines don't count, and an empty cell of a CSV file is None.

    Raises:
        DataError: no such file, or another kind of file.
    """
    readers = dict(zip(SUFFIXES, (_json_lines, _json_array, _csv_lines, _parquet_rows), strict=True))
    suffix = Path(path).suffix
    if suffix not in readers:
        raise DataError(f"rows come from a file that ends in {', '.join(SUFFIXES)}; given: {path}")
    return readers[suffix](path)


def text_lines(path: str | Path) -> Iterator[tuple[str, str | DataError]]:
    """Lines that are not blank; only a newline ends a line, for JSON text may hold the other separators.

    Raises:
        DataError: no such file.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"line {number}", _decoded(line)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"there is no file {path}") from error


def _decoded(line: bytes) -> str | DataError:
    try:
        return line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        return DataError(f"not UTF-8 (byte {error.start + 1})")


def _json_lines(path: str | Path) -> Iterator[Row]:
    for place, text in text_lines(path):
        yield place, text if isinstance(text, DataError) else _json_object(text)


def _json_object(text: str) -> dict[str, Any] | DataError:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        return DataError(f"not valid JSON ({error.msg} at column {error.colno})")
    return _object(row)


def _object(row: Any) -> dict[str, Any] | DataError:
    return row if isinstance(row, dict) else DataError(f"a row is a JSON object; given: {type(row).__name__}")


def _json_array(path: str | Path) -> Iterator[Row]:
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"there is no file {path}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from error
    if not isinstance(rows, list | dict):
        raise DataError(f"{path} must hold a JSON array, or one object; given: {type(rows).__name__}")
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        yield f"row {number}", _object(row)


def _csv_lines(path: str | Path) -> Iterator[Row]:
    """Numbered by the line of the file where a row ends, for a cell may hold line breaks."""
    csv.field_size_limit(LONGEST_CELL)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            head = next(reader, [])
            twice = [name for place, name in enumerate(head) if name in head[:place]]
            if twice:
                raise DataError(f"{path} has the column {twice[0]!r} twice")
            for cells in reader:
                if cells:
                    yield f"line {reader.line_num}", _csv_row(head, cells)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"there is no file {path}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is no CSV file in UTF-8: {error}") from error


def _csv_row(head: list[str], cells: list[str]) -> dict[str, Any] | DataError:
    if len(cells) != len(head):
        return DataError(f"it has {len(cells)} cells; the head has {len(head)}")
    return {name: cell or None for name, cell in zip(head, cells, strict=True)}


def _parquet_rows(path: str | Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is no parquet file: {error}") from error
    number = 0
    with file:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
