"""What is wrong with a file is said in our words: with its line, and without anything of its content."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from retention_cli.core.file_problems import (
    json_problem,
    parquet_problem,
    schema_problem,
    sqlite_problem,
    store_problem,
    yaml_problem,
)

CUT = "it ends in the middle: it was cut short"
DAMAGED = "its bytes are damaged, or it is no Parquet file"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, CUT),
        ('{"a": [1,\n', 2, CUT),
        ('{"a": "hunter2', 1, CUT),
        ("{}\n{}", 2, "something follows its end"),
        ('{"a" 1}', 1, None),
        ("{a: 1}", 1, None),
        ("hunter2", 1, "it is not JSON"),
        ('["\n"]', None, "a string has a line break or a tab that is not escaped"),
    ],
)
@pytest.mark.parametrize("read", [json.loads, from_json])
def test_json_problem_has_its_line_without_quoting_content(
    read: Callable[[str], object], text: str, line: int | None, said: str | None
) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        read(text)
    found = json_problem(error.value)
    assert line in (None, found[0])
    assert said in (None, found[1])
    assert "column" not in found[1]
    assert "hunter2" not in found[1]


class Model(BaseModel):
    """One of each."""

    model_config = ConfigDict(extra="forbid", strict=True)
    a: int = Field(default=0, ge=0, le=9)
    b: list[int] = Field(default=[1], min_length=1)
    c: Literal["x", "y"] = "x"
    d: str = ""
    e: bool = False
    f: float = 0.0
    g: dict[str, int] = {}

    @field_validator("d")
    @classmethod
    def _d(cls, value: str) -> str:
        if value == "odd":
            raise ValueError("is odd")
        return value


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"a": "1"}, "is not a whole number"),
        ({"a": -1}, "is less than 0"),
        ({"a": 10}, "is more than 9"),
        ({"b": []}, "is empty"),
        ({"b": 1}, "is not a list"),
        ({"c": "z"}, "is not 'x' or 'y'"),
        ({"d": 1}, "is not text"),
        ({"d": "odd"}, "is odd"),
        ({"e": 1}, "is not true or false"),
        ({"f": "x"}, "is not a number"),
        ({"g": []}, "is not a mapping of keys to values"),
        ({"h": 1}, "is not a key here"),
        ([], "is not a mapping of keys to values"),
    ],
)
def test_value_outside_the_schema_is_described_in_our_words(content: object, said: str) -> None:
    with pytest.raises(ValidationError) as error:
        Model.model_validate(content)
    [item] = error.value.errors(include_url=False)
    assert schema_problem(item) == said


def test_file_that_is_no_parquet_or_damaged_is_described_in_our_words(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), good)
    whole = good.read_bytes()
    for content, said in [
        (b"", "it is empty"),
        (b"hunter2 " * 100, "it is no Parquet file, or was not written to its end"),
        (whole[:-20], "it is no Parquet file, or was not written to its end"),
        (b"PAR1" + b"\xff" * (len(whole) - 12) + whole[-8:], f"{DAMAGED} (Couldn't deserialize thrift)"),
    ]:
        good.write_bytes(content)
        with pytest.raises((pa.ArrowException, OSError)) as error:
            pq.read_table(good)
        assert parquet_problem(error.value) == said, error.value
    assert parquet_problem(FileNotFoundError(2, "No such file or directory")) == "No such file or directory"


def test_file_that_is_no_sqlite_database_is_described_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"hunter2 " * 1000)
    with sqlite3.connect(tmp_path / "x.db") as db, pytest.raises(sqlite3.Error) as error:
        db.execute("SELECT 1 FROM x")
    assert sqlite_problem(error.value) == "it is no SQLite database"
    assert sqlite_problem(ValueError("it is of another cluster")) == "it is of another cluster"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(13, "Permission denied"), "Permission denied"),
        (
            OSError(
                "When listing in bucket 'b': AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied"
            ),
            "the store does not let these credentials do that (access denied): grant it",
        ),
        (
            OSError("When reading 'k': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No body."),
            "the store does not accept these credentials, or does not let them do that (HTTP 403)",
        ),
        (
            OSError("When listing: AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"),
            "the store can't be reached: look at its endpoint and the network",
        ),
        (OSError("HDFS is in\nsafe mode"), "HDFS is in safe mode"),
    ],
)
def test_object_store_error_is_described_in_our_words(error: OSError, said: str) -> None:
    assert store_problem(error) == said


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("while scanning, found unexpected end of stream in quoted scalar", "not YAML: a quote is not closed"),
        (
            "found duplicate anchor 'hunter2'; first occurrence",
            "not YAML: look for a quote, a bracket or a colon that is missing or left over (found duplicate anchor)",
        ),
        (
            "invalid literal for int() with base 10: 'hunter2'",
            "not YAML: look for a quote, a bracket or a colon that is missing or left over (invalid literal for int)",
        ),
        ("'hunter2'", "not YAML: look for a quote, a bracket or a colon that is missing or left over"),
    ],
)
def test_yaml_problem_keeps_the_parsers_words_without_quoted_content(said: str, ours: str) -> None:
    assert yaml_problem(said) == ours
