"""Documents of the state topic: whole, small enough, and nothing that is no document gets through (docs/memory.md)."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from retention_cli.memory import documents as docs
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.positions import Position, Positions
from retention_cli.state import messages
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


@pytest.mark.parametrize(("key", "body"), [(TOPIC_ID, GOOD), ("new:kind", {"new": 1})])
def test_document_of_a_newer_version_raises_its_own_error(key: str, body: object) -> None:
    assert "version 5, this one knows 4" in refusal(
        messages.NewerDocumentError, messages.decode, key, message({**HEAD, "version": 5, "more": 1}, body)
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


def with_number(at: int, value: int, size: int = 4) -> bytes:
    return ROWS[:at] + value.to_bytes(size, "little", signed=True) + ROWS[at + size :]


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
