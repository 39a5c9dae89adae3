"""The plan's JSON is a contract (docs/plan.md, The plan); a plan read back is doubted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention_cli.core.model import Decision
from retention_cli.plan.columns import COLUMNS, NAMES, decision_of, row_as_json
from retention_cli.plan.load import read_plan
from retention_cli.plan.saved import RowModel, SavedPlanError
from retention_cli.plan.value import Totals, as_json, delete_records_json, plan_text
from tests.support.plans import EVERY, HOLD, row


def test_plan_row_columns_agree_in_code_json_and_docs() -> None:
    assert {one.field for one in COLUMNS} == set(Decision._fields)
    assert list(RowModel.model_fields) == list(NAMES)
    for one in EVERY.decisions:
        assert list(row_as_json(one)) == list(NAMES)
        exact = one._replace(size_exact=True)
        assert decision_of(row_as_json(exact)) == one._replace(size_exact=False), "a saved plan has no such column"
    told = Path("docs/plan.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in told] == []


def test_plan_json_has_exactly_the_documented_keys() -> None:
    written = json.loads(plan_text(EVERY))
    assert written == as_json(EVERY)
    first = ["format", "kretain", "created_at", "cluster", "policy", "clock", "memory", "has_changes"]
    assert list(written)[: len(first)] == first
    assert written["memory"] == {"state": "local", "since": None}
    assert written["format"] == "kretain.plan/v1"
    assert written["created_at"] == "2026-11-21T03:00:00.000Z"
    assert written["cluster"] == {"id": "c1", "bootstrap": "b:9092"}
    assert written["policy"]["source"] == "kretain.yaml"
    assert written["policy"]["digest"] == "sha256:00"
    assert written["has_changes"] is True
    assert written["clock"] == "unchecked"
    assert written["totals"] == {
        "partitions": 5,
        "trim": 2,
        "keep": 1,
        "hold": 1,
        "skip": 1,
        "records": 100,
        "bytes": None,
        "bytes_exact": False,
        "unconsumed": 0,
    }
    assert written["partitions"][0] == {
        "topic": "orders",
        "topic_id": "id-1",
        "partition": 0,
        "action": "trim",
        "log_start": 0,
        "high_watermark": 100,
        "last_stable_offset": 100,
        "min_commit": 60,
        "min_commit_by": "group:a",
        "trim_to": 50,
        "leader_epoch": 3,
        "records": 50,
        "bytes": 500,
        "unconsumed": 0,
        "rule": "consumed",
        "limited_by": None,
        "reasons": [],
    }
    assert written["partitions"][3]["reasons"] == [{"code": "G7", "text": "on hold: x"}]


def test_delete_records_json_is_kafkas_format() -> None:
    assert delete_records_json(EVERY) == {
        "partitions": [
            {"topic": "orders", "partition": 0, "offset": 50},
            {"topic": "orders", "partition": 1, "offset": 50},
        ],
        "version": 1,
    }


def test_plan_totals_count_only_trimmed_rows() -> None:
    totals = Totals.of([row(unconsumed=5), row(partition=1, records=7, size_bytes=70), HOLD._replace(records=99)])
    assert (totals.records, totals.size_bytes, totals.unconsumed) == (57, 570, 5)


def saved(tmp_path: Path, **changes: Any) -> Path:
    content = as_json(EVERY)
    content["partitions"][0].update(changes.pop("row", {}))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content | changes))
    return path


def test_saved_plan_reads_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(EVERY))
    assert read_plan(path) == EVERY


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "kretain.plan/v2"}, "v2"),
        ({"format": None}, "format"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": "2026-11-21T03:00:00"}, "time zone"),
        ({"cluster": {"id": ""}}, "cluster"),
        ({"partitions": "many"}, "partitions"),
        ({"row": {"partition": 1}}, "more than one row"),
        ({"row": {"partition": -1}}, "partition"),
        ({"row": {"partition": 0.5}}, "partition"),
        ({"row": {"partition": True}}, "partition"),
        ({"row": {"trim_to": 101}}, "outside"),
        ({"row": {"trim_to": -1}}, "trim_to"),
        ({"row": {"trim_to": "50"}}, "trim_to"),
        ({"row": {"trim_to": None}}, "needs"),
        ({"row": {"topic_id": None}}, "needs"),
        ({"row": {"log_start": 200}}, "beyond"),
        ({"row": {"log_start": 60}}, "outside"),
        ({"row": {"min_commit": -5}}, "min_commit"),
        ({"row": {"records": -5}}, "records"),
        ({"row": {"unconsumed": -5}}, "unconsumed"),
        ({"row": {"action": "delete"}}, "action"),
        ({"row": {"topic": ""}}, "topic"),
        ({"row": {"high_watermark": 2**63}}, "high_watermark"),
    ],
)
def test_impossible_plan_is_refused_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SavedPlanError, match=said) as error:
        read_plan(saved(tmp_path, **changes))
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\x00\xff", b'{"format": "kretain.plan/v1"}', b"{}" * 3, b"[" * 100_000],
)
def test_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(SavedPlanError, match="No such file"):
        read_plan(path)
    path.write_bytes(content)
    with pytest.raises(SavedPlanError):
        read_plan(path)


def test_narrowing_edit_of_a_json_plan_is_accepted(tmp_path: Path) -> None:
    assert read_plan(saved(tmp_path, row={"trim_to": 20})).decisions[0].trim_to == 20
    assert read_plan(saved(tmp_path, row={"action": "keep", "trim_to": None})).decisions[0].action == "keep"
