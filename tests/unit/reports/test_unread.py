"""What a consumer has yet to read, by its row and what is known of the log."""

from __future__ import annotations

import pytest

from retention_cli.core.consumers import key_of
from retention_cli.core.model import Sample, TopicPartition
from retention_cli.observe.floors.fold import CommitRow, Kind
from retention_cli.reports.offsets import Log, Unread, by_partition, by_topic, unread_of

SAMPLES = (Sample(1_000, 20), Sample(2_000, 50), Sample(3_000, 60))
LOG = Log(10, 110, 1_000, SAMPLES, leader_epoch=5, ends={3: 40, 4: None})


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
        (row("commit", 30), LOG._replace(samples=(Sample(1, 50), Sample(2, 30), Sample(3, 40))), Unread(80, 800, 3)),
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
    found = by_topic(rows, logs)
    assert [tuple(one[name] for name in columns) for one in found] == [
        (None, "c", 0, 1, None, None, None, False),
        ("t", "a", 3, 0, 90 + 89 + 100, 900 + 890 + 1_000, 1_000, True),
        ("t", "b", 2, 1, None, None, 2_000, False),
        ("t", "d", 1, 1, None, None, None, False),
        ("t", "file:x", 0, 1, None, None, None, False),
    ]
    each = [(one["topic"], one["partition"], one["group"], one["records"]) for one in by_partition(rows, logs)]
    assert each == [
        (None, None, "c", None),
        ("t", None, "file:x", None),
        ("t", 0, "a", 90),
        ("t", 0, "b", 90),
        ("t", 1, "a", 89),
        ("t", 1, "b", None),
        ("t", 2, "a", 100),
        ("t", 7, "d", None),
    ]
