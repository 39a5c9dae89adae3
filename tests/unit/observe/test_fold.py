"""Every group's commits, folded to floors (F1–F5), in one piece or in parts, with what could not be read."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.groups import ListedGroup
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata, PartitionMetadata, TopicMetadata
from retention_cli.core.model import Floor, Maybe, Reason, TopicPartition, Unknown
from retention_cli.memory.ages import Ages
from retention_cli.memory.group import RecalledGroup
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.positions import LogNow, Logs, Rows
from retention_cli.observe.cluster import by_wrong_clock
from retention_cli.observe.floors.fold import Commit, FloorFold, TopicScope
from retention_cli.observe.floors.kafka_groups import (
    Doubt,
    GroupReader,
    Listing,
    changed_since,
    list_counted,
    read_groups,
    starts_of,
    tell_epochs,
)
from retention_cli.observe.floors.outside import fold_outside
from retention_cli.observe.floors.sources.interface import Consumer
from retention_cli.observe.floors.sources.zookeeper import _position
from retention_cli.observe.floors.standing import CUT_UNKNOWN
from retention_cli.observe.recall import Recall
from retention_cli.policy.settings import FloorSource, GroupRules
from tests.support.facts import HOUR, known
from tests.support.says import refusal, says

ORDERS0 = TopicPartition("orders", 0)


def three(*groups: tuple[str, dict[int, int]], epoch: int | None = None, **state: Any) -> FloorFold:
    """Fold commits of groups on the three partitions of orders; ``state`` is what the fold is given besides."""
    fold = FloorFold({"orders": TopicScope([5, 5, 5], state.pop("require", ()))})
    for name, value in state.items():
        setattr(fold, name, value)
    for name, commits in groups:
        fold.add(name, {"orders": [(n, offset, epoch) for n, offset in commits.items()]})
    return fold


def at(fold: FloorFold, partition: int = 0, start: int = 0, end: Maybe[int] = 10) -> object:
    """Return a partition's floor, or the codes of the reasons why it is unknown."""
    found = fold.floor(TopicPartition("orders", partition), start, end)
    return found if isinstance(found, Floor) else [reason.code for reason in found.reasons]


EVERYWHERE = {0: 9, 1: 9, 2: 9}


@pytest.mark.parametrize(
    ("groups", "ends", "expected"),
    [
        pytest.param([("b", {0: 7}), ("a", {0: 7}), ("c", {0: 9})], (0, 10), Floor(7, "group:a"), id="the smallest"),
        pytest.param([], (0, 10), ["F4"], id="no group"),
        pytest.param([("stray", {1: 4}), ("done", {0: 9})], (0, 10), ["F2"], id="none here, but elsewhere"),
        pytest.param([("stray", {1: 4}), ("done", {0: 9})], (9, 9), Floor(9, "group:done"), id="empty needs none"),
        pytest.param([("a", {1: 9, 2: 9, 3: 9})], (0, 10), ["F2"], id="none here, but on a partition since created"),
        pytest.param([("a", {0: 3}), ("leftover", {0: 11})], (0, 10), ["F5"], id="beyond the end"),
        pytest.param([("a", {0: 3}), ("ahead", {0: 11})], (0, 11), Floor(3, "group:a"), id="at the end"),
        pytest.param([("a", {0: 3})], (0, Unknown.because("offsets", "?")), ["offsets"], id="no high watermark"),
    ],
)
def test_floor_is_the_smallest_valid_commit_or_unknown(
    groups: list[tuple[str, dict[int, int]]], ends: tuple[int, Maybe[int]], expected: object
) -> None:
    assert at(three(*groups), 0, *ends) == expected


def test_group_without_a_commit_here_is_named_with_the_remedy() -> None:
    fold = three(("stray", {1: 1204}), ("it's; rm -rf /", {1: 1204}), ("billing", {0: 50, 1: 50, 2: 50}))
    floor = fold.floor(ORDERS0, 0, 2000)
    assert isinstance(floor, Unknown)
    quoted, stray = (reason.text for reason in floor.reasons)
    says(
        stray,
        "orders-1 is 1,204",
        "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --delete-offsets --group stray --topic orders",
    )
    assert """--group 'it'"'"'s; rm -rf /' --topic""" in quoted
    assert isinstance(at(fold, 1, end=2000), Floor)


def joined_by(fold: FloorFold, commits: dict[str, list[Commit]], *more: Any, **named: Any) -> FloorFold:
    """Return the fold with a group ``new`` that its source tells so much of."""
    fold.add("new", commits, *more, **named)
    return fold


def failing(fold: FloorFold, *topics: str, everything: bool = False) -> FloorFold:
    fold.fail("x", "time-out", None if everything else list(topics))
    return fold


DONE, F2 = Floor(9, "group:done"), ["F2"]
REST: dict[str, list[Commit]] = {"orders": [(1, 9, None), (2, 9, None)]}
GONE = RecalledGroup({"orders": [(0, 9, 5)]})


@pytest.mark.parametrize(
    ("fold", "floors_of"),
    [
        pytest.param(
            *(joined_by(three(("done", EVERYWHERE)), {}, ["orders", "elsewhere"]), [F2] * 3),
            id="a live member that has committed nothing makes the topic unknown",
        ),
        pytest.param(
            three(("done", EVERYWHERE), ("tail", {1: 4}), latest={"tail"}),
            *([DONE, Floor(4, "group:tail"), DONE],),
            id="a group that starts at the end needs no commit",
        ),
        pytest.param(
            joined_by(three(("done", EVERYWHERE)), {"orders": []}, no_position={"orders": {1: -2}}),
            *([F2] * 3,),
            id="a group that stored only offsets below zero reads the complete topic",
        ),
        pytest.param(
            *(joined_by(three(("done", EVERYWHERE)), {}, ["orders"], GONE), [F2] * 3),
            id="a member without a commit starts anew, whatever is remembered",
        ),
        pytest.param(
            *(joined_by(three(("done", EVERYWHERE)), REST, ["orders"], GONE), [F2, Floor(9, "group:done")]),
            id="also on one partition",
        ),
        pytest.param(
            joined_by(
                three(("done", EVERYWHERE)),
                *({}, ["elsewhere"], RecalledGroup({"orders": [(n, 4, 5) for n in range(3)]})),
            ),
            *([(4, "group:new")] * 3,),
            id="without a member here it counts where it stood (F6)",
        ),
        pytest.param(
            three(("other", EVERYWHERE), ("billing", {1: 9, 2: 9}), require=("billing",)),
            *([["F2", "F4"], Floor(9, "group:billing")],),
            id="a required group must have committed on each partition",
        ),
        pytest.param(
            *(failing(three(("done", EVERYWHERE)), "payments"), [DONE] * 3), id="a group that failed elsewhere"
        ),
        pytest.param(
            *(failing(three(("done", EVERYWHERE)), "orders"), [["F3"]] * 3), id="a group that failed here holds"
        ),
        pytest.param(
            *(failing(three(("done", EVERYWHERE)), everything=True), [["F3"]] * 3), id="or that failed altogether"
        ),
    ],
)
def test_floors_of_a_topics_partitions_follow_from_what_groups_tell(fold: FloorFold, floors_of: list[Any]) -> None:
    for partition, expected in enumerate(floors_of):
        found = at(fold, partition)
        if type(expected) is tuple and isinstance(found, Floor):
            found = found.offset, found.by  # it has a note, too
        assert found == expected
    fold.fail_all(Reason("F9", "no leader"))
    assert "F9" in str(at(fold)), "nobody's commit is known for sure then"


def test_partition_that_is_younger_than_the_group_needs_its_commit() -> None:
    """F2: with ``auto.offset.reset.new.partitions=earliest`` (KIP-1327) the group reads it from 0."""
    latest = frozenset({"old", "between", "fresh"})
    fold = three(
        ("done", EVERYWHERE),
        latest=latest,
        ages=Ages({"orders": [(1, 0), (2, 100), (3, 200)]}, {"fresh": 200, "between": 150}),
    )
    for group in latest:
        fold.add(group, {"orders": [(0, 9, None)]}, reads=["orders"])
    floors = [str(fold.floor(TopicPartition("orders", n), 0, 10)) for n in range(3)]
    assert [floor.count("groups.latest does not cover") for floor in floors] == [0, 1, 2]
    assert isinstance(at(fold), Floor)
    assert "group old " in floors[1]
    assert "fresh" not in str(floors)


@pytest.mark.parametrize("stored", [-1, -2, -(2**63)])
@pytest.mark.parametrize("latest", [[], ["reset"]])
@pytest.mark.parametrize("gone", [{}, {"orders": [(0, 10, 5)]}])
def test_stored_offset_below_zero_is_unknown_despite_a_remembered_commit(
    stored: int, latest: list[str], gone: dict[str, list[Commit]]
) -> None:
    """F1, F2: only the client knows where it starts. No remembered position and no ``groups.latest`` replaces it."""
    fold = three(("done", {0: 10, 1: 10, 2: 10}), require=("reset",), latest=latest)
    fold.add(
        "reset",
        {"orders": [(1, 10, None), (2, 10, None)]},
        recalled=RecalledGroup(gone),
        no_position={"orders": {0: stored, 7: stored}, "unmanaged": {0: stored}},
    )
    assert at(fold) == ["F2", "F4"]
    assert f"group reset stored offset {stored} here" in str(fold.floor(ORDERS0, 0, 10))
    assert isinstance(at(fold, 1), Floor)


def test_commit_below_the_log_start_counts_and_names_the_lost_records() -> None:
    fold = three(("slow", {0: 3}))
    floor = known(fold.floor(ORDERS0, 10, 20))
    assert (floor.offset, ["7 records were deleted" in note.text for note in floor.notes], at(fold, start=3)) == (
        3,
        [True],
        Floor(3, "group:slow"),
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Found(30), Floor(10, "group:a")),
        (Found(25), ["F5"]),
        (NotFound(), ["F5"]),  # the leader has not seen that epoch
        (RequestFailedError("time-out", retriable=True), ["F5"]),
    ],
)
def test_largest_commit_of_an_epoch_must_lie_before_its_end(end: Answer, expected: object) -> None:
    fold = three(("a", {0: 10}), ("b", {0: 30}), ("c", {0: 20}), epoch=3)
    fold.add("current", {"orders": [(0, 40, 5)]})  # the high watermark speaks for it
    assert fold.epochs_to_check() == [(ORDERS0, 3)]
    tell_epochs(fold, {(ORDERS0, 3): end})
    assert at(fold, end=50) == expected
    assert ("group b" in str(fold.floor(ORDERS0, 0, 50))) == (end in (Found(25), NotFound()))


def test_group_that_is_gone_has_read_nothing_after_the_end_of_its_epoch() -> None:
    """F6: what it read beyond that was another log's; the records there now are new to it."""
    fold = three(("live", {0: 40}), epoch=5)
    fold.add_gone("gone", {"orders": [(0, 30, 3)]}, "2026-11-01")
    tell_epochs(fold, {(ORDERS0, 3): Found(25)})
    floor = known(fold.floor(ORDERS0, 0, 50))
    assert (floor.offset, floor.by) == (25, "group:gone")


@pytest.mark.parametrize("others", [(), ("behind",), ("behind", "far-too")])
def test_group_that_is_gone_and_stood_beyond_the_log_is_unknown_also_beside_one_that_is_further_behind(
    others: tuple[str, ...],
) -> None:
    """F5, F6: in the current epoch only another log was that long, and where it has been cut nothing says."""
    fold = three(("live", {0: 9}), epoch=5)
    for name in ("far", *others):
        fold.add_gone(name, {"orders": [(0, 3 if name == "behind" else 12, 5)]}, "2026-11-01")
    other = three()
    other.take(fold.part(["orders"]))
    assert at(fold) == at(other) == ["F6"]
    assert "group far no longer exists; it committed 12 here, to a log that was longer" in str(
        fold.floor(ORDERS0, 0, 10)
    )
    assert isinstance(at(fold, end=12), Floor)


def test_many_groups_without_a_commit_are_counted_not_listed() -> None:
    floor = three(*((f"stray-{number:02}", {1: 1}) for number in range(50))).floor(ORDERS0, 0, 10)
    assert isinstance(floor, Unknown)
    assert ["47 more" in reason.text for reason in floor.reasons] == [False, False, False, True]


def coordinated(leader: int | None, epoch: int) -> ClusterMetadata:
    """A cluster with a leader of the only partition of ``__consumer_offsets``."""
    return ClusterMetadata(
        "c",
        frozenset({1, 2}),
        {
            OFFSETS_TOPIC: TopicMetadata(
                OFFSETS_TOPIC, None, internal=True, partitions={0: PartitionMetadata(leader, epoch)}
            )
        },
    )


@pytest.mark.parametrize(
    ("leader", "epoch", "describes", "expected"),
    [
        pytest.param(1, 5, True, [], id="nothing changed"),
        pytest.param(2, 5, True, ["F9"], id="another broker coordinates"),
        pytest.param(1, 6, True, ["F9"], id="the same broker, elected again"),
        pytest.param(None, 5, True, ["F9"], id="no broker coordinates"),
        pytest.param(1, 5, False, ["F8"], id="the right to see all groups was taken away"),
    ],
)
def test_listing_counts_only_if_coordinators_and_rights_stayed(
    leader: int | None, epoch: int, *, describes: bool, expected: list[str]
) -> None:
    reader: Any = SimpleNamespace(
        metadata_of_each=lambda *_: [coordinated(leader, epoch)], may_describe_cluster=lambda *_: describes
    )
    doubt = changed_since(reader, coordinated(1, 5), GroupRules(), Listing(frozenset(), ()))
    assert ([] if doubt is None else [doubt.reason.code]) == expected


@pytest.mark.parametrize(("listed", "doubts"), [("billing", True), ("console-consumer-1", True), (None, False)])
def test_listing_without_the_offsets_topic_counts_only_if_it_is_empty(listed: str | None, *, doubts: bool) -> None:
    """F9: a provider may hide the topic, and a group's coordinator may be out. Whoever is listed has one."""
    nowhere = ClusterMetadata("c", frozenset({1}), {}, frozenset({OFFSETS_TOPIC}))
    reader: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        metadata=lambda _: nowhere,
        metadata_of_each=lambda *_: [nowhere],
        may_describe_cluster=lambda *_: True,
        list_groups=lambda *_: [] if listed is None else [ListedGroup(listed, "classic", "consumer", "Stable")],
    )
    assert isinstance(list_counted(reader, GroupRules(), nowhere, 1.0), Doubt) is doubts


def test_ignored_group_whose_id_is_the_key_of_another_consumer_does_not_stand_for_it() -> None:
    """F6: a share group that is gone counts, though some group has its key as id, and ``groups.ignore`` matches that."""
    somewhere = coordinated(1, 5)
    reader: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        metadata_of_each=lambda *_: [somewhere],
        may_describe_cluster=lambda *_: True,
        list_groups=lambda *_: [ListedGroup(one, "classic", "consumer", "Empty") for one in ("\x01share:q", "billing")],
    )
    found = list_counted(reader, GroupRules(ignore=("?share:*",)), somewhere, 1.0)
    assert isinstance(found, Listing)
    assert found.keys == {"billing"}


@pytest.mark.parametrize(("numbers", "missing"), [((0, 1), None), ((0, 2), 1), ((), 0)])
def test_listing_counts_only_if_metadata_names_every_coordinator(numbers: tuple[int, ...], missing: int | None) -> None:
    """F9: the groups of a partition that the answer leaves out may have no coordinator."""
    rows = {number: PartitionMetadata(1, 5) for number in numbers}
    offsets = TopicMetadata(OFFSETS_TOPIC, None, internal=True, partitions=rows)
    before = ClusterMetadata("c", frozenset({1}), {OFFSETS_TOPIC: offsets})
    reader: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        metadata_of_each=lambda *_: [before],
        may_describe_cluster=lambda *_: True,
        list_groups=lambda *_: [],
    )
    listing = list_counted(reader, GroupRules(), before, 1.0)
    assert isinstance(listing, Doubt) is (missing is not None)
    assert f"-{missing} has no leader" in str(listing) or missing is None


SCOPES = {"orders": TopicScope([4, 4, 4]), "payments": TopicScope([2, -1, -1, 2], ("g1", "g2"))}

epochs = st.sampled_from([None, 1, 2, 4, 9])
commits = st.dictionaries(st.integers(0, 4), st.tuples(st.integers(0, 9) | st.just(2**63 - 1), epochs), max_size=5)
by_topic = st.dictionaries(st.sampled_from(["orders", "payments", "elsewhere"]), commits, max_size=3)


@st.composite
def told_groups(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    kinds = st.sampled_from(["reads", "reads", "reads", "gone", "fails", "fails somewhere"])
    some = st.tuples(kinds, by_topic, by_topic, st.sampled_from(["", "", "recalls", "refuses"]), st.booleans())
    return [(f"g{number}", *one) for number, one in enumerate(draw(st.lists(some, max_size=6)))]


def rows_of(drawn: Any) -> dict[str, list[tuple[int, int, int | None]]]:
    return {topic: [(number, offset, epoch) for number, (offset, epoch) in by.items()] for topic, by in drawn.items()}


def tell(fold: FloorFold, group: tuple[Any, ...]) -> None:
    name, kind, now, before, more, live = group
    if kind == "gone":
        fold.add_gone(name, rows_of(now), "on Monday")
    elif kind == "fails":
        fold.fail(name, "time-out", None)
    elif kind == "fails somewhere":
        fold.fail(name, "time-out", now.keys())
    else:
        refused = {(topic, number): one for topic, by in now.items() for number, one in by.items()}
        recalled = RecalledGroup(rows_of(before) if more == "recalls" else {}, refused if more == "refuses" else {})
        fold.add(name, rows_of(now), ["orders"] if live else [], recalled)


def floors(fold: FloorFold, tps: list[TopicPartition]) -> list[Any]:
    """All that is asked of a fold, with the answers of leaders on epochs, and cuts."""
    asked = [(tp, epoch) for tp, epoch in fold.epochs_to_check() if tp in tps]
    for number, (tp, epoch) in enumerate(asked):
        fold.at(*tp).ends[epoch] = (None, 3, 7)[number % 3]
    for tp in tps[::3]:
        fold.at(*tp).cut = (5, 1)
    for tp in tps[1::3]:
        fold.at(*tp).cut = CUT_UNKNOWN
    return [asked, *(fold.floor(tp, start, end) for tp in tps for start, end in ((0, 6), (2, 20), (4, 4)))]


def told(groups: list[tuple[Any, ...]], *, doubtful: bool) -> FloorFold:
    fold = FloorFold(SCOPES)
    fold.latest, fold.ages = frozenset({"g0", "g1"}), Ages({"orders": [(1, 0), (3, 7)]}, {"g1": 7})
    for group in groups:
        tell(fold, group)
    if doubtful:
        fold.fail_all(Reason("F8", "listed in part"))
    return fold


@given(told_groups(), st.integers(1, 3), st.randoms(use_true_random=False), st.booleans())
def test_partial_folds_add_up_to_the_complete_fold(
    drawn: list[tuple[Any, ...]], shares: int, rng: random.Random, doubtful: bool
) -> None:
    order = rng.sample(drawn, len(drawn))
    folds = [told(order[number::shares], doubtful=doubtful and number == 0) for number in range(shares)]
    for topic, scope in SCOPES.items():
        total = FloorFold({topic: scope})
        for fold in rng.sample(folds, shares):
            total.take(fold.part({topic, "elsewhere"}))
        tps = [TopicPartition(topic, number) for number in range(len(scope.leader_epochs))]
        assert floors(total, tps) == floors(told(drawn, doubtful=doubtful), tps)


@pytest.mark.parametrize("first", [None, "gone", "reads"])
def test_commit_at_the_largest_offset_never_raises_the_floor(first: str | None) -> None:
    """F5: brokers take any offset. Whoever else has committed, or counts though it is gone: it lies beyond the log."""
    others, theirs, total = (FloorFold({"orders": SCOPES["orders"]}) for _ in range(3))
    if first is not None:
        tell(others, ("g1", first, {"orders": dict.fromkeys(range(3), (5, 4))}, {}, "", False))
    theirs.add("g2", {"orders": [(n, 2**63 - 1, None) for n in range(3)]})
    for one in (others, theirs):
        total.take(one.part({"orders"}))
    floor = total.floor(ORDERS0, 0, 6)
    assert isinstance(floor, Unknown) or (first and floor.offset <= 5)


class Passes:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder / "c", 10**12

    def floor(self, fold_in: Any, high_watermark: int, rules: GroupRules) -> Any:
        self.now += HOUR
        with Ledger(self.folder) as ledger:
            ledger.begin({"t": "A" * 22, "u": "B" * 22})
            fold = FloorFold({"t": TopicScope([3]), "u": TopicScope([3])})
            fold_in(fold, Recall(ledger, rules, self.now, lambda: self.now))
            logs = Logs(((topic, 0), LogNow(high_watermark, 3)) for topic in "tu")
            ledger.judge(lambda: logs, {"t", "u"}, ())
            ledger.save(self.now)
            found = fold.floor(TopicPartition("t", 0), 0, high_watermark)
            return found.offset if isinstance(found, Floor) else {one.code for one in found.reasons}


@pytest.mark.parametrize(
    "unread",
    [
        Consumer({}, frozenset(), {"t": "partition 1 holds nothing"}),
        Consumer({"t": [(1, 7)]}, frozenset({"t"}), unread=frozenset({("t", 0)})),
    ],
    ids=["a node of ZooKeeper can't be read", "one of a query's two sources has not met the partition"],
)
def test_refused_position_stays_refused_after_a_pass_that_did_not_read_it(tmp_path: Path, unread: Consumer) -> None:
    """F5, F7: that is no proof that the position was deleted."""
    rules = GroupRules(sources=(FloorSource("zookeeper", "zk"),))
    metadata: Any = SimpleNamespace(topics={"t": SimpleNamespace(partitions={0: None, 1: None})})

    def read(consumer: Consumer) -> Any:
        return lambda fold, recall: fold_outside(fold, metadata, recall, None, None, [{"g": consumer}])  # type: ignore[arg-type]

    passes, stands = Passes(tmp_path), Consumer({"t": [(0, 500)]})
    told = [
        passes.floor(read(consumer), end, rules)
        for consumer, end in ((stands, 100), (stands, 1_000), (unread, 1_000), (stands, 1_000))
    ]
    assert told[1] == told[3] == {"F5"}


def test_share_group_error_on_one_topic_leaves_the_floor_of_another(tmp_path: Path) -> None:
    """F6: where it stood on t before its offset was deleted counts, whatever becomes of u."""
    groups = [ListedGroup("s", "share", "share", "Stable"), ListedGroup("live", "classic", "consumer", "Stable")]
    live = GroupCommits("live", {"t": [(0, 900, 3)], "u": [(0, 900, 3)]})

    def read(share: GroupCommits | CommitsUnknown) -> Any:
        reader: Any = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            describe_members=lambda *_: None,
            read_pending=lambda *_: [],
            read_share_offsets=lambda _names, on_group: on_group(share),
            read_commits=lambda _names, on_group, _deadline: on_group(live),
        )
        return lambda fold, recall: read_groups(reader, groups, fold, recall, 1.0)

    passes = Passes(tmp_path)
    for share in (
        GroupCommits("s", {"t": [(0, 10, None)], "u": [(0, 10, None)]}),
        GroupCommits("s", {"u": [(0, 10, None)]}),
        CommitsUnknown("s", "u-0: no answer", frozenset({"u"}), GroupCommits("s", {})),
    ):
        assert passes.floor(read(share), 1_000, GroupRules()) == 10, share


@pytest.mark.parametrize("partition", ["2147483648", "4294967295", "4294967296", "9999999999", "01", "-1"])
def test_zookeeper_node_with_an_invalid_partition_number_is_refused(partition: str) -> None:
    """F3, F7: taken for another partition it would lower what protects that one."""
    assert "is not a partition" in refusal(ValueError, _position, partition, (b"5", None))
    assert _position("2147483647", (b"5", None)) == (2**31 - 1, 5)


def starting(*, live: bool = False, gone: bool = False, told: Maybe[int] | None = 4) -> FloorFold:
    """Fold one group that has read up to 9, and one that has no commit on the first partition and starts a day back."""
    fold = three(("done", EVERYWHERE), starts={"daily": 24 * HOUR})
    if gone:
        fold.add_gone("daily", {"orders": [(1, 4, None), (0, 6, 5)]}, "2026-11-01")
    else:
        fold.add("daily", {"orders": [(1, 4, None)]}, reads=["orders"] if live else [])
    if told is not None:
        for tp in fold.starts_to_ask().get(24 * HOUR, ()):
            fold.at(*tp).start_at = told
    return fold


@pytest.mark.parametrize(
    ("fold", "floor"),
    [
        pytest.param(starting(), (4, "group:daily"), id="it lowers the floor to where it would start"),
        pytest.param(starting(told=10), (9, "group:done"), id="not above others"),
        pytest.param(starting(told=Unknown.because("lookup", "?")), "lookup", id="unknown where it would start"),
        pytest.param(starting(told=None), "F2", id="nobody asked"),
        pytest.param(starting(live=True), "F2", id="a live member started at a moment that nobody can tell"),
        pytest.param(starting(gone=True), (4, "group:daily"), id="beside what is remembered of it (F6)"),
        pytest.param(starting(gone=True, told=8), (6, "group:daily"), id="which counts where it is lower"),
    ],
)
def test_group_that_starts_back_counts_where_it_would_start(fold: FloorFold, floor: object) -> None:
    found = fold.floor(ORDERS0, 0, 10)
    assert floor == ((found.offset, found.by) if isinstance(found, Floor) else found.reasons[0].code)


def test_start_of_a_group_is_asked_for_where_it_has_no_commit_and_named() -> None:
    fold = starting()
    assert fold.starts_to_ask() == {24 * HOUR: [ORDERS0, TopicPartition("orders", 2)]}
    assert "if it starts to read, it begins 1 d back, at 4 (groups.start)" in str(fold.floor(ORDERS0, 0, 10))
    assert at(fold, 1) == Floor(4, "group:daily"), "where it has a commit, that counts"
    assert at(starting(told=None), 0, 9, 9) == Floor(9, "group:done"), "an empty partition needs no look-up"


def test_start_alone_is_no_floor() -> None:
    """F4: nobody has committed on the partition."""
    fold = three(("daily", {1: 4}), starts={"daily": HOUR})
    fold.at(*ORDERS0).start_at = 4
    assert at(fold) == ["F4"]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_start_of_several_groups_is_the_longest_in_any_order(names: str) -> None:
    fold = three(("done", EVERYWHERE), *((name, {1: 9}) for name in names), starts={"a": HOUR, "b": 2 * HOUR})
    other = three()
    other.take(fold.part(["orders"]))
    longest = {2 * HOUR: [ORDERS0, TopicPartition("orders", 2)]}
    assert (fold.starts_to_ask(), other.starts_to_ask()) == (longest, longest)


# -- groups that may start back, and groups that may be missing from a listing (F2, F4, F8, F9) --


def test_start_that_nobody_can_tell_is_f2_also_beside_a_commit_that_is_gone_and_groups_latest() -> None:
    """F2, G8: with a wrong clock, or members that are not asked, neither a start nor ``groups.latest`` waives it."""
    done, state = ("done", EVERYWHERE), dict[str, Any](latest={"daily"}, starts={"daily": None})
    fold = three(done, ("daily", {1: 4}), **state)
    assert [at(fold), at(fold, 1), at(fold, 2)] == [["F2"], Floor(4, "group:daily"), ["F2"]]
    fold = three(done, **state)
    fold.add_gone("daily", {"orders": [(0, 6, 5)]}, "2026-11-01")
    assert ([at(fold), at(fold, 2)], fold.starts_to_ask()) == ([["F2"], ["F2"]], {})


@pytest.mark.parametrize(
    ("group", "back_ms"),
    [
        (ListedGroup("daily", "classic", "consumer", "Stable"), HOUR),
        (ListedGroup("daily", "classic", "connect", "Stable"), None),
        (ListedGroup("daily", "classic", "connect", "Empty"), HOUR),
        (ListedGroup("late", "classic", "consumer", "Stable"), None),
        (ListedGroup("late", "classic", "consumer", "Empty"), HOUR),
    ],
)
def test_start_says_nothing_of_a_group_whose_members_are_not_asked(group: ListedGroup, back_ms: int | None) -> None:
    """F2: a live member may have started long ago. ``groups.by.commits`` and other types are not described."""
    assert starts_of([group], GroupRules(by_commits=("late",), start=((group.name, HOUR),))) == {group.name: back_ms}


@pytest.mark.parametrize(
    ("may_lack", "listed", "expected"),
    [(False, False, Floor), (True, False, ["F4"]), (True, True, Floor)],
    ids=["none is missing", "some may be missing", "it is there"],
)
def test_required_group_that_is_not_listed_holds_where_groups_may_be_missing(
    *, may_lack: bool, listed: bool, expected: object
) -> None:
    """F4, F8, F9: it may be there, and stand elsewhere by now. A commit that is gone of a listed group is read."""
    gone: Rows = {"orders": [(0, 6, 5)]}
    fold = three(require=("billing",), may_lack=may_lack)
    fold.add_gone("billing", gone, "2026-11-01")
    if listed:
        fold.add("billing", {}, recalled=RecalledGroup(gone))
    assert (Floor if isinstance(at(fold), Floor) else at(fold)) == expected


def reader_of(metadata: ClusterMetadata, billing: GroupCommits, **more: object) -> Any:
    """Return a reader of a cluster in which one group has committed; ``more`` replaces what it answers."""
    answers = {
        "timeout_s": 1.0,
        "clock": SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None),
        "metadata": lambda _: metadata,
        "metadata_of_each": lambda *_: [metadata],
        "hidden_topic": lambda *_: None,
        "may_describe_cluster": lambda *_: True,
        "list_groups": lambda *_: [ListedGroup("billing", "classic", "consumer", "Empty")],
        "describe_members": lambda *_: None,
        "read_pending": lambda *_: [],
        "read_commits": lambda _names, on_group, _deadline: on_group(billing),
    }
    return SimpleNamespace(**(answers | more))


def test_group_that_may_be_missing_from_the_listing_may_have_started_long_ago(tmp_path: Path) -> None:
    """F2, F9: its coordinator may be offline, and its member reads on. What is remembered of it says where it reads."""
    billing = GroupCommits("billing", {"orders": [(n, 9, 5) for n in range(3)]})
    nowhere = ClusterMetadata("c", frozenset({1}), {})
    reader = reader_of(nowhere, billing)
    memory = Ledger(tmp_path)
    memory.begin({"orders": "id"})
    memory.saw_group("daily", {"orders": [(1, 4, None)]}, 1, 0)
    rules = GroupRules(require=("billing",), offsets_hidden=True, start=(("daily", HOUR),))
    scopes = {"orders": TopicScope([5, 5, 5], rules.require)}
    fold = GroupReader(reader, scopes, Recall(memory, rules, 2, lambda: 2)).read(nowhere)
    assert ([at(fold), at(fold, 2)], fold.starts_to_ask()) == ([["F2"], ["F2"]], {})
    says(
        str(fold.floor(TopicPartition("orders", 1), 0, 10)),
        "(groups.start)",
        "commit here; if it won't come back: kretain groups forget",
    )


@pytest.mark.parametrize(("answered", "expected"), [(False, Floor), (True, ["F8"])], ids=["no answer", "refused"])
def test_broker_that_has_just_died_is_waited_for(tmp_path: Path, *, answered: bool, expected: object) -> None:
    """F8, F9: brokers name it until the controller notices. One that refuses to describe a topic is asked once more."""
    offsets = TopicMetadata(OFFSETS_TOPIC, "id", internal=True, partitions={0: PartitionMetadata(1, 0)})
    there = ClusterMetadata("c", frozenset({1}), {OFFSETS_TOPIC: offsets})
    error = RequestFailedError("TOPIC_AUTHORIZATION_FAILED", retriable=not answered, answered=answered)
    dead = iter([(2, "orders", error)] * 2)
    billing = GroupCommits("billing", {"orders": [(n, 9, 5) for n in range(3)]})
    reader = reader_of(there, billing, hidden_topic=lambda *_: next(dead, None))
    scopes = {"orders": TopicScope([5, 5, 5])}
    fold = GroupReader(reader, scopes, Recall(Ledger(tmp_path), GroupRules(), 2, lambda: 2)).read(there)
    assert (Floor if isinstance(at(fold), Floor) else at(fold)) == expected


def test_wrong_clock_leaves_groups_start_in_force_but_dates_nothing() -> None:
    """F2, G8: without the key, ``groups.latest`` would waive a missing commit, and R5 and R6 trim by any clock."""
    told = GroupRules(latest=("daily",), start=(("daily", HOUR),))
    assert by_wrong_clock(told, 5) == replace(told, remember_ms=5, start=(("daily", None),))
