"""Documents of the state topic, and replicas' sizes: nothing that is no document gets through, dead bytes never count as live."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from kretain.render import output
from retention_cli.memory import documents as docs, replica as replica_memory
from retention_cli.memory.disk import (
    DAY_MS,
    DISK_SAMPLES_AT_MOST,
    LEAST_MS,
    DiskMemory,
    DiskSample,
    Growth,
    growth,
    pack as pack_looks,
    unpack as unpack_looks,
)
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition import PartitionMemory
from retention_cli.memory.positions import Position, Positions
from retention_cli.memory.replica import (
    ANY_BYTES,
    REPLICAS_AT_MOST,
    ReplicaSeen,
    Sweeping,
    pack,
    place_of,
    seen_again,
    unpack,
)
from retention_cli.state import messages
from tests.support.facts import HOUR, NOW, known, why
from tests.support.ledgers import TOPIC_ID, WRITTEN, worst
from tests.support.says import refusal


def test_largest_possible_topic_document_fits_into_a_message() -> None:
    document = docs.TopicDocument(
        TOPIC_ID, "orders" * 40, 2**62, {number: worst(number) for number in range(docs.PARTITIONS_A_DOCUMENT)}
    )
    value = messages.encode(document, WRITTEN)
    assert len(value) < 900_000
    assert messages.decode(TOPIC_ID, value) == (document, WRITTEN)


def test_document_key_names_its_partitions_or_group() -> None:
    assert [docs.topic_key(TOPIC_ID, number) for number in (0, 31, 32, 100)] == [
        TOPIC_ID,
        TOPIC_ID,
        f"{TOPIC_ID}/1",
        f"{TOPIC_ID}/3",
    ]
    assert (
        [docs.partitions_of(key) for key in (f"{TOPIC_ID}/3", "group:orders", "short")],
        docs.name_in(docs.GROUP + "a/b:c group:d", docs.GROUP),
    ) == ([(TOPIC_ID, range(96, 128)), None, None], "a/b:c group:d")


A_GROUP = GroupMemory(
    5,
    b"\x01",
    {"t": "id"},
    counted=Positions.at({("t", 0): Position(7, 2, 2)}),
    open=Positions.at({("t", 2): Position(8, None)}),
    refused=Positions.at({("t", 3): Position(9, 4)}),
    gone=Positions.at({("t", 1): Position(3, None, 1, 4)}),
)


@pytest.mark.parametrize(
    ("key", "document"),
    [
        pytest.param("group:billing", docs.GroupDocument("billing", A_GROUP), id="a group"),
        pytest.param("group:g", docs.GroupDocument("g", GroupMemory(seen_ms=9, stood_ms=9), 100), id="a group's age"),
        pytest.param(
            TOPIC_ID, docs.TopicDocument(TOPIC_ID, "a", 7, {}, ((2, 0), (3, 100))), id="since when partitions are there"
        ),
        pytest.param("clock", None, id="a clock"),
    ],
)
def test_document_decodes_to_what_was_encoded(key: str, document: docs.Document | None) -> None:
    assert messages.decode(key, messages.encode(document, WRITTEN)) == (document, WRITTEN)


HEAD: dict[str, Any] = {"at_ms": 1, "since_ms": 1, "version": messages.VERSION}
GOOD: dict[str, Any] = {"topic_id": TOPIC_ID, "name": "t", "seen_ms": 1, "partitions": {}}
GROUP: dict[str, Any] = {"name": "a", "group": ""}
DISK: dict[str, Any] = {"name": "1:/d", "disk": {"packed": ""}}


def message(head: object, body: object) -> bytes:
    return zlib.compress(f"{json.dumps(head)}\n{json.dumps(body)}".encode())


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (TOPIC_ID, {**GOOD, "topic_id": "another"}),
        (TOPIC_ID, {**GOOD, "partitions": {"32": {}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"-1": {}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"x": {}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"packed": "AAAA"}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"replicas": "AAAA"}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"packed": "ä"}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"newest": ["x", 1]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"newest": []}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"data_at": ["x"]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"scan": "AAAA"}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"leader_epoch": "1"}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"leader_epoch": True}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"earlier": [[1, 2, 3, 4]]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": [0, "", None, [], None]}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"newest": [2**63, 1, True]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"newest": [1, 2**63, True]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"front": [2**63, True]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"leader_epoch": 2**31}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"last_epoch": 2**31}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"earlier": [[2**31, 1, 1, False]]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"earlier": [[1, 2**31, 1, False]]}}}),
        (TOPIC_ID, {**GOOD, "partitions": {"0": {"earlier": [[1, 1, 2**63, False]]}}}),
        (TOPIC_ID, {**GOOD, "widths": [[2**63, 1]]}),
        (TOPIC_ID, {**GOOD, "widths": [[3, 0], [5, 2**63]]}),
        (TOPIC_ID, {**GOOD, "seen_ms": 2**63}),
        (TOPIC_ID, {**GOOD, "seen_ms": 1e300}),
        (TOPIC_ID, {**GOOD, "name": "\ud800"}),
        (f"{TOPIC_ID}/99999999999999999999", GOOD),
        (f"{TOPIC_ID}/1", {**GOOD, "partitions": {"0": {}}}),
        ("who-knows", GOOD),
        ("group:a", {**GROUP, "name": "b"}),
        ("group:a", GROUP),
        ("group:a", {**GROUP, "group": 1}),
        ("group:a", {**GROUP, "group": "eJw="}),
        ("disk:1:/e", DISK),
        ("disk:1:/d", {**DISK, "disk": {"packed": "AAAA"}}),
        ("watched:a", {"scope": "", "ignored": [], "since_ms": 1, "last_ms": 2}),
        ("watched:a", {"scope": "", "ignored": "", "since_ms": 1, "last_ms": "2"}),
    ],
)  # fmt: skip
def test_invalid_document_is_refused(key: str, body: object) -> None:
    refusal(messages.DocumentError, messages.decode, key, message(HEAD, body))


@pytest.mark.parametrize("wrong", [{"version": 0}, {"version": "1"}, {"at_ms": None}, {"since_ms": "9" * 30}])
def test_message_with_a_wrong_head_is_refused(wrong: dict[str, object]) -> None:
    messages.decode(TOPIC_ID, message(HEAD, GOOD))
    refusal(messages.DocumentError, messages.decode, TOPIC_ID, message({**HEAD, **wrong}, GOOD))


def test_decompression_bomb_is_refused() -> None:
    refusal(messages.DocumentError, messages.decode, TOPIC_ID, zlib.compress(b"[" * (1 << 27)))


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize(("key", "body"), [(TOPIC_ID, GOOD), ("new:kind", {"new": 1})])
def test_document_of_another_version_raises_its_own_error(key: str, body: object, version: int) -> None:
    assert f"version {version}, this one knows 4" in refusal(
        messages.OtherVersionError, messages.decode, key, message({**HEAD, "version": version, "more": 1}, body)
    )


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_a_document_error(value: bytes) -> None:
    refusal(messages.DocumentError, messages.decode, TOPIC_ID, value)


# -- a group's document says what was put into it, and a damaged one is refused: it is never taken for less (F6) --


TIMES = st.integers(-(2**62), 2**62)
EPOCHS = st.none() | st.integers(0, 2**31 - 1)
PLACES = st.tuples(st.sampled_from(["a", "ü\n", "\"'\\"]), st.integers(0, 3) | st.integers(-(2**31), 2**31 - 1))
POSITIONS = st.builds(
    Positions.at,
    st.dictionaries(PLACES, st.builds(Position, st.integers(-(2**63), 2**63 - 1), EPOCHS, EPOCHS, TIMES)),
)
GROUPS = st.builds(
    GroupMemory,
    seen_ms=TIMES,
    digest=st.binary(max_size=3),
    ids=st.dictionaries(st.text(max_size=2).filter(lambda one: one.isprintable()), st.sampled_from(["", "x", "?x"])),
    counted=POSITIONS,
    open=POSITIONS,
    refused=POSITIONS,
    gone=POSITIONS,
    doubted=POSITIONS,
    stood_ms=TIMES,
)


@given(GROUPS)
def test_stored_group_reads_back_unchanged(group: GroupMemory) -> None:
    assert GroupMemory.from_bytes(group.as_bytes()) == group


def positions(**places: Position) -> Positions:
    return Positions.at({(name[0], int(name[1:])): one for name, one in places.items()})


WHOLE = GroupMemory(
    7,
    b"d",
    {"a": "x"},
    counted=positions(a0=Position(5, 1, 1), a1=Position(6, None, 2)),
    open=positions(b0=Position(9, None)),
    refused=positions(b3=Position(8, 4)),
    gone=positions(a2=Position(1, None, 1, 3)),
    stood_ms=5,
)
CONTENT = zlib.decompress(WHOLE.as_bytes())
END = 4 + int.from_bytes(CONTENT[:4], "little")
ABOUT, ROWS = json.loads(CONTENT[4:END]), CONTENT[END:]


def document(head: object, rows: bytes = ROWS) -> bytes:
    about = json.dumps(head).encode()
    return zlib.compress(len(about).to_bytes(4, "little") + about + rows)


def about(*, seen: object = 7, stood: object = 5, digest: object = "64", ids: object = None) -> list[object]:
    return [[seen, stood, digest, {"a": "x"} if ids is None else ids], *ABOUT[1:]]


def with_number(at: int, value: int) -> bytes:
    return ROWS[:at] + value.to_bytes(4, "little", signed=True) + ROWS[at + 4 :]


def test_undamaged_base_document_is_valid() -> None:
    assert GroupMemory.from_bytes(document(ABOUT)) == GroupMemory.from_bytes(document(about())) == WHOLE


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(WHOLE.as_bytes()[:-3], id="cut short"),
        pytest.param(document(about(seen="7")), id="a time that is text"),
        pytest.param(document(about(stood=None)), id="no time"),
        pytest.param(document(about(digest="xyz!")), id="no digest"),
        pytest.param(document(about(digest=1)), id="a digest that is a number"),
        pytest.param(document(about(ids={"a": 1})), id="an id that is no text"),
        pytest.param(document(about(ids=7)), id="ids that are a number"),
        pytest.param(document(ABOUT[:2]), id="no numbers of rows"),
        pytest.param(document([ABOUT[0][:3], *ABOUT[1:]]), id="no ids"),
        pytest.param(document([*ABOUT[:2], ABOUT[2][:4]]), id="fewer sections"),
        pytest.param(document([*ABOUT[:2], [3, 1, 1, 1, 0]]), id="more rows than there are"),
        pytest.param(document([*ABOUT[:2], [1, 1, 1, 1, 0]]), id="fewer rows than there are"),
        pytest.param(document([*ABOUT[:2], [3, -1, 1, 1, 1]]), id="a number of rows below none"),
        pytest.param(document([*ABOUT[:2], [2.0, 1, 1, 1, 0]]), id="a number of rows that is a fraction"),
        pytest.param(document([*ABOUT[:2], [2**70, 1, 1, 1, 0]]), id="a number of rows that fits nowhere"),
        pytest.param(document([ABOUT[0], ["a", "\ud800"], ABOUT[2]]), id="a topic with half a character"),
        pytest.param(document(about(ids={"\ud800": "x"})), id="an id of a topic with half a character"),
        pytest.param(document([ABOUT[0], ["a", "a"], ABOUT[2]]), id="a topic twice"),
        pytest.param(document([ABOUT[0], ["a"], ABOUT[2]]), id="a topic is missing"),
        pytest.param(document([ABOUT[0], ["a", 7], ABOUT[2]]), id="a topic that is a number"),
        pytest.param(document(ABOUT, ROWS[:-1]), id="a byte is missing"),
        pytest.param(document(ABOUT, ROWS + b"\0"), id="a byte too many"),
        pytest.param(document(ABOUT, with_number(0, -1)), id="a topic below the first"),
        pytest.param(document(ABOUT, with_number(20 + 4, 0)), id="a partition twice"),
        pytest.param(document(ABOUT, with_number(80, -2)), id="an own epoch below none"),
        pytest.param(document(ABOUT, with_number(100, -2)), id="a proven epoch below none"),
    ],
)
def test_damaged_group_document_is_refused(raw: bytes) -> None:
    assert "damaged" in refusal(ValueError, GroupMemory.from_bytes, raw)


@given(at=st.integers(0, len(WHOLE.as_bytes()) - 1), to=st.integers(0, 255))
def test_group_document_with_a_changed_byte_is_refused_or_reads_equal(at: int, to: int) -> None:
    """Zlib has a checksum of its own, beside that of the ledger's row."""
    raw = bytearray(WHOLE.as_bytes())
    raw[at] = to
    try:
        assert GroupMemory.from_bytes(bytes(raw)) == WHOLE
    except ValueError as error:
        assert "damaged" in str(error)


# -- dead bytes are never counted as live ones: what is remembered of replicas' sizes (R5, R6) --


CHECK, DELAY = 300_000, 60_000
SWEEPING = Sweeping(CHECK, DELAY)
WAIT = 2 * CHECK + DELAY


def watched(*passes: tuple[int, int, int, int], sweeping: Sweeping = SWEEPING, compacted: bool = False) -> ReplicaSeen:
    """A replica after passes of (wall clock, S, H, bytes), with segments of 50 bytes."""
    row: ReplicaSeen | None = None
    for at, start, end, size in passes:
        row = seen_again(row, 7, at, start, end, size, sweeping._replace(segment_bytes=50, compacted=compacted))
    return known(row)


@pytest.mark.parametrize(
    ("passes", "clean"),
    [
        ([(0, 0, 100, 1000)], True),
        ([(0, 50, 100, 1000)], False),
        ([(0, 50, 100, 1000), (WAIT - 1, 50, 100, 1000)], False),
        ([(0, 50, 100, 1000), (WAIT, 50, 100, 1000)], True),
        ([(0, 50, 100, 1000), (WAIT, 60, 100, 1000)], False),
        ([(0, 0, 100, 1000), (5, 50, 100, 1000)], False),
        ([(0, 0, 100, 1000), (5, 50, 100, 1000), (9 * WAIT, 50, 100, 1000)], False),
        ([(0, 0, 100, 1000), (5, 50, 100, 1000), (9, 50, 120, 700)], True),
        ([(0, 0, 100, 1000), (5, 50, 100, 520)], True),
        ([(0, 0, 100, 1000), (5, 50, 100, 990)], False),
        ([(0, 0, 100, 1000), (5, 50, 100, 520), (9, 80, 100, 520)], False),
        ([(0, 0, 100, 1000), (5, 50, 100, 990), (9, 50, 100, 980)], True),
        ([(0, 0, 100, 1000), (1, 40, 100, 1000), (2, 80, 100, 600)], False),
        ([(0, 0, 100, 1000), (5, 90, 100, 500)], False),
        ([(0, 50, 100, 1000), (WAIT, 50, 100, 1000), (WAIT + 5, 0, 100, 1000), (WAIT + 9, 50, 100, 1000)], False),
    ],
    ids=[
        "begins at 0",
        "never seen before",
        "not watched for long enough",
        "stood still for two checks",
        "moved meanwhile",
        "trimmed, not swept",
        "trimmed, and the broker is stuck: time says nothing",
        "trimmed, then it fell",
        "trimmed and swept between two passes",
        "trimmed, and something else fell",
        "swept, and trimmed again",
        "fell once more with S where it stood",
        "one fall does not pay for two trims",
        "what went by retention is not what a trim left to be swept",
        "a trim was undone, and done again",
    ],
)
def test_replica_size_is_clean_only_if_the_log_start_has_not_moved_since_it_fell(
    passes: list[tuple[int, int, int, int]], *, clean: bool
) -> None:
    row = watched(*passes)
    assert (row.clean, row.dead_bytes == 0) == (clean, clean)


FALLEN = ((0, 0, 100, 1000), (1, 60, 100, 1000), (2, 60, 100, 900))


STANDING = ((0, 50, 100, 1000), (9 * WAIT, 50, 100, 1000))


@pytest.mark.parametrize(
    ("passes", "more", "clean"),
    [
        pytest.param(FALLEN, {}, True, id="nothing else makes a log of cleanup.policy=delete smaller"),
        pytest.param(FALLEN, {"compacted": True}, False, id="the cleaner does"),
        pytest.param((*FALLEN, (3, 60, 100, 340)), {"compacted": True}, True, id="but not by so much"),
        pytest.param(STANDING, {}, True, id="after some checks all that was dead is gone"),
        pytest.param(STANDING, {"sweeping": Sweeping(None, DELAY)}, False, id="when brokers check is unknown"),
        pytest.param(STANDING, {"sweeping": Sweeping(CHECK, None)}, False, id="how long files stay is unknown"),
    ],
)
def test_replica_size_stays_doubted_where_no_sweep_is_certain(
    passes: tuple[tuple[int, int, int, int], ...], more: dict[str, Any], *, clean: bool
) -> None:
    assert watched(*passes, **more).clean is clean


@pytest.mark.parametrize(
    ("passes", "dead"),
    [
        ([(0, 0, 100, 1000), (5, 40, 100, 1000)], 400),
        ([(0, 0, 100, 1000), (5, 40, 100, 600), (9, 70, 100, 600)], 300),
        ([(0, 100, 100, 1000)], 1000),
    ],
)
def test_dead_bytes_are_the_share_below_the_log_start(passes: list[tuple[int, int, int, int]], dead: int) -> None:
    assert watched(*passes).dead_bytes == dead


SWEPT = ((0, 0, 100, 1000), (1_000, 50, 100, 1000), (2_000, 50, 100, 600))
SWEPT_LATE = (*SWEPT[:2], (HOUR, 50, 100, 600))


@pytest.mark.parametrize(
    ("passes", "now", "sweeping", "leaving"),
    [
        (SWEPT, 2_000, SWEEPING, 400),
        (SWEPT, 2_000 + DELAY - 1, SWEEPING, 400),
        (SWEPT, 2_000 + DELAY, SWEEPING, 0),
        ((*SWEPT, (3_000, 50, 100, 500)), 3_000, SWEEPING, 500),
        (SWEPT_LATE, HOUR, SWEEPING, 0),  # an hourly run does not wait for what went long ago
        (SWEPT_LATE, HOUR, Sweeping(None, None), 400),
    ],
)
def test_swept_bytes_count_as_leaving_until_their_files_are_deleted(
    passes: tuple[tuple[int, int, int, int], ...], now: int, sweeping: Sweeping, leaving: int
) -> None:
    """``used`` falls ``file.delete.delay.ms`` after the size: counted as in use it would be trimmed a second time."""
    assert watched(*passes).leaving_bytes(now, sweeping) == leaving


@dataclass
class Broker:
    """One replica: segments of 10 records of 10 bytes each, a start offset, and sweeps that may come at any time."""

    start: int = 0
    end: int = 100
    base: int = 0
    left: int = 0
    """Whether the last sweep left the active segment, all of it dead: it goes once another one is active."""

    @property
    def size(self) -> int:
        return (self.end - self.base) * 10

    @property
    def dead_segments(self) -> int:
        return (min(self.start, (self.end - 1) // 10 * 10) - self.base) // 10

    def step(self, what: str, amount: int) -> None:
        if what == "write":
            self.end += amount
        elif what == "trim":
            self.start = min(self.end, self.start + amount)
        elif what == "sweep":
            self.base += 10 * max(0, self.dead_segments)
            self.left = int(self.start == self.end > self.base)


_steps = st.lists(st.tuples(st.sampled_from(["write", "trim", "sweep", "look"]), st.integers(1, 60)), max_size=40)


@given(_steps)
@example([("trim", 40), ("trim", 60), ("sweep", 1), ("write", 1), ("trim", 1)])
def test_size_with_dead_segments_is_never_clean_if_each_trim_looks_first(
    steps: list[tuple[str, int]],
) -> None:
    """R5: as kretain does it, whatever is written and swept in between."""
    broker, at = Broker(), 0
    row = seen_again(None, 7, 0, 0, broker.end, broker.size, SWEEPING)
    for what, amount in steps:
        at += amount * 1_000
        if what in ("trim", "look"):
            row = seen_again(row, 7, at, broker.start, broker.end, broker.size, SWEEPING)
            assert not row.clean or broker.dead_segments <= broker.left
        broker.step(what, amount)


@pytest.mark.parametrize(
    ("passes", "now", "bytes_"),
    [
        ([(0, 0, 100, 1000), (HOUR, 0, 200, 2000)], HOUR, 0),
        ([(0, 0, 100, 1000), (HOUR, 40, 200, 1000)], HOUR, 400),
        ([(0, 0, 100, 1000), (HOUR, 40, 200, 1600)], HOUR, 400),
        ([(0, 0, 100, 1000), (HOUR, 40, 200, 200)], HOUR, 800),
        ([(0, 0, 100, 1000), (HOUR, 40, 200, 1600), (HOUR + 5, 40, 200, 1600)], HOUR + 5, 720),
        ([(0, 0, 100, 1000), (HOUR, 40, 200, 1600)], HOUR + DELAY, 0),
        ([(0, 0, 100, 1000), (HOUR, 150, 200, 500)], HOUR, 1500),
        ([(0, 0, 0, 0), (HOUR, 0, 200, 500)], HOUR, 0),
        ([(0, 0, 0, 0), (HOUR, 20, 200, 500)], HOUR, ANY_BYTES),
    ],
    ids=[
        "log begins at 0",
        "S moved, growth hides the sweep",
        "S moved, not swept yet",
        "size fell by more than S says",
        "not swept yet for two passes: counted twice",
        "delay is over",
        "S beyond the last H: at the old records' size",
        "first records",
        "written and swept between two passes: any number",
    ],
)
def test_swept_bytes_that_may_still_be_on_disk_are_bounded_by_s(passes: list, now: int, bytes_: int) -> None:
    assert watched(*passes).may_leave_bytes(now, SWEEPING) == bytes_


_rows = st.lists(
    st.builds(
        ReplicaSeen,
        st.integers(0, 3),
        *[st.integers(0, 5)] * 4,
        st.integers(-1, 3),
        st.integers(-1, 3),
        *[st.integers(0, 3)] * 5,
    ),
    max_size=4,
    unique_by=lambda row: row.place,
)


@given(_rows, _rows, _rows)
def test_replica_memories_merge_to_the_same_in_any_order(first: list, second: list, third: list) -> None:
    one, two, three = pack(first), pack(second), pack(third)
    both = replica_memory.merged(one, two)
    for same in ((two, one), (both, one), (both, both)):
        assert replica_memory.merged(*same) == both
    assert replica_memory.merged(both, three) == replica_memory.merged(one, replica_memory.merged(two, three))
    memory = PartitionMemory(replicas=one).merged(PartitionMemory(replicas=two))
    assert (memory.replicas, memory.covers(PartitionMemory(replicas=one))) == (both, True)
    assert set(unpack(both)) <= {*first, *second}


def test_replica_memory_is_bounded_and_refuses_truncated_bytes() -> None:
    rows = [ReplicaSeen(place, place, 0, 9, 1, 0, 0) for place in range(2 * REPLICAS_AT_MOST)]
    assert {row.place for row in unpack(pack(rows))} == set(range(REPLICAS_AT_MOST, 2 * REPLICAS_AT_MOST))
    assert "cut short" in refusal(ValueError, unpack, pack(rows)[:-1])
    assert place_of(1, "/a") not in (place_of(1, "/b"), place_of(2, "/a"))


def test_replica_sizes_survive_the_ledger_and_its_documents(tmp_path: Path) -> None:
    packed, topic_id = pack([watched((0, 50, 100, 1000))]), "A" * 22
    with Ledger(tmp_path) as ledger:
        ledger.begin({"orders": "id-1"})
        ledger.partition("orders", "id-1", 3).note(replicas=packed)
        ledger.save(1_000)
    with Ledger(tmp_path) as ledger:
        assert ledger.partition("orders", "id-1", 3).replicas == packed
    one = docs.TopicDocument(topic_id, "orders", 5, {3: PartitionMemory(replicas=packed), 4: PartitionMemory()})
    assert messages.decode(topic_id, messages.encode(one, WRITTEN)) == (one, WRITTEN)
    assert "cut short" in refusal(
        messages.DocumentError,
        messages.decode,
        topic_id,
        messages.encode(replace(one, partitions={3: PartitionMemory(replicas=packed[:-1])}), WRITTEN),
    )


# -- how full disks were, and so how fast they grow: what ``kretain disk`` tells of the ledger's samples --


GIB = 1 << 30


def ago(ms: int, used: int, total: int = 100 * GIB) -> DiskSample:
    return DiskSample(NOW - ms, used, total)


@pytest.mark.parametrize(
    ("looks", "used", "expected"),
    [
        ([ago(DAY_MS, 40 * GIB)], 50 * GIB, Growth(10 * GIB, DAY_MS, 5 * DAY_MS)),
        ([ago(12 * HOUR, 40 * GIB)], 50 * GIB, Growth(20 * GIB, 12 * HOUR, 60 * HOUR)),
        ([ago(DAY_MS, 60 * GIB)], 50 * GIB, Growth(-10 * GIB, DAY_MS, None)),
        ([ago(DAY_MS, 50 * GIB)], 50 * GIB, Growth(0, DAY_MS, None)),
        ([ago(DAY_MS, 90 * GIB)], 100 * GIB, Growth(10 * GIB, DAY_MS, 0)),
        ([ago(30 * DAY_MS, 0), ago(2 * DAY_MS, 40 * GIB)], 50 * GIB, Growth(5 * GIB, 2 * DAY_MS, 10 * DAY_MS)),
        ([ago(40 * DAY_MS, 0), ago(30 * DAY_MS, 20 * GIB)], 50 * GIB, Growth(GIB, 30 * DAY_MS, 50 * DAY_MS)),
        ([ago(3 * DAY_MS, 9 * GIB, 10 * GIB), ago(DAY_MS, 40 * GIB)], 50 * GIB, Growth(10 * GIB, DAY_MS, 5 * DAY_MS)),
    ],
    ids=[
        "a day",
        "half a day",
        "it shrinks",
        "it stands still",
        "it is full",
        "the last seven days alone",
        "after a longer pause, since the last look",
        "from another size on",
    ],
)
def test_disk_growth_is_computed_from_two_looks(looks: list[DiskSample], used: int, expected: Growth) -> None:
    assert growth(looks, ago(0, used)) == expected


@pytest.mark.parametrize(
    "looks",
    [[], [ago(LEAST_MS - 1, 0)], [ago(-HOUR, 0)], [ago(DAY_MS, 0, 50 * GIB)]],
    ids=["never seen", "just now", "a clock that was set back", "of another size"],
)
def test_disk_growth_is_unknown_until_two_looks_are_an_hour_apart(looks: list[DiskSample]) -> None:
    assert "1 h apart" in why(growth(looks, ago(0, GIB)))


def test_disk_looks_are_bounded_and_those_close_together_count_as_one() -> None:
    memory = DiskMemory()
    for minute in range(2_000):
        memory.add(DiskSample(NOW + 60_000 * minute, minute, 9))
        memory.add(DiskSample(NOW + 60_000 * minute + 59_999, minute, 9))
    memory.add(DiskSample(NOW + 60_000 * 2_000, 7, 8))
    assert len(memory.samples) <= DISK_SAMPLES_AT_MOST
    assert (memory.samples[0].used_bytes, memory.samples[-1]) == (0, DiskSample(NOW + 60_000 * 2_000, 7, 8))
    assert growth(memory.samples, DiskSample(NOW + 60_000 * 1_999, 1_999, 9)) != growth([], ago(0, 0))


_looks = st.lists(st.builds(DiskSample, st.integers(0, 9_000_000), st.integers(0, 9), st.just(9)), max_size=90).map(
    lambda rows: sorted(set(rows))
)


@given(_looks, _looks)
def test_disk_memories_merge_to_the_same_in_either_order(first: list[DiskSample], second: list[DiskSample]) -> None:
    one, other = DiskMemory(pack_looks(first)), DiskMemory(pack_looks(second))
    both = one.merged(other)
    assert both.packed == other.merged(one).packed
    assert len(both.samples) <= DISK_SAMPLES_AT_MOST
    assert both.covers(both)


def test_disk_looks_survive_the_ledger_until_they_are_too_old(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.disk("1:/a").add(ago(0, 5))
        ledger.save(NOW)
    with Ledger(tmp_path) as mine, Ledger(tmp_path) as theirs:
        assert mine.disk("1:/a").samples == (ago(0, 5),)
        for one, at_ms, used in ((mine, -HOUR, 6), (theirs, -2 * HOUR, 7)):
            one.disk("1:/a").add(ago(at_ms, used))
        mine.save(NOW)
        theirs.save(NOW)
    with Ledger(tmp_path) as ledger:
        assert [look.used_bytes for look in ledger.disk("1:/a").samples] == [5, 6, 7]
        for now_ms, kept in ((NOW, True), (NOW + 3 * HOUR, False)):
            ledger.prune(now_ms)
            assert bool(ledger.disk("1:/a").samples) is kept


def test_disk_document_reads_back_as_written_and_is_refused_for_another_disk() -> None:
    one = docs.DiskDocument("1:/a+/b", DiskMemory(pack_looks([ago(0, 5)])))
    value = messages.encode(one, WRITTEN)
    assert messages.decode(docs.DISK + one.name, value) == (one, WRITTEN)
    assert "another disk" in refusal(messages.DocumentError, messages.decode, docs.DISK + "2:/a", value)
    assert "cut short" in refusal(ValueError, unpack_looks, pack_looks([ago(0, 5)])[:-1])


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 min"),
        (HOUR, "60 min"),
        (5 * HOUR, "5 h"),
        (47 * HOUR, "47 h"),
        (48 * HOUR, "2 d"),
        (10**15, "> 10 years"),
    ],
)
def test_time_span_is_shown_in_its_largest_unit(ms: int, text: str) -> None:
    assert output.about(ms) == text
