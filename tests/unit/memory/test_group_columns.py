"""A group's document of columns says what was put into it, and one that is damaged is refused (docs/memory.md)."""

from __future__ import annotations

import json
import zlib
from array import array
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.memory.group import GroupMemory
from retention_cli.memory.group_columns import (
    NO_EPOCH,
    OPEN,
    REFUSED,
    Columns,
    Document,
    columns_of,
    document_of,
    is_columns,
    live_of,
    nothing,
)
from retention_cli.memory.interface import LogNow
from retention_cli.memory.judged_group import Logs, judged
from retention_cli.memory.seen_group import seen

OFFSETS = st.integers(-(2**63), 2**63 - 1)
EPOCHS = st.none() | st.integers(-(2**31) + 1, 2**31 - 1)
NUMBERS = st.integers(0, 4)
COUNTED = st.lists(st.tuples(NUMBERS, OFFSETS, EPOCHS, EPOCHS), max_size=4, unique_by=lambda row: row[0])
OTHERS = st.lists(st.tuples(NUMBERS, OFFSETS, EPOCHS), max_size=4, unique_by=lambda row: row[0])
TOPICS = st.sampled_from(["a", "b", "ü\n"])


def whole(counted: object, opened: object, refused: object) -> Document:
    live = live_of(counted, opened, refused)  # type: ignore[arg-type]
    assert live is not None
    return Document(7, 5, b"\1d", {"a": "x"}, *live)


@given(
    counted=st.dictionaries(TOPICS, COUNTED),
    others=st.dictionaries(TOPICS, OTHERS),
    split=st.randoms(use_true_random=False),
)
def test_a_document_says_what_was_put_into_it(
    counted: dict[str, list[tuple[int, ...]]], others: dict[str, list[tuple[int, ...]]], split: Random
) -> None:
    """Also of places where a commit that counted is kept beside another one."""
    opened: dict[str, list[tuple[int, ...]]] = {}
    refused: dict[str, list[tuple[int, ...]]] = {}
    for topic, rows in others.items():
        for row in rows:
            split.choice((opened, refused)).setdefault(topic, []).append(row)
    one = whole(counted, opened, refused)
    raw = one.as_bytes()
    assert is_columns(raw)
    again = document_of(raw)
    assert again == one
    for found, given_ in zip(again.rows(), (counted, opened, refused), strict=True):
        assert {topic: set(rows) for topic, rows in found.items() if rows} == {
            topic: set(rows) for topic, rows in given_.items() if rows
        }
    assert again.refused() == {(topic, row[0]): row[1:] for topic, rows in refused.items() for row in rows}
    group = GroupMemory.from_bytes(raw)
    assert (group.seen_ms, group.stood_ms, group.digest, group.ids) == (7, 5, b"\1d", {"a": "x"})
    assert [len(group.counted), len(group.open), len(group.refused)] == [
        sum(map(len, some.values())) for some in (counted, opened, refused)
    ]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 1, None), (0, 2, None)], id="a partition twice"),
        pytest.param([(0, 2**63, None)], id="an offset of more than 8 bytes"),
        pytest.param([(2**31, 1, None)], id="a partition of more than 4 bytes"),
        pytest.param([(0, 1, 2**31)], id="an epoch of more than 4 bytes"),
        pytest.param([(0, 1, -(2**31))], id="an epoch that would read as none"),
        pytest.param([(0, None, 1)], id="no offset"),
        pytest.param([(0, "1", 1)], id="text"),
        pytest.param([(0, 1.0, 1)], id="a fraction"),
    ],
)
def test_what_does_not_fit_is_left_to_the_memory_of_commits(rows: list[tuple[int, int, int | None]]) -> None:
    assert columns_of({"a": rows}) is None
    assert live_of({}, {"a": rows}, {}) is None


def test_columns_are_in_order_whatever_order_they_come_in() -> None:
    """Else those of two looks could not be compared at once."""
    one = columns_of({"b": [(2, 5, 1), (0, 6, None)], "a": [(1, 7, 2)]})
    assert one == columns_of({"a": [(1, 7, 2)], "b": [(0, 6, None), (2, 5, 1)]})
    assert one is not None
    assert (list(one.counts), one.places()) == (["a", "b"], [("a", 1), ("b", 0), ("b", 2)])


WHOLE = whole({"a": [(0, 5, 1, 1), (1, 6, None, 2)]}, {"b": [(0, 9, None)]}, {"b": [(3, 8, 4)]})
CONTENT = zlib.decompress(WHOLE.as_bytes()[1:])


def damaged(old: bytes, new: bytes) -> bytes:
    assert CONTENT.count(old) == 1
    return b"\3" + zlib.compress(CONTENT.replace(old, new))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\3", id="nothing"),
        pytest.param(WHOLE.as_bytes()[:-3], id="cut short"),
        pytest.param(b"\3" + zlib.compress(CONTENT[:-1]), id="a state is missing"),
        pytest.param(b"\3" + zlib.compress(CONTENT + b"\0"), id="a state too many"),
        pytest.param(b"\3" + zlib.compress(CONTENT[:-1] + b"\3"), id="a state that there is not"),
        pytest.param(damaged(b'"a":2', b'"a":3'), id="more rows than there are"),
        pytest.param(damaged(b'"a":2', b'"a":1'), id="fewer rows than there are"),
        pytest.param(damaged(b'{"a":2,"b":2}', b'{"b":2,"a":2}'), id="topics out of order"),
        pytest.param(damaged(b'"seen":7', b'"seen":!'), id="no JSON"),
        pytest.param(damaged(b'"seen":7', b'"sewn":7'), id="no time"),
        pytest.param(damaged(b'"stood":5', b'"stood":[')[:-1], id="no JSON either"),
        pytest.param(damaged(b'"0164"', b'"xyz!"'), id="no digest"),
        pytest.param(damaged(b'"a":"x"', b'"a":123'), id="an id that is no text"),
        pytest.param(damaged(b",{}]]", b"  ]]"), id="no second section"),
    ],
)
def test_a_damaged_document_is_refused_and_never_taken_for_less(raw: bytes) -> None:
    for read in (document_of, GroupMemory.from_bytes):
        with pytest.raises(ValueError, match="damaged"):
            read(raw)


def made(topic: str, *rows: tuple[int, int, int, int]) -> Columns:
    """Rows as they are, in whatever order."""
    columns = zip("iqii", zip(*rows, strict=True), strict=True)
    return Columns({topic: len(rows)}, *(array(kind, one) for kind, one in columns))


ONE, BESIDE = made("a", (0, 5, 1, NO_EPOCH)), made("a", (0, 3, 1, 1))


@pytest.mark.parametrize(
    ("live", "state", "beside"),
    [
        pytest.param(
            made("a", (0, 50, 1, NO_EPOCH), (0, 50, 1, NO_EPOCH)), [REFUSED] * 2, nothing(), id="refused twice"
        ),
        pytest.param(ONE, [OPEN], made("a", (0, 3, 1, 1), (0, 9, 1, 1)), id="two beside one"),
        pytest.param(ONE, [OPEN], made("b", (0, 3, 1, 1)), id="beside none"),
        pytest.param(ONE, [0], BESIDE, id="beside one that counts"),
    ],
)
def test_a_document_that_says_a_commit_twice_or_would_lose_one_is_refused(
    live: Columns, state: list[int], beside: Columns
) -> None:
    """F6: a commit that counted, beside none that followed, would be gone without a trace at the next look."""
    raw = Document(7, 5, b"d", {}, live, bytes(state), beside).as_bytes()
    for read in (lambda raw: document_of(raw).rows(), GroupMemory.from_bytes):
        with pytest.raises(ValueError, match="damaged"):
            read(raw)
    sound = Document(7, 5, b"d", {}, ONE, bytes([OPEN]), BESIDE)
    assert document_of(sound.as_bytes()) == sound


@given(at=st.integers(0, len(WHOLE.as_bytes()) - 1), to=st.integers(0, 255))
def test_a_byte_that_changed_is_refused_or_changes_nothing(at: int, to: int) -> None:
    """Zlib has a checksum of its own, beside that of the ledger's row."""
    raw = bytearray(WHOLE.as_bytes())
    raw[at] = to
    try:
        assert GroupMemory.from_bytes(bytes(raw)) == GroupMemory.from_bytes(WHOLE.as_bytes())
    except ValueError as error:
        assert "damaged" in str(error)


def test_numbers_are_stored_in_one_byte_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state dir may move to another machine."""
    raw = WHOLE.as_bytes()
    monkeypatch.setattr("sys.byteorder", "big")  # as if the columns here were that machine's
    assert WHOLE.as_bytes() != raw
    assert document_of(WHOLE.as_bytes()) == WHOLE


def test_what_counts_at_a_topic_that_is_not_read_waits_and_the_rest_is_judged() -> None:
    """F5: nobody has looked at that log; the group's other commits count all the same."""
    commits = columns_of({"a": [(0, 5, 1), (1, 11, None)], "b": [(0, 6, None)]})
    one = seen(None, commits, {"a": "x"}, b"d", 1_000)
    assert one is not None
    found = judged(one, Logs(lambda place: LogNow(10, 3) if place[0] == "a" else None))
    group = GroupMemory.from_bytes(found.document)
    assert {place: (position.offset, position.proven) for place, position in group.counted.items()} == {
        ("a", 0): (5, 3)
    }
    assert (list(group.open), list(group.refused)) == ([("b", 0)], [("a", 1)])
    assert (found.plain, found.open) == (False, frozenset({"b"}))


def test_a_commit_on_a_partition_of_any_number_is_looked_up_by_itself() -> None:
    """What a broker answers is data: it does not make this process look through two thousand million partitions."""
    asked = []

    def log_of(place: tuple[str, int]) -> LogNow | None:
        asked.append(place)
        return None if place[1] > 5 else LogNow(10, 3)

    one = seen(None, columns_of({"a": [(0, 5, 1), (2**31 - 1, 7, 1)]}), {"a": "x"}, b"d", 1_000)
    assert one is not None
    group = GroupMemory.from_bytes(judged(one, Logs(log_of)).document)
    assert (list(group.counted), list(group.open)) == ([("a", 0)], [("a", 2**31 - 1)])
    assert len(asked) < 200


def test_columns_are_what_is_stored_of_an_ordinary_group_and_take_less_room() -> None:
    commits = {"a": [(number, 1_000_000 + number * 7919, 3) for number in range(500)]}
    one = seen(None, columns_of(commits), {"a": "x"}, b"d", 1_000)
    assert one is not None
    document = judged(one, Logs(lambda _place: LogNow(2**40, 3))).document
    as_json = GroupMemory.from_bytes(document).as_bytes()
    assert is_columns(document)
    assert json.loads(zlib.decompress(as_json))["format"] == 2
    assert len(document) < len(as_json)
