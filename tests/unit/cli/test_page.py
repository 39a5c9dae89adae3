"""Pages: what a cluster's names hold is text there, in any browser; totals are exact and the page stays small."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import html5lib
import pytest
from hypothesis import given, settings, strategies as st

from kretain.render.page.elements import GO, MOST_ROWS, bars, cards, element, lines, page, section, table
from kretain.render.page.forecast import forecast_parts, read_forecast_file
from kretain.render.page.pages import plan_page
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Decision, Reason
from retention_cli.core.state_dir import StateError
from retention_cli.memory.disk import DiskSample
from retention_cli.memory.ledger import Ledger, stored_disk_samples
from retention_cli.plan.saved import SavedPlanError
from retention_cli.plan.value import Plan
from retention_cli.reports.plan_summary import command_for, summarize
from tests.support import plans
from tests.support.docs import parse, reason_codes
from tests.support.says import refusal, says

HOSTILE = (
    "</style></title><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>"
    "\"'`--><!--]]>&amp;&#60;$\\bad{^\x1b[2J\x07\u202egpj.exe\u200b\u2028\ud800\x00\ufffe"
)


DISKS = {"1:/data": [DiskSample(1_795_000_000_000 + n * 3_600_000, 10**9 * n, 10**11) for n in range(20)]}


def row(topic: str = "orders", partition: int = 0, by: str | None = "group:billing", text: str = "why") -> Decision:
    return plans.row(
        topic=topic,
        partition=partition,
        min_commit=60 if by else None,
        min_commit_by=by,
        trim_to=60,
        records=60,
        size_bytes=600,
        reasons=(Reason("F5", text),),
    )


def plan(*rows: Decision, source: str = "policy.yaml", cluster: str = "cluster") -> Plan:
    return plans.plan(*rows, policy_source=source, cluster_id=cluster)


ALLOWED = frozenset(
    (
        *("html", "head", "meta", "title", "style", "body", "header", "h1", "p", "dl", "div", "dt", "dd", "main"),
        *("section", "h2", "table", "thead", "tbody", "tr", "th", "td", "code", "span", "b", "footer", "figure"),
        *("svg", "g", "path", "text", "tspan", "defs", "clipPath", "rect", "use", "line"),
    )
)


def elements(text: str) -> list[Any]:
    root = html5lib.parse(text, treebuilder="etree", namespaceHTMLElements=False)
    return [one for one in root.iter() if isinstance(one.tag, str)]


def names(text: str) -> Counter[str]:
    return Counter(one.tag.rpartition("}")[2] for one in elements(text))


def test_page_with_hostile_names_has_none_of_their_markup() -> None:
    """Nothing is markup but what a benign page has, nothing runs, nothing is fetched, all of it prints."""
    text = plan_page(plan(row(HOSTILE, 0, f"group:{HOSTILE}", HOSTILE), source=HOSTILE, cluster=HOSTILE), DISKS, [])
    says(text, r"\x1b[2J", "&lt;script&gt;alert(1)")
    assert names(text) == names(plan_page(plan(row()), DISKS, []))
    assert set(names(text)) <= ALLOWED
    for one in elements(text):
        for name, value in one.attrib.items():
            key = name.rpartition("}")[2]
            assert not re.fullmatch("on.*|src|action|formaction|data", key), (one.tag, key)
            assert key != "href" or value.startswith("#"), value
            assert all(inner.startswith("#") for inner in re.findall(r"url\(\s*['\"]?([^)'\"]*)", value)), value
    assert all(one.isprintable() or one == "\n" for one in text)
    policy = next(one for one in elements(text) if one.get("http-equiv") == "Content-Security-Policy")
    says(policy.get("content"), "default-src 'none'", never=["script"])


TEXT = st.text() | st.text("<>&\"'`-!$\\{}^_/= \x00\x1b\u202e\ud800", max_size=30)


@given(text=TEXT, other=TEXT)
def test_any_name_is_text_on_the_page(text: str, other: str) -> None:
    def made(one: str, two: str) -> str:
        parts = [element("p", one, two, title=one), table((one, two), [(one, two)]), cards([(one, two, "go")])]
        return page(one, two, [(one, two)], section(one, *parts, note=two))

    found = made(text, other)
    assert names(found) == names(made("a", "b"))
    assert all(one.isprintable() or one == "\n" for one in found)


@settings(max_examples=5)
@given(text=TEXT)
def test_any_name_is_text_in_a_chart(text: str) -> None:
    for chart in (bars(text, [text], {text: (GO, [1]), "other": (GO, [2])}), lines(text, {text: [(0, 1.0)]}, text)):
        assert set(names(page("a", "b", [], chart))) <= ALLOWED


def test_page_of_a_large_plan_is_small_with_exact_totals() -> None:
    rows = [row(f"t{n // 10:05}", n % 10, f"group:g{n % 500}", f"why {n % 300}") for n in range(20_000)]
    made = plan_page(plan(*rows), DISKS, [])
    assert len(made) < 150_000
    says(made, "1,200,000 records to trim", f"{MOST_ROWS} of 2,000 topics", f"{MOST_ROWS} of 500 consumers")
    found = summarize(plan(*rows))
    totals = found.totals
    assert (totals.records, totals.partitions, totals.size_bytes) == (1_200_000, 20_000, 12_000_000)
    assert (len(found.topics), len(found.reasons)) == (2_000, 300)
    assert [one.records for _, one in found.consumers] == [1600] * 500


def test_page_counts_holding_groups_by_the_deciding_reason() -> None:
    held = row("b", by="group:slow")._replace(action="hold", min_commit=10, trim_to=None, records=0)
    done = row("c", by="group:done")._replace(action="keep", min_commit=100, trim_to=None, records=0)
    found = summarize(plan(row("a"), held, done))
    assert [(name, one.records) for name, one in found.consumers] == [("group:slow", 90), ("group:billing", 40)]
    assert [(one.name, one.totals.records, one.held_records, one.staying) for one in found.topics] == [
        ("a", 60, 0, 40),
        ("b", 0, 100, 0),
        ("c", 0, 0, 100),
    ]


def test_empty_plan_makes_a_page() -> None:
    says(plan_page(plan(), {}, ["the ledger can't be read"]), "Nothing to trim.", "the ledger can't be read")


@pytest.mark.parametrize("code", sorted(reason_codes()))
def test_command_suggested_on_the_page_exists(code: str) -> None:
    line = command_for(code).replace("{topic}", "orders").replace("{place}", "orders:3")
    parse([*line.split()[1:], "-b", "localhost:9092"])


def test_page_reads_disk_history_without_changing_it(tmp_path: Path) -> None:
    assert (stored_disk_samples(tmp_path), list(tmp_path.iterdir())) == ({}, [])
    with closing(Ledger(tmp_path / "c")) as ledger:
        for disk in ("1:/data", "1:/data:unexplained"):
            ledger.disk(disk).add(DiskSample(5, 1, 10))
        ledger.save(5)
    file = tmp_path / "c" / "ledger.sqlite"
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert stored_disk_samples(tmp_path / "c") == {"1:/data": (DiskSample(5, 1, 10),)}
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    assert "can't be used" in refusal(StateError, stored_disk_samples, tmp_path / "c")


def saved_forecast(path: Path, name: str, cluster: str = "cluster") -> Path:
    topic = {"topic": name, "alone": "steady", "alone_bytes_high": 900, "policy": "steady", "policy_bytes_high": 100}
    group = {"group": name, "topic": name, "lag": 5, "cause": "R4", "seconds_to_loss": 7200}
    full = {"full_alone_in_known": True, "full_alone_in_ms_low": 86_400_000 * 3, "full_policy_in_known": True}
    made = {
        "format": "kretain.forecast/v1",
        "created_at": name,
        "cluster": {"id": cluster},
        "policy": {"source": name},
        "totals": dict.fromkeys(("topics", "steady", "unknown", "endless_alone"), 1)
        | {"saved_bytes_low": 0, "saved_bytes_high": 800},
        "topics": [topic],
        "groups": [group],
        "cost": {
            "currency": "EUR",
            "cost_saved_month_low": 5,
            "cost_saved_month_high": 7.5,
            "labels": [{"label": name, "topics": 1, "cost_now_low": 2, "cost_now_high": None}],
            "consumers": [{"consumer": name, "cost_unread_month_low": 0, "cost_unread_month_high": 0.5}],
        },
        "disks": [{"broker": 1, "dirs": [name], **full, "full_policy_in_ms_low": None}],
    }
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def test_forecast_on_the_page_is_escaped(tmp_path: Path) -> None:
    plain, hostile = (
        page("a", "b", [], *forecast_parts(read_forecast_file(saved_forecast(tmp_path / "f.json", name), "cluster")))
        for name in ("benign", HOSTILE.replace("\ud800", ""))  # no JSON has half a character
    )
    assert names(plain) == names(hostile)
    money = ("Money, in EUR", "5.00–7.50", "≥ 2.00", "≤ 0.50")
    says(plain, "saves 0 B to 800 B", "in 3 d at the earliest", *money)


def test_forecast_of_another_cluster_is_refused(tmp_path: Path) -> None:
    file = saved_forecast(tmp_path / "f.json", "x", "other")
    assert "is a forecast for cluster" in refusal(SavedPlanError, read_forecast_file, file, "cluster")
    file.write_text('{"format": "kretain.plan/v1"}', encoding="utf-8")
    assert "has format" in refusal(SavedPlanError, read_forecast_file, file, "cluster")


def test_missing_matplotlib_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "[report]" in refusal(MissingPartError, plan_page, plan(row()), {}, [])
