"""Saved plans, mangled at random: refused with their place, or carried out no further than a fresh decision goes."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention_cli.core.model import Decision
from retention_cli.plan.load import read_plan
from retention_cli.plan.saved import SavedPlanError
from retention_cli.plan.target import Target
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import OneOff
from retention_cli.trim.reconcile import reconcile
from retention_cli.trim.run import PlanRefusedError, check_cluster, check_saved
from tests.support.plans import EVERY, HOLD, KEEP, row

REAL = json.loads(plan_text(EVERY))
FRESH = {
    one.tp: one
    for one in (
        row(),
        row(partition=1, trim_to=30, min_commit=30),
        row(partition=2),
        row(partition=3, log_start=45),
        KEEP,
        HOLD,
    )
}
"""What today's facts allow, partition by partition: as planned, less, none, the last of it."""
SELECTION = Selection(parse_policy("version: 1\ntopics: [{match: orders, retention.ms: 1d}]", "p.yaml", "sha256:0"))
NOW = EVERY.created_at_ms + 1000

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-2, 120)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["trim", "keep", "hold", "skip", "orders", "id-1", "id-2", "G1", "consumed", "kretain.plan/v1"])
    | st.sampled_from(
        ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-11-21T03:00:00Z", "NaN", "+10000-01-01"]
    )
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def places(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document, as the keys that lead to it."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(place for key, value in inner for place in places(value, (*here, key)))]


def changed(document: Any, place: tuple[Any, ...], how: str, value: Any) -> Any:
    if not place:
        return value
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if how == "drop":
        del inner[place[-1]]
    elif how == "double" and isinstance(inner, list):
        inner.append(copy.deepcopy(inner[place[-1]]))
    else:
        inner[place[-1]] = value
    return document


def check(plan: Plan) -> None:
    """Go the way of ``trim --plan`` as far as it goes without a cluster."""
    try:
        check_saved(plan, SELECTION, NOW, 3_600_000)
        check_cluster(plan, "c1")
    except PlanRefusedError as error:
        assert str(error)
        return
    for planned in plan.decisions:
        if planned.action == "trim":
            allowed: Decision | None = FRESH.get(planned.tp)
            result = reconcile(planned, allowed)
            if isinstance(result, Target):
                assert allowed is not None
                assert allowed.action == "trim"
                assert planned.topic_id == allowed.topic_id
                assert (allowed.log_start or 0) < result.offset <= (allowed.trim_to or 0)
    plan_text(plan)  # what the audit log and the report take from it can be written


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_edited_plan_is_refused_or_trims_no_more(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = copy.deepcopy(REAL)
    for _ in range(data.draw(st.integers(1, 3))):
        if isinstance(document, dict | list):
            place = data.draw(st.sampled_from(places(document)))
            document = changed(
                document, place, data.draw(st.sampled_from(["set", "set", "drop", "double"])), data.draw(values)
            )
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    path.write_text(json.dumps(document))
    try:
        plan = read_plan(path)
    except SavedPlanError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        check(plan)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_plan_file_is_refused_or_trims_no_more(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(plan_text(EVERY).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["byte", "cut", "drop", "digit"])):
            case "byte":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at:]
            case "drop":
                del content[at : at + data.draw(st.integers(1, 40))]
            case "digit":
                content[at:at] = b"9"
        if not content:
            break
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    path.write_bytes(content)
    try:
        check(read_plan(path))
    except SavedPlanError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    "created_at",
    ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"],
)
@pytest.mark.parametrize("max_age_ms", [3_600_000, 10**18])
def test_plan_with_an_extreme_time_is_refused_or_printable(tmp_path: Path, created_at: str, max_age_ms: int) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**REAL, "created_at": created_at}))
    try:
        plan = read_plan(path)
        check_saved(plan, SELECTION, NOW, max_age_ms)
        plan_text(plan)
    except (SavedPlanError, PlanRefusedError) as error:
        assert str(error)


FLAGS = OneOff(patterns=("orders",), older_than_ms=86_400_000)


@pytest.mark.parametrize(
    ("changes", "chosen", "later_ms", "said"),
    [
        ({}, SELECTION, 3_600_000, None),
        ({}, SELECTION, 3_600_001, "is 1h old (limit 1h): run kretain plan again"),
        ({}, SELECTION, -60_000, None),
        ({}, SELECTION, -60_001, "from the future"),
        ({"cluster_id": "c2"}, SELECTION, 0, "the plan is for cluster c2, this is c1"),
        ({"flags": FLAGS.flags()}, SELECTION, 0, "other one-off rules (--older-than 86400000)"),
        ({}, Selection(SELECTION.policy.with_one_off(FLAGS), ("orders",)), 0, "other one-off rules (none)"),
        (
            {"flags": FLAGS.flags(), "topics": ("orders",)},
            Selection(SELECTION.policy.with_one_off(FLAGS), ("orders",)),
            0,
            None,
        ),
        (
            {"flags": FLAGS.flags(), "topics": ("orders",)},
            Selection(SELECTION.policy.with_one_off(FLAGS), ("orders", "payments")),
            0,
            "for TOPIC orders",
        ),
    ],
)
def test_saved_plan_is_valid_only_for_its_cluster_age_and_flags(
    changes: dict[str, Any], chosen: Selection, later_ms: int, said: str | None
) -> None:
    saved = replace(EVERY, **changes)
    if said is None:
        check_saved(saved, chosen, EVERY.created_at_ms + later_ms, 3_600_000)
        check_cluster(saved, "c1")
        return
    with pytest.raises(PlanRefusedError, match=re.escape(said)):  # noqa: PT012
        check_saved(saved, chosen, EVERY.created_at_ms + later_ms, 3_600_000)
        check_cluster(saved, "c1")
