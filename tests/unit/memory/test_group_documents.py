"""A group's document says what was put into it, and a damaged one is refused: it is never taken for less (F6)."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.memory.group import GroupMemory
from retention_cli.memory.positions import Position, Positions

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
HEAD, ROWS = json.loads(CONTENT[4:END]), CONTENT[END:]


def document(head: object, rows: bytes = ROWS) -> bytes:
    about = json.dumps(head).encode()
    return zlib.compress(len(about).to_bytes(4, "little") + about + rows)


def about(*, seen: object = 7, stood: object = 5, digest: object = "64", ids: object = None) -> list[object]:
    return [[seen, stood, digest, {"a": "x"} if ids is None else ids], *HEAD[1:]]


def with_number(at: int, value: int, size: int = 4) -> bytes:
    return ROWS[:at] + value.to_bytes(size, "little", signed=True) + ROWS[at + size :]


def test_undamaged_base_document_is_valid() -> None:
    assert GroupMemory.from_bytes(document(HEAD)) == GroupMemory.from_bytes(document(about())) == WHOLE


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
        pytest.param(document(HEAD[:2]), id="no numbers of rows"),
        pytest.param(document([HEAD[0][:3], *HEAD[1:]]), id="no ids"),
        pytest.param(document([*HEAD[:2], HEAD[2][:4]]), id="fewer sections"),
        pytest.param(document([*HEAD[:2], [3, 1, 1, 1, 0]]), id="more rows than there are"),
        pytest.param(document([*HEAD[:2], [1, 1, 1, 1, 0]]), id="fewer rows than there are"),
        pytest.param(document([*HEAD[:2], [3, -1, 1, 1, 1]]), id="a number of rows below none"),
        pytest.param(document([*HEAD[:2], [2.0, 1, 1, 1, 0]]), id="a number of rows that is a fraction"),
        pytest.param(document([*HEAD[:2], [2**70, 1, 1, 1, 0]]), id="a number of rows that fits nowhere"),
        pytest.param(document([HEAD[0], ["a", "\ud800"], HEAD[2]]), id="a topic with half a character"),
        pytest.param(document(about(ids={"\ud800": "x"})), id="an id of a topic with half a character"),
        pytest.param(document([HEAD[0], ["a", "a"], HEAD[2]]), id="a topic twice"),
        pytest.param(document([HEAD[0], ["a"], HEAD[2]]), id="a topic is missing"),
        pytest.param(document([HEAD[0], ["a", 7], HEAD[2]]), id="a topic that is a number"),
        pytest.param(document(HEAD, ROWS[:-1]), id="a byte is missing"),
        pytest.param(document(HEAD, ROWS + b"\0"), id="a byte too many"),
        pytest.param(document(HEAD, with_number(0, -1)), id="a topic below the first"),
        pytest.param(document(HEAD, with_number(20 + 4, 0)), id="a partition twice"),
        pytest.param(document(HEAD, with_number(80, -2)), id="an own epoch below none"),
        pytest.param(document(HEAD, with_number(100, -2)), id="a proven epoch below none"),
    ],
)
def test_damaged_group_document_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        GroupMemory.from_bytes(raw)


@given(at=st.integers(0, len(WHOLE.as_bytes()) - 1), to=st.integers(0, 255))
def test_group_document_with_a_changed_byte_is_refused_or_reads_equal(at: int, to: int) -> None:
    """Zlib has a checksum of its own, beside that of the ledger's row."""
    raw = bytearray(WHOLE.as_bytes())
    raw[at] = to
    try:
        assert GroupMemory.from_bytes(bytes(raw)) == WHOLE
    except ValueError as error:
        assert "damaged" in str(error)
