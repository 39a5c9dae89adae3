"""Consumers outside Kafka's groups set floors as groups do (F7): read from files, commands and HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from retention_cli.brokers.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.consumers import key_of
from retention_cli.core.model import Floor, TopicPartition, Unknown
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Rows
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.outside import fold_outside, read_sources
from retention_cli.observe.floors.sources.interface import Consumer, SourceError
from retention_cli.observe.recall import Recall
from retention_cli.policy.settings import FloorSource, GroupRules
from tests.support.checkpoints import reach_at
from tests.support.http_server import Answer, LocalServer
from tests.support.ledgers import judge_ledger

NOW = 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)
GROUPS: Mapping[str, Rows] = {"billing": {"orders": [(0, 50, 5), (1, 60, 5)], "payments": [(0, 70, 5)]}}


TOPICS = {
    name: TopicMetadata(name, f"{name}-id", False, {number: PartitionMetadata(1, 5) for number in range(count)})
    for name, count in (("orders", 2), ("payments", 1), ("elsewhere", 1))
}


CLUSTER = ClusterMetadata("c", frozenset({1}), TOPICS)


def recalling(**seen: Rows) -> Recall:
    """Recall what was seen a moment ago of consumers in files."""
    ledger = Ledger(None)
    ledger.begin({name: f"{name}-id" for name in TOPICS})
    for name, rows in seen.items():
        ledger.saw_group(key_of("file", name), rows, NOW - 1, 0)
    judge_ledger(ledger, lambda _place: LogNow(100, 5), TOPICS)
    ledger.save(NOW - 1)
    return Recall(ledger, GroupRules(), NOW, lambda: NOW)


def a_file(folder: Path, text: str, name: str = "flink", **more: object) -> FloorSource:
    place = folder / f"{name}.csv"
    place.write_text(text)
    os.utime(place, (NOW / 1000, NOW / 1000))
    return FloorSource("file", name, place=str(place), **more)  # type: ignore[arg-type]


def folded(
    *sources: FloorSource, recall: Recall | None = None, now_ms: int = NOW, groups: Mapping[str, Rows] = GROUPS
) -> FloorFold:
    fold = FloorFold({"orders": TopicScope([5, 5]), "payments": TopicScope([5])}, with_rows=True)
    for name, rows in groups.items():
        fold.add(name, rows)
    recall = replace(recall or recalling(), rules=GroupRules(sources=sources))
    fold_outside(fold, CLUSTER, recall, reach_at(now_ms).reader)
    return fold


def floor(fold: FloorFold, topic: str = "orders", partition: int = 0) -> str:
    found = fold.floor(TopicPartition(topic, partition), 0, 100)
    return (
        f"{found.offset} {found.by}"
        if isinstance(found, Floor)
        else "; ".join(f"{one.code}: {one.text}" for one in found.reasons)
    )


NO_POSITION = (
    "F2: file:flink has a position on orders-1 (9) and none on this partition: add it (0, if nothing was read)"
)
EMPTY = "F3: file:flink could not be read: it is empty: was it cut short?"


@pytest.mark.parametrize(
    ("text", "groups", "floors"),
    [
        pytest.param(
            "orders,0,7\norders,1,99\nelsewhere,0,1\n",
            GROUPS,
            ["7 file:flink", "60 group:billing", "70 group:billing"],
            id="where it has positions",
        ),
        pytest.param("orders,0,7\norders,1,9\n", {}, ["7 file:flink", "9 file:flink"], id="without any group"),
        pytest.param("orders,1,9\n", GROUPS, [NO_POSITION], id="without a position here"),
        pytest.param(
            "orders,0,7\norders,1,9\n",
            {"file:flink": {"orders": [(0, 3, 5), (1, 3, 5)]}},
            ["3 group:file:flink"],
            id="beside a group of the same name",
        ),
    ],
)
def test_position_file_counts_like_a_group(
    tmp_path: Path, text: str, groups: Mapping[str, Rows], floors: list[str]
) -> None:
    fold = folded(a_file(tmp_path, text), groups=groups)
    places = [("orders", 0), ("orders", 1), ("payments", 0)]
    assert [floor(fold, *place) for place, _ in zip(places, floors, strict=False)] == floors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders,0,7\norders,2,9\n", "it names partition 2 of orders, which has no such partition"),
        ("orders,0,7\nother,0,9\n", "it names other, which this cluster does not have (or this user may not describe)"),
        ("orders,0,-1\n", "line 1: offset '-1' is not a whole number from 0"),
    ],
)
def test_invalid_row_makes_every_topic_of_its_source_unknown(tmp_path: Path, text: str, said: str) -> None:
    some, every = (folded(a_file(tmp_path, text, topics=topics)) for topics in (("ord*",), None))
    found = [floor(some), floor(some, "orders", 1), floor(every, "payments")]
    assert found == [f"F3: file:flink could not be read: {said}"] * 3
    assert floor(some, "payments") == "70 group:billing"


@pytest.mark.parametrize(("text", "expected"), [("", EMPTY), ("orders,0,7\norders,1,9\n", "7 file:flink")])
def test_remembered_position_is_unknown_with_its_source_and_else_counts(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert (
        floor(
            folded(a_file(tmp_path, text, topics=("ord*",)), recall=recalling(flink={"payments": [(0, 7, 5)]})),
            "payments",
        )
        == expected
    )


def test_readable_source_still_counts_beside_an_unreadable_one(tmp_path: Path) -> None:
    good, missing = a_file(tmp_path, "orders,0,7\norders,1,9\n"), tmp_path / "missing"
    fold = folded(good, FloorSource("file", "other", place=str(missing), topics=("payments",)))
    said = f"F3: file:other could not be read: {missing}: no such file or directory"
    assert [floor(fold), floor(fold, "payments")] == ["7 file:flink", said]


def test_file_that_is_too_old_is_unknown(tmp_path: Path) -> None:
    assert (
        floor(folded(a_file(tmp_path, "orders,0,7\norders,1,9\n"), now_ms=NOW + 7_200_000))
        == "F3: file:flink could not be read: its positions are 2h old (max.age: 1h): export them again"
    )


def test_fold_lists_each_external_consumer_as_rows(tmp_path: Path) -> None:
    sources = (a_file(tmp_path, "orders,0,7\n"), FloorSource("file", "none", place=str(tmp_path), topics=("pay*",)))
    key = key_of("file", "flink")
    assert {
        (one.group, one.topic, one.partition, one.kind, one.offset) for one in folded(*sources, groups={}).rows or ()
    } == {
        (key, "orders", 0, "commit", 7),
        (key, "orders", 1, "missing", None),
        (key_of("file", "none"), "payments", None, "failed", None),
    }


# -- commands --------------------------------------------------------------------------


def a_command(*command: str, timeout_ms: int = 20_000) -> FloorSource:
    return FloorSource("command", "prod", command=command, timeout_ms=timeout_ms)


def said_of(source: FloorSource) -> str:
    [found] = read_sources([source], reach_at(NOW))
    assert isinstance(found, SourceError)
    return str(found)


@pytest.mark.parametrize("topic", ["orders", "$(id)"])
def test_command_prints_what_a_file_holds_and_has_no_shell(topic: str) -> None:
    [found] = read_sources([a_command("printf", r"%s,0,7\n%s,1,9\n", topic, topic)], reach_at(NOW))
    assert found == {"prod": Consumer({topic: [(0, 7), (1, 9)]})}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("sh", "-c", "echo orders,0,7; echo password=hunter2 >&2; exit 3"),
            "the command exited with 3: run it by hand to see why",
        ),
        (
            ("sh", "-c", "echo orders,0,7; kill -9 $$"),
            "the command was ended by signal 9: run it by hand to see why",
        ),
        (("no-such-program",), "no-such-program can't be run: no such file or directory"),
        (("cat", "/dev/zero"), "the command prints more than 64 MiB"),
    ],
)
def test_failed_command_is_reported_without_its_stderr(command: tuple[str, ...], said: str) -> None:
    assert said_of(a_command(*command)) == said


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("(sleep 1.5; touch {alive}) & echo orders,0,7; sleep 60", id="it hangs"),
        pytest.param("(sleep 1.5; touch {alive}; sleep 60) & echo orders,0,7", id="its child has the pipe open"),
    ],
)
def test_command_that_times_out_is_ended_with_all_that_it_started(tmp_path: Path, script: str) -> None:
    alive = tmp_path / "alive"
    assert (
        said_of(a_command("sh", "-c", script.format(alive=alive), timeout_ms=300))
        == "the command was not done within 0.3 s (timeout)"
    )
    time.sleep(2)
    assert not alive.exists()


def test_sources_that_hang_are_waited_for_together() -> None:
    began = time.monotonic()
    slow = [FloorSource("command", f"c{n}", command=("sleep", "60"), timeout_ms=2_000) for n in range(5)]
    assert {str(one) for one in read_sources(slow, reach_at(NOW))} == {"the command was not done within 2 s (timeout)"}
    assert time.monotonic() - began < 9


# -- HTTP ------------------------------------------------------------------------------


class Web(LocalServer):
    """A file with positions, by paths: dated or not, absent, cut short, or byte by byte."""

    def reply(self, path: str, _headers: Mapping[str, str], _content: bytes) -> Answer:
        body = b"orders,0,7\norders,1,9\n"
        answers: dict[str, Answer] = {
            "/dated": (200, {"Last-Modified": formatdate(NOW / 1000, usegmt=True)}, body),
            "/undated": (200, {}, body),
            "/down": (503, {}, body),
            "/short": (200, {"Content-Length": str(len(body) + 1)}, body),
            "/dribble": (200, {"Content-Length": "1000000"}, dribbled()),
        }
        return answers[path]


def dribbled() -> Iterator[bytes]:
    for _ in range(40):
        yield b"o"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with Web() as server:
        yield server.address


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/undated", 'nothing says how old it is: write JSON with "at"'),
        ("/down", "{url}: HTTP 503"),
        ("/short", "{url}: its answer was cut short"),
        ("/dribble", "{url}: not read within 1 s (timeout)"),
    ],
)
def test_file_over_http_is_read_or_fails_with_the_reason(web: str, path: str, said: str) -> None:
    assert said_of(FloorSource("file", "web", place=web + path, timeout_ms=1_000)) == said.format(url=web + path)


def test_file_over_http_that_is_dated_is_read(web: str) -> None:
    [found] = read_sources([FloorSource("file", "web", place=f"{web}/dated")], reach_at(NOW))
    assert found == {"web": Consumer({"orders": [(0, 7), (1, 9)]})}


def test_server_that_does_not_exist_is_an_error() -> None:
    source = FloorSource("file", "web", place="http://127.0.0.1:1/x")
    assert "could not be read" not in said_of(source)
    assert isinstance(folded(source).floor(ORDERS, 0, 9), Unknown)
