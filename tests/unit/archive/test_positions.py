"""Where groups stood, kept with an archive and read back; and where they continue in what was restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, strategies as st

from retention_cli.archive.layout import ArchiveError, DamagedError, Source
from retention_cli.archive.positions import Continuation, Positions, Stood, gap_at, keep, newest
from retention_cli.archive.restore import Job, RestoreRefusedError, Wanted, WantedGroups
from retention_cli.archive.restore_groups import GroupPlan, check_free
from retention_cli.archive.store import Store
from retention_cli.brokers.commits import CommitsUnknown
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.core.consumers import key_of
from retention_cli.core.model import PartitionFacts, TopicFacts, TopicPartition, Unknown
from retention_cli.observe.floors.fold import CommitRow
from retention_cli.observe.lineage import Cut, EpochEnds
from retention_cli.observe.request import Observation
from retention_cli.trim.recheck import positions_of
from tests.support.refusals import refusal

SOURCE = Source("C", "orders", "I", 0)
DAY = 86_400_000
records = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1), st.booleans()), max_size=20
)  # the step to the next offset, the step of its leader epoch, and whether it was restored


def at(read_ms: int, *consumers: Stood) -> Positions:
    return Positions("C", "orders", "I", read_ms, (4, None), consumers, None)


@example([(1, 0, True)] * 9, set(range(12)), None, 3)
@example([(2, 0, True), (1, 0, False)] * 5, set(range(17)), 0, 0)
@example([(2, 0, True)] * 3 + [(1, 1, True)] * 4, set(range(17)), 0, 1)
@given(records, st.sets(st.integers(0, 30), min_size=1), st.none() | st.integers(0, 9), st.integers(0, 9))
def test_position_continues_with_the_first_restored_record_that_may_be_unread(
    steps: list[tuple[int, int, bool]], positions: set[int], epoch: int | None, start: int
) -> None:
    """Not one that may be unread is skipped, and none before it is read again; whatever was left out."""
    log, offset, term, place = [], -1, 0, start
    for step, newer, restored in steps:
        offset, term = offset + step, term + newer
        if restored:
            place += step  # markers are in between
            log.append((offset, term, place))
    found = Continuation(positions, epoch, start)
    for one in log:
        found.add(*one)
    for position, new in found.ended().items():
        unread = [place for offset, term, place in log if offset >= position or (epoch is not None and term > epoch)]
        assert new == (unread[0] if unread else log[-1][2] + 1 if log else start)


@pytest.mark.parametrize(
    ("position", "covered", "gap"),
    [
        (5, [(0, 10)], False),
        (10, [(0, 10)], False),  # behind all of it
        (12, [(0, 10), (15, 20)], True),
        (0, [(3, 10)], True),
        (3, [], False),
    ],
)
def test_gap_is_told_from_the_end(position: int, covered: list[tuple[int, int]], gap: bool) -> None:
    assert gap_at(position, covered) is gap


def test_positions_come_back_and_the_newest_of_a_time_counts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    kept = [at(n * DAY, Stood("billing", "group", {0: n, 1: None}), Stood("é", "share", {}, "why")) for n in (1, 2, 3)]
    for one in kept:
        keep(store, one)
    assert newest(store, SOURCE) == kept[2]
    assert newest(store, SOURCE, 3 * DAY - 1) == kept[1]
    assert newest(store, SOURCE, 2 * DAY) == kept[1]
    with pytest.raises(
        ArchiveError, match=r"the first are of 1970-01-02T00:00:00.000Z: name the time .*--positions-at"
    ):
        newest(store, SOURCE, DAY - 1)


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("billing", "billinh"), lambda text: text[:-9], lambda _: "[]"]
)
def test_damaged_positions_are_refused(tmp_path: Path, change) -> None:
    store, one = Store(str(tmp_path)), at(DAY, Stood("billing", "group", {0: 7}))
    keep(store, one)
    file = tmp_path / one.path
    file.write_text(change(file.read_text()))
    assert "is damaged" in refusal(DamagedError, newest, store, SOURCE)


def test_archive_without_positions_says_so(tmp_path: Path) -> None:
    assert "an older kretain wrote this archive" in refusal(ArchiveError, newest, Store(str(tmp_path)), SOURCE)


def observed(*rows: CommitRow, end: int | Unknown = 100, cut: Cut | None = None) -> Observation:
    """One partition in leader epoch 5, whose epoch 3 ended at 40; epoch 2 is unknown to its leader."""
    tp = TopicPartition("orders", 0)
    facts = PartitionFacts(
        TopicFacts("orders", "I", False, frozenset({"delete"}), -1), 0, 0, end, end, Unknown(()), leader_epoch=5
    )
    ends: EpochEnds = {(tp, 3): Found(40, None), (tp, 2): NotFound()}
    return Observation(
        "C",
        0.0,
        {tp: facts},
        {},
        {},
        epoch_ends=ends,
        cuts={} if cut is None else {tp: cut},
        rows=rows,
        ends_read_ms=DAY,
    )


@pytest.mark.parametrize(
    ("kind", "offset", "epoch", "kept"),
    [
        ("commit", 50, 5, 50),
        ("commit", 50, None, 50),
        ("commit", 40, 3, 40),
        ("commit", 41, 3, None),  # F5: beyond the end of its epoch
        ("commit", 10, 2, None),
        ("commit", 10, 6, None),
        ("commit", 101, None, None),  # beyond H
        ("refused", 10, None, None),
        ("missing", None, None, None),
        ("gone", 50, 3, 40),  # F6: it counts at the end of its epoch
        ("gone", 50, None, None),
    ],
)
def test_only_positions_that_count_in_this_log_are_kept(kind, offset, epoch, kept) -> None:
    found = positions_of(observed(CommitRow("g", "orders", 0, kind, offset, epoch)), {"g": "group"})
    (one,) = found["orders"].consumers
    assert (one.offsets, found["orders"].epochs) == ({0: kept}, (5,))


def test_bare_commit_is_not_kept_where_the_log_was_cut_or_its_end_is_unknown() -> None:
    row = CommitRow("g", "orders", 0, "commit", 50, None)
    for one in (observed(row, cut=Cut(60, 4)), observed(row, end=Unknown(()))):
        (stood,) = positions_of(one, {})["orders"].consumers
        assert stood.offsets == {0: None}


def test_consumers_are_kept_by_kind_and_what_is_unreadable_is_said() -> None:
    rows = [
        CommitRow("a", "orders", 0, "commit", 1, 5),
        CommitRow("s", "orders", 0, "commit", 1, 5),
        CommitRow("was", "orders", 0, "gone", 1, 5),
        CommitRow(key_of("share", "q"), "orders", 0, "commit", 1, 5),
        CommitRow(key_of("file", "f"), "orders", 0, "commit", 1, 5),
        CommitRow("odd", None, None, "failed", code="F3", text="group odd could not be read"),
        CommitRow("", None, None, "failed", code="F8", text="not every group is listed"),
    ]
    found = positions_of(observed(*rows), {"a": "group", "s": "streams", "odd": "group"})["orders"]
    assert {one.name: one.kind for one in found.consumers} == {
        "a": "group", "s": "streams", "was": "gone", "share:q": "share", "file:f": "outside", "odd": "group"
    }  # fmt: skip
    assert [one.name for one in found.consumers if one.unreadable] == ["odd"]
    assert found.unlisted == "not every group is listed"


def test_group_that_no_broker_lists_may_have_commits_on_the_target() -> None:
    """Its coordinator is away while kretain lists groups (F9), and back when it commits: it would skip what is unread."""

    class Away:
        def brokers(self) -> list[int]:
            return [1]

        def list_groups(self, _brokers: list[int]) -> list[Any]:
            return []

        def read_commits(self, names: list[str], on_group: Any) -> None:
            for name in names:
                on_group(CommitsUnknown(name, "its coordinator is away", None))

    job = Job(Wanted("orders", "restored", groups=WantedGroups()), SOURCE, "T", {}, {0: 0}, "ours", resumes=False)
    plan = GroupPlan(at(DAY), (Stood("billing", "group", {0: 7}),), {})
    with pytest.raises(RestoreRefusedError, match="billing can't be checked for commits: its coordinator is away"):
        check_free(cast(Any, Away()), job, plan)
