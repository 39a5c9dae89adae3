"""Positions as files and commands give them: all of them, or none (F7, F3)."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.observe.floors.sources.interface import SourceError
from retention_cli.observe.floors.sources.positions import MAX_BYTES, check_age, read_positions

AT = 1_800_000_000_000
ROW = {"topic": "orders", "partition": 0, "offset": 7}


def as_json(*rows: object, at: object = AT) -> bytes:
    return json.dumps({"at": at, "positions": list(rows)}).encode()


def test_json_positions_are_read_with_their_time() -> None:
    rows = ROW, {"topic": "orders", "partition": 2, "offset": 9}, {"topic": "payments", "partition": 0, "offset": 0}
    assert read_positions(as_json(*rows)) == (AT, {"orders": [(0, 7), (2, 9)], "payments": [(0, 0)]})
    assert read_positions(as_json(ROW, at="2027-01-15T09:00:00+01:00"))[0] == AT


def test_csv_positions_of_kafkas_tool_are_read() -> None:
    assert read_positions(b'"orders",0,7\norders,2,9\r\n\n') == (None, {"orders": [(0, 7), (2, 9)]})
    assert read_positions(b"topic,partition,offset\norders,0,7\n") == (None, {"orders": [(0, 7)]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty: was it cut short?"),
        (b" \n", "it is empty: was it cut short?"),
        (b"\xff\n", "it is not UTF-8 text"),
        (as_json(), "it holds no positions"),
        (b"topic,partition,offset\n", "it holds no positions"),
        (as_json(ROW)[:-3], "line 1: it is not JSON, or was cut short"),
        (b"orders,0,7\norders,1,", "its last line has no end: was it cut short?"),
        (b"orders,0,7\norders,1,12", "its last line has no end: was it cut short?"),
        (b"orders,0,7\norders,0,8\n", "line 2: 'orders', partition 0, stands in it twice"),
        (as_json(ROW, {**ROW, "offset": 8}), "position 2: 'orders', partition 0, stands in it twice"),
        (b"orders,0,-1\n", "line 1: offset '-1' is not a whole number from 0"),
        (b"orders,0,7.0\n", "line 1: offset '7.0' is not a whole number from 0"),
        (b"orders,0, 7\n", "line 1: offset ' 7' is not a whole number from 0"),
        (b"url,jdbc:postgres://u:hunter2@db,1\n", "line 1: partition something else is not a whole number from 0"),
        (as_json({**ROW, "offset": "hunter2"}), "position 1: offset something else is not a whole number from 0"),
        (b"orders,-,7\n", "line 1: partition '-' is not a whole number from 0"),
        (b"orders,0,9999999999999999999\n", "line 1: a number is larger than Kafka has room for"),
        (b"billing,orders,0,7\n", "line 1 is not topic,partition,offset"),
        (b",0,7\n", "line 1 is not topic,partition,offset"),
        (b'"orders,0,7\n', "it is not CSV: a quote is not closed, or it is no text"),
        (as_json({**ROW, "offset": -1}), "position 1: offset -1 is not a whole number from 0"),
        (as_json({**ROW, "offset": 7.0}), "position 1: offset 7.0 is not a whole number from 0"),
        (as_json({**ROW, "offset": True}), "position 1: offset True is not a whole number from 0"),
        (as_json({**ROW, "offset": "7"}), "position 1: offset '7' is not a whole number from 0"),
        (as_json({**ROW, "partition": 2**31}), "position 1: partition 2147483648 is not a whole number from 0"),
        (as_json({**ROW, "offset": None}), "position 1: offset nothing (null) is not a whole number from 0"),
        (as_json({**ROW, "cluster": "b"}), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (as_json({"topic": "orders", "offset": 7}), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (as_json([]), 'position 1 is not {"topic": …, "partition": …, "offset": …}'),
        (b"[]", 'it is not {"at": …, "positions": […]}'),
        (b'{"positions": []}', 'it is not {"at": …, "positions": […]}'),
        (b'{"at": 1, "positions": {}}', '"positions" is not a list'),
        (b'{"at": 1, "at": 2, "positions": []}', "it has a key twice"),
        (b'{"at": 1, "positions": [{"topic": "a", "partition": 0, "offset": 1, "offset": 9}]}', "it has a key twice"),
        (b'{"at": 1, "positions": [NaN]}', "it is not JSON that can be read"),
        (b"[" * 100_000, "it is not JSON that can be read"),
        (as_json(ROW, at="soon"), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
        (as_json(ROW, at=0), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
        (as_json(ROW, at=1.5), '"at" is not a moment: write it in ISO 8601 with a zone, or in Unix ms'),
    ],
)
def test_one_odd_row_makes_the_source_unreadable(content: bytes, said: str) -> None:
    with pytest.raises(SourceError) as error:
        read_positions(content)
    assert str(error.value) == said


def test_positions_above_the_size_limit_are_refused() -> None:
    with pytest.raises(SourceError, match="larger than 64 MiB"):
        read_positions(b"\n" * (MAX_BYTES + 1))


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda one: "\r" not in one and "\0" not in one),
        st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1),
        min_size=1,
    )
)
def test_written_positions_read_back(positions: dict[str, dict[int, int]]) -> None:
    rows = [(topic, partition, offset) for topic, some in positions.items() for partition, offset in some.items()]
    wanted = {topic: sorted(some.items()) for topic, some in positions.items()}
    named = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    assert read_positions(as_json(*named)) == (AT, wanted)
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
    text = written.getvalue()
    if text.lstrip()[0] not in "{[":
        assert read_positions(text.encode("utf-8", "surrogatepass")) == (None, wanted)


@given(st.binary() | st.text().map(str.encode) | st.builds(lambda one: json.dumps(one).encode(), st.recursive(st.none() | st.integers() | st.text(), lambda some: st.lists(some) | st.dictionaries(st.text(), some))))  # fmt: skip
def test_any_content_raises_only_a_source_error(content: bytes) -> None:
    try:
        _, positions = read_positions(content)
    except SourceError:
        return
    assert all(offset >= 0 for rows in positions.values() for _, offset in rows)


def test_positions_older_than_their_limit_are_refused() -> None:
    check_age(AT, AT + 3_600_000, 3_600_000)
    check_age(AT + 60_000, AT, 0)
    with pytest.raises(SourceError, match=r"^its positions are 2h old \(max.age: 1h\): export them again$"):
        check_age(AT, AT + 7_200_000, 3_600_000)
    with pytest.raises(SourceError, match=r"^its positions are dated 2m ahead of this clock: check both clocks$"):
        check_age(AT + 120_000, AT, 3_600_000)
