"""Bytes that groups have yet to read, and which groups ``kretain groups forget`` means."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.core.consumers import key_of
from retention_cli.core.model import Sample, TopicPartition
from retention_cli.memory.partition import pack
from retention_cli.observe.floors.fold import CommitRow, Kind
from retention_cli.reports.doctor import Platform, platform_of, versions
from retention_cli.reports.groups import GroupSummary, Standings
from retention_cli.reports.ledger import NotRememberedError, named
from retention_cli.reports.offsets import Log, Unread, by_partition, by_topic, unread_of
from tests.support.says import refusal

if TYPE_CHECKING:
    from retention_cli.brokers.reader import ClusterReader

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
Positions = dict[str, dict[TopicPartition, int]]


def laid(positions: Positions, *, everyone: bool = True, **others: GroupSummary) -> dict[str, tuple[int | None, ...]]:
    """Two logs of 100 records, the first from 100 on, with 10 bytes a record."""
    held = Standings({A: 100, B: 0}, {A: 200, B: 100}, {A: 1000, B: 1000})
    groups = {name: GroupSummary(name, "classic", "consumer", "", "counts") for name in positions} | others
    for name, rows in positions.items():
        held.add(name, groups[name], {tp.topic: [(tp.partition, offset, None)] for tp, offset in rows.items()})
    held.lay_into(groups, everyone=everyone)
    return {name: (one.lag_bytes, one.alone_bytes) for name, one in groups.items()}


OTHER = GroupSummary("x", "classic", "consumer", "", "counts", lag=None)


@pytest.mark.parametrize(
    ("positions", "more", "found"),
    [
        pytest.param(
            *({"slow": {A: 120, B: 90}, "fast": {A: 170, B: 40}}, {}, {"slow": (900, 500), "fast": (900, 500)}),
            id="up to the next group",
        ),
        pytest.param({"only": {A: 120}}, {}, {"only": (800, 800)}, id="no other group"),
        pytest.param({"one": {A: 120}, "two": {A: 120}}, {}, {"one": (800, 0), "two": (800, 0)}, id="equal"),
        pytest.param({"lost": {A: 3}, "ahead": {A: 900}}, {}, {"lost": (1000, 1000), "ahead": (0, 0)}, id="outside"),
        pytest.param({"slow": {A: 120}}, {"x": OTHER}, {"slow": (800, None), "x": (None, None)}, id="x is unreadable"),
        pytest.param({"slow": {A: 120}}, {"everyone": False}, {"slow": (800, None)}, id="not every group is known"),
        pytest.param({"slow": {A: 120, TopicPartition("unknown", 0): 5}}, {}, {"slow": (None, None)}, id="unknown log"),
        pytest.param(
            *({"slow": {A: 120}}, {"tool": replace(OTHER, counts="ignored (groups.ignore)", lag=0)}),
            {"slow": (800, 800), "tool": (None, None)},
            id="an ignored group",
        ),
    ],
)
def test_group_alone_holds_the_bytes_up_to_the_next_group_if_all_is_known(
    positions: Positions, more: dict[str, Any], found: dict[str, tuple[int | None, ...]]
) -> None:
    assert laid(positions, **more) == found


@pytest.mark.parametrize(
    ("commits", "lag"),
    [
        pytest.param({"a": 150, "gone": 5}, 50, id="a partition that is gone"),
        pytest.param({"a": 150, "unread": 5}, None, id="one whose end is unknown"),
        pytest.param({"a": 3}, 100, id="records that were deleted unread"),
    ],
)
def test_lag_leaves_out_what_is_gone_and_is_unknown_where_an_end_is(commits: dict[str, int], lag: int | None) -> None:
    summary = GroupSummary("g", "classic", "consumer", "", "counts")
    rows = {topic: [(0, offset, None)] for topic, offset in commits.items()}
    Standings({A: 100}, {A: 200}, {}).add("group:g", summary, rows, known={A, TopicPartition("unread", 0)})
    assert summary.lag == lag


@given(
    st.dictionaries(
        st.sampled_from("vwxyz"), st.dictionaries(st.sampled_from([A, B]), st.integers(0, 220), min_size=1), min_size=1
    )
)
def test_held_alone_equals_what_the_floor_releases(positions: Positions) -> None:
    def held(rows: Positions) -> int:
        behind = 0
        for tp, start in ((A, 100), (B, 0)):
            here = [min(max(one[tp], start), start + 100) for one in rows.values() if tp in one]
            behind += 10 * (start + 100 - min(here, default=start + 100))
        return behind

    found = laid(positions)
    assert found == laid(dict(reversed(positions.items())))
    for name, (_, alone) in found.items():
        assert alone == held(positions) - held({**positions, name: dict.fromkeys(positions[name], 10**9)})


def chosen(*given: str, remembered: tuple[str, ...] = ("job-1", "job-2", "job-live", "a*", "ab")) -> list[str]:
    ledger: Any = SimpleNamespace(
        begin=lambda _topic_ids: None,
        remembers_group=lambda name: name in remembered,
        gone_groups=lambda present, since_ms: [(name, since_ms, {}) for name in remembered if name not in present],
    )
    return named(ledger, given, {"job-live"}, {})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("job-1",), ["job-1"]),
        (("job-*",), ["job-1", "job-2"]),
        (("re:job-[0-9]", "job-2", "ab"), ["job-1", "job-2", "ab"]),
        (("job-live",), ["job-live"]),
        (("a*",), ["a*"]),
        (("unknown",), ["unknown"]),
    ],
)
def test_group_pattern_selects_deleted_groups_and_a_name_selects_itself(
    given: tuple[str, ...], found: list[str]
) -> None:
    assert chosen(*given) == found


def test_group_pattern_of_two_hundred_names_selects_them_all() -> None:
    names = tuple(f"consumer-{number:032x}" for number in range(200))
    assert chosen("consumer-????????????????????????????????", remembered=names) == list(names)


def test_pattern_matching_nothing_is_refused() -> None:
    assert "matches nothing-*; nothing was forgotten" in refusal(NotRememberedError, chosen, "job-1", "nothing-*")


LOG = Log(
    10,
    110,
    1_000,
    pack([Sample(1_000, 20), Sample(2_000, 50), Sample(3_000, 60)]),
    leader_epoch=5,
    ends={3: 40, 4: None},
)


def row(
    kind: Kind, offset: int | None = None, epoch: int | None = None, group: str = "g", partition: int = 0
) -> CommitRow:
    return CommitRow(group, "t", partition, kind, offset, epoch)


@pytest.mark.parametrize(
    ("given", "log", "unread"),
    [
        (row("commit", 60), LOG, Unread(50, 500, None)),  # the oldest was never seen
        (row("commit", 59), LOG, Unread(51, 510, 3_000)),
        (row("commit", 20), LOG, Unread(90, 900, 2_000)),
        (row("commit", 10), LOG, Unread(100, 1_000, 1_000)),
        (row("commit", 0), LOG, Unread(100, 1_000, 1_000)),  # what is below S is gone
        (row("commit", 110), LOG, Unread(0, 0, None)),
        (row("commit", 111), LOG, Unread(None)),  # of another log (F5)
        (row("commit", 30, 6), LOG, Unread(None)),  # likewise: in an epoch that this log never had
        (row("commit", 40, 3), LOG, Unread(70, 700, 2_000)),
        (row("commit", 41, 3), LOG, Unread(None)),  # beyond the end of its epoch
        (row("commit", 30, 4), LOG, Unread(None)),  # whose end is unknown
        (row("commit", 30, 5), LOG, Unread(80, 800, 2_000)),
        (row("gone", 45, 3), LOG, Unread(70, 700, 2_000)),  # counts where its epoch ends
        (row("gone", 30, 4), LOG, Unread(None)),
        (row("gone", 30, None), LOG, Unread(None)),  # nothing says of which log it was (F6)
        (row("gone", 30, 5), LOG, Unread(80, 800, 2_000)),
        (row("refused", 30), LOG, Unread(None)),
        (row("failed"), LOG, Unread(None)),
        (row("missing"), LOG, Unread(None)),
        (row("missing"), LOG._replace(start=110), Unread(0, 0)),  # an empty partition needs no commit
        (row("commit", 0), LOG._replace(start=110), Unread(0, 0)),
        (row("commit", 20), LOG._replace(start=None), Unread(None)),
        (row("commit", 20), LOG._replace(end=None), Unread(None)),
        (row("commit", 20), LOG._replace(size_bytes=None), Unread(90, None, 2_000)),
        # H fell since: what was above is seen anew
        (
            row("commit", 30),
            LOG._replace(samples=pack([Sample(1, 50), Sample(2, 30), Sample(3, 40)])),
            Unread(80, 800, 3),
        ),
    ],
)
def test_unread_is_counted_from_the_position_to_the_end(given: CommitRow, log: Log, unread: Unread) -> None:
    assert unread_of(given, log) == unread


def test_unread_of_a_topic_is_the_sum_of_its_partitions_or_unknown() -> None:
    logs = {TopicPartition("t", number): LOG for number in range(3)}
    rows = [
        *(row("commit", 20 + number, group="a", partition=number) for number in range(2)),
        row("gone", 10, 5, group="a", partition=2),
        row("commit", 20, group="b"),
        row("missing", group="b", partition=1),
        CommitRow(key_of("file", "x"), "t", None, "failed"),
        CommitRow("c", None, None, "failed"),
        CommitRow("d", "t", 7, "commit", 5),  # a partition that was not read
    ]
    columns = ("topic", "group", "partitions", "unknown", "records", "bytes", "unread_since", "remembered")
    assert [tuple(one[name] for name in columns) for one in by_topic(rows, logs)] == [
        (None, "c", 0, 1, None, None, None, False),
        ("t", "a", 3, 0, 90 + 89 + 100, 900 + 890 + 1_000, 1_000, True),
        ("t", "b", 2, 1, None, None, 2_000, False),
        ("t", "d", 1, 1, None, None, None, False),
        ("t", "file:x", 0, 1, None, None, None, False),
    ]
    assert [(one["topic"], one["partition"], one["group"], one["records"]) for one in by_partition(rows, logs)] == [
        (None, None, "c", None),
        ("t", None, "file:x", None),
        ("t", 0, "a", 90),
        ("t", 0, "b", 90),
        ("t", 1, "a", 89),
        ("t", 1, "b", None),
        ("t", 2, "a", 100),
        ("t", 7, "d", None),
    ]


def test_doctor_does_not_count_a_broker_without_an_answer_among_all() -> None:
    def answers() -> dict[int, object]:
        return {
            1: dict.fromkeys(range(100), (0, 99)),
            2: RequestFailedError("broker 2 can't be reached", retriable=True),
        }

    found = [(one.verdict, one.text) for one in versions(cast("ClusterReader", SimpleNamespace(api_versions=answers)))]
    assert found == [
        ("missing", "broker 2 did not name its APIs: broker 2 can't be reached"),
        ("good", "the other brokers support the required APIs"),
    ]


# -- what kind of cluster `kretain doctor` sees, by host names and cluster id --

ID = "kNPKKYq_QvOnBaZb46V_BQ"


@pytest.mark.parametrize(
    ("hosts", "cluster_id", "name", "apis"),
    [
        (["broker-1", "10.0.0.7"], ID, "Apache Kafka", "3.9"),
        (["boot-x1.c2.kafka-serverless.eu-central-1.amazonaws.com"], ID, "Amazon MSK Serverless", "3.9"),
        (["b-1.prod.x1.c2.kafka.eu-central-1.amazonaws.com"], ID, "Amazon MSK", "3.9"),
        (["b-1.prod.x1.c2.kafka.cn-north-1.amazonaws.com.cn"], ID, "Amazon MSK", "3.9"),
        (["PKC-1.eu-central-1.aws.Confluent.cloud."], "lkc-1", "Confluent Cloud", "3.9"),
        (["kafka-1.aivencloud.com"], ID, "Aiven", "3.9"),
        (["localhost"], "redpanda.9722a164-329b-4c17-8b03-e3109f0e9196", "Redpanda", None),
        (["seed-1.x.fmc.prd.cloud.redpanda.com"], ID, "Redpanda", None),
        (["namespace.servicebus.windows.net"], ID, "Azure Event Hubs", None),
        (["bootstrap.c.europe-west3.managedkafka.project.cloud.goog"], ID, "Google Managed Kafka", "3.9"),
        (["api-1.kafka.discoveryv2.prod-z.us-east-1.warpstream.com"], ID, "WarpStream", None),
        (["pc-1.aws-euc1.streamnative.g.snio.cloud"], ID, "StreamNative", None),
        (["10.0.0.7", "prod-dual-role-0.prod-kafka-brokers.kafka.svc"], ID, "Strimzi", "3.9"),
        (["prod-kafka-bootstrap"], ID, "Strimzi", "3.9"),
        (
            ["kafka.amazonaws.com.example.net", "confluent.cloud.example", "notconfluent.cloud.x"],
            ID,
            "Apache Kafka",
            "3.9",
        ),
    ],
)
def test_platform_is_told_by_host_names_or_cluster_id(
    hosts: list[str], cluster_id: str, name: str, apis: str | None
) -> None:
    found = platform_of(hosts, cluster_id, (3, 9))
    assert (found.name, found.kafka_apis) == (name, apis)
    page, _, section = found.docs.partition("#")
    headings = re.findall(r"^## (.+)$", (Path(__file__).parents[3] / page).read_text(), re.MULTILINE)
    assert section in [one.lower().replace(" ", "-") for one in headings]


@pytest.mark.parametrize(
    ("release", "apis"),
    [(None, None), ((2, 8), "2.8"), ((4, 2), "4.2"), ((4, 3), "4.3 or later"), ((5, 0), "5.0 or later")],
)
def test_release_is_named_where_the_apis_show_it(release: tuple[int, ...] | None, apis: str | None) -> None:
    found = platform_of(["broker-1"], ID, release)
    assert found == Platform(found.name, found.sign, "docs/platforms.md#apache-kafka", apis)
    assert ("APIs" in str(found)) == (apis is not None)
