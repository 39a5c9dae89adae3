"""What tasks have written is put together whole and in order, or not at all."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retention_cli.engines.spark import gather
from retention_cli.engines.spark.gather import in_order
from retention_cli.engines.spark.schemas import CHUNK
from retention_cli.engines.spark.session import SparkError
from retention_cli.engines.spark.write import SIGN, Outbox


def written(folder: Path, positions: list[int], rows_a_group: int = 3) -> Path:
    path = folder / f"{uuid.uuid4().hex}.parquet"
    rows = [{"at": at, "topic": f"t{at // 10}", "partition": at % 10} for at in positions]
    with pq.ParquetWriter(path, CHUNK) as file:
        for first in range(0, len(rows), rows_a_group):
            file.write_table(pa.Table.from_pylist(rows[first : first + rows_a_group], schema=CHUNK))
    return path


def read(files: list[Path], count: int) -> list[int]:
    return [at for table in in_order(files, count) for at in table.column("at").to_pylist()]


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_come_in_order_whoever_has_written_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[int], at_a_time: int
) -> None:
    """Also where there are more files than may be open at a time."""
    monkeypatch.setattr(gather, "_ROWS", at_a_time)
    monkeypatch.setattr(gather, "_PARTS_AT_ONCE", 2)
    files = [written(tmp_path, [at for at, task in enumerate(tasks) if task == number]) for number in range(5)]
    assert read(files, len(tasks)) == list(range(len(tasks)))


@pytest.mark.parametrize(
    "parts",
    [[[0, 1], [3]], [[0, 1, 2, 3], [2]], [[0, 1], [2]], [[1, 2, 3]], []],
    ids=["a gap", "twice", "the end is missing", "the beginning is", "nothing"],
)
def test_rows_that_are_missing_or_there_twice_are_an_error(tmp_path: Path, parts: list[list[int]]) -> None:
    with pytest.raises(SparkError, match="is not whole"):
        read([written(tmp_path, one) for one in parts], 4)


class Frame:
    """What Spark hands back, as far as :func:`received` asks."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def select(self, *_: str) -> Frame:
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self.rows


@pytest.mark.parametrize("name", ["../0123456789abcdef0123456789abcdef.parquet", "/etc/passwd", "", "x.parquet"])
def test_a_name_that_no_task_of_ours_gives_is_refused(tmp_path: Path, name: str) -> None:
    """What comes from executors is data: a file elsewhere on this machine is no part of a plan."""
    with pytest.raises(SparkError, match="can't have written"):
        gather.received(Frame([{"cluster": "c", "file": name}]), tmp_path)


def test_a_task_writes_into_the_clients_folder_only_if_it_is_that_very_folder(tmp_path: Path) -> None:
    """Another machine may have a folder of that name: there the rows go back by Spark."""
    batch = pa.RecordBatch.from_pylist([{"at": 0, "topic": "t", "partition": 0}], schema=CHUNK)
    outbox = Outbox.at(tmp_path)
    [row] = outbox.write("c", [batch]).to_pylist()
    assert (row["rows"], row["content"]) == (1, None)
    assert read([tmp_path / row["file"]], 1) == [0]
    (tmp_path / SIGN).write_text("of another run")
    [row] = outbox.write("c", [batch]).to_pylist()
    assert row["file"] is None
    (there := tmp_path / "back.parquet").write_bytes(row["content"])
    assert read([there], 1) == [0]
