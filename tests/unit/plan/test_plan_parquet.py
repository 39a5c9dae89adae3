"""Plans as Parquet: the same content as the JSON, and the same doubt on the way back (docs/plan.md, The plan)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings

from retention_cli.plan import parquet as plan_parquet
from retention_cli.plan.columns import row_as_json, schema
from retention_cli.plan.load import read_plan
from retention_cli.plan.parquet import HEAD_FILE, KEY, ParquetPlans, write_plan
from retention_cli.plan.saved import Entry, SavedPlanError
from retention_cli.plan.value import Plan, head_as_json, plan_text
from tests.support.plans import EVERY, LOOSE, of_spark, plan, plans, row


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans)
def test_plan_reads_back_equal_from_json_and_parquet(made: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text, columns = Path(folder, "plan.json"), Path(folder, "plan.parquet")
        text.write_text(plan_text(made), encoding="utf-8")
        write_plan(columns, made)
        assert read_plan(columns) == read_plan(text) == made


def test_parquet_columns_and_head_are_named_as_in_json(tmp_path: Path) -> None:
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    table = pq.read_table(path)
    assert table.column_names == ["cluster", *row_as_json(EVERY.decisions[0])]
    assert [{k: v for k, v in one.items() if k != "cluster"} for one in table.to_pylist()] == [
        row_as_json(one) for one in EVERY.decisions
    ]
    assert set(table["cluster"].to_pylist()) == {EVERY.cluster_id}
    assert json.loads(pq.ParquetFile(path).metadata.metadata[KEY.encode()]) == head_as_json(EVERY)


def test_parquet_plan_is_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_parquet, "ROWS_A_GROUP", 10)
    many = plan(*(row(partition=number) for number in range(35)))
    write_plan(path := tmp_path / "plan.parquet", many)
    assert pq.ParquetFile(path).num_row_groups == 4
    assert read_plan(path) == many


def test_folder_of_parts_in_any_order_reads_as_the_same_plan(tmp_path: Path) -> None:
    rows = [("c1", one) for one in reversed(EVERY.decisions)]
    assert read_plan(of_spark(tmp_path / "plan", head_as_json(EVERY), rows[3:], [], rows[:3])) == EVERY


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / HEAD_FILE).unlink(), "not a whole plan: it has no _plan.json"),
        (lambda folder: (folder / HEAD_FILE).write_text("{"), "_plan.json:1 is not a valid plan file"),
        (lambda folder: (folder / HEAD_FILE).write_text("[]"), "not a JSON object"),
        (lambda folder: (folder / "_temporary").mkdir(), "still writing"),
        (lambda folder: (folder / "part-00001-c000.snappy.parquet").unlink(), "not whole: cluster c1 has 3 rows"),
        (lambda folder: (folder / "part-00001-c000.snappy.parquet").write_bytes(b"PAR1"), "not a whole Parquet file"),
        (
            lambda folder: (folder / "again.parquet").write_bytes(
                (folder / "part-00001-c000.snappy.parquet").read_bytes()
            ),
            "its head says 5",
        ),
    ],
)
def test_incomplete_plan_folder_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], said: str) -> None:
    rows = [("c1", one) for one in EVERY.decisions]
    folder = of_spark(tmp_path / "plan", head_as_json(EVERY), rows[:3], rows[3:])
    spoil(folder)
    with pytest.raises(SavedPlanError, match=said) as error:
        read_plan(folder)
    assert str(folder) in str(error.value)


def test_plan_file_that_changes_after_opening_is_refused(tmp_path: Path) -> None:
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    opened = ParquetPlans(path)
    plan = opened.plans([Entry("", "", opened.head)])[""]
    write_plan(path, replace(EVERY, decisions=EVERY.decisions[:4]))
    with pytest.raises(SavedPlanError, match="cluster c1 has 4 rows, its head says 5"):
        plan()


def written(path: Path, head: dict[str, Any], rows: list[dict[str, Any]], columns: pa.Schema) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, columns.with_metadata({KEY: json.dumps(head)})), path)
    return path


ROWS = [{"cluster": "c1", **row_as_json(one)} for one in EVERY.decisions]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partition": 1}, "orders-1 has more than one row"),
        ({"partition": -1}, r"orders--1\.partition"),
        ({"partition": None}, "partition"),
        ({"trim_to": 101}, "outside"),
        ({"trim_to": None}, "needs"),
        ({"topic_id": None}, "needs"),
        ({"log_start": 200}, "beyond"),
        ({"min_commit": -5}, "min_commit"),
        ({"records": None}, "records"),
        ({"unconsumed": -1}, "unconsumed"),
        ({"action": "delete"}, "action"),
        ({"action": None}, "action"),
        ({"topic": ""}, "topic"),
        ({"rule": "whim"}, "rule"),
        ({"reasons": None}, "reasons"),
        ({"reasons": [{"code": "F3", "text": None}]}, "reasons"),
        ({"cluster": "c2"}, "rows of cluster c2, of which its head says nothing"),
        ({"cluster": None}, "rows of cluster None"),
    ],
)
def test_impossible_row_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "plan.parquet", head_as_json(EVERY), [ROWS[0] | change, *ROWS[1:]], LOOSE)
    with pytest.raises(SavedPlanError, match=said) as error:
        read_plan(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", schema().names)
def test_missing_column_or_one_of_another_type_is_refused(tmp_path: Path, name: str) -> None:
    place = LOOSE.get_field_index(name)
    rows = [{key: value for key, value in one.items() if key != name} for one in ROWS]
    for columns in (LOOSE.remove(place), LOOSE.set(place, pa.field(name, pa.float64()))):
        with pytest.raises(SavedPlanError, match=f"column {name} is"):
            read_plan(written(tmp_path / "plan.parquet", head_as_json(EVERY), rows, columns))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "kretain.plan/v2"}, "v2"),
        ({"format": "kretain.fleet-plan/v1"}, "the plan of a fleet: give --fleet"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"cluster": {"id": ""}}, "cluster"),
        ({"totals": {}}, r"totals\.partitions"),
        ({"totals": {"partitions": 4}}, "5 rows, its head says 4"),
    ],
)
def test_impossible_head_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(SavedPlanError, match=said):
        read_plan(written(tmp_path / "plan.parquet", head_as_json(EVERY) | change, ROWS, LOOSE))


def test_foreign_or_missing_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path := tmp_path / "other.parquet")
    with pytest.raises(SavedPlanError, match=r"its metadata has no kretain\.plan"):
        read_plan(path)
    with pytest.raises(SavedPlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "nowhere.parquet")


def test_truncated_or_damaged_plan_file_is_refused_or_reads_equal(tmp_path: Path) -> None:
    """Bytes of rows have checksums; a head is text, which an edit may change as it may a JSON plan's."""
    write_plan(path := tmp_path / "plan.parquet", EVERY)
    whole = path.read_bytes()
    for end in (0, 4, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(SavedPlanError, match="not a whole Parquet file"):
            read_plan(path)
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        try:
            assert read_plan(path).decisions == EVERY.decisions, place
        except SavedPlanError as error:
            assert "\n" not in str(error)


def test_plan_with_reordered_or_dictionary_columns_is_accepted(tmp_path: Path) -> None:
    """As other writers like them."""
    columns = pa.schema([LOOSE.field(name) for name in sorted(LOOSE.names)])
    for name in ("cluster", "topic"):
        columns = columns.set(columns.get_field_index(name), pa.field(name, pa.dictionary(pa.int32(), pa.string())))
    assert read_plan(written(tmp_path / "plan.parquet", head_as_json(EVERY), ROWS, columns)) == EVERY
