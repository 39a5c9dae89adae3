"""Documents of the state topic: whole, small enough, and nothing that is no document gets through (docs/memory.md)."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_cli.memory import documents as docs
from retention_cli.memory.group import GroupMemory
from retention_cli.memory.positions import Position, Positions
from retention_cli.state import messages
from tests.support.ledgers import TOPIC_ID, WRITTEN, worst


def test_largest_possible_topic_document_fits_into_a_message() -> None:
    whole = {number: worst(number) for number in range(docs.PARTITIONS_A_DOCUMENT)}
    document = docs.TopicDocument(TOPIC_ID, "orders" * 40, 2**62, whole)
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
    assert docs.partitions_of(f"{TOPIC_ID}/3") == (TOPIC_ID, range(96, 128))
    assert docs.name_in(docs.GROUP + "a/b:c group:d", docs.GROUP) == "a/b:c group:d"
    assert docs.partitions_of("group:orders") is None
    assert docs.partitions_of("short") is None


def test_group_and_clock_documents_decode_to_what_was_encoded() -> None:
    group = GroupMemory(
        5,
        b"\x01",
        {"t": "id"},
        counted=Positions.at({("t", 0): Position(7, 2, 2)}),
        open=Positions.at({("t", 2): Position(8, None)}),
        refused=Positions.at({("t", 3): Position(9, 4)}),
        gone=Positions.at({("t", 1): Position(3, None, 1, 4)}),
    )
    document = docs.GroupDocument("billing", group)
    assert messages.decode("group:billing", messages.encode(document, WRITTEN)) == (document, WRITTEN)
    assert messages.decode("clock", messages.encode(None, WRITTEN)) == (None, WRITTEN)


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
    with pytest.raises(messages.DocumentError):
        messages.decode(key, message(HEAD, body))


@pytest.mark.parametrize("wrong", [{"version": 0}, {"version": "1"}, {"at_ms": None}, {"since_ms": "9" * 30}])
def test_message_with_a_wrong_head_is_refused(wrong: dict[str, object]) -> None:
    messages.decode(TOPIC_ID, message(HEAD, GOOD))
    with pytest.raises(messages.DocumentError):
        messages.decode(TOPIC_ID, message({**HEAD, **wrong}, GOOD))


def test_document_of_a_newer_version_raises_its_own_error() -> None:
    for key, body in ((TOPIC_ID, GOOD), ("new:kind", {"new": 1})):
        with pytest.raises(messages.NewerDocumentError, match=r"version 5, this one knows 4"):
            messages.decode(key, message({**HEAD, "version": 5, "more": 1}, body))


def test_decompression_bomb_is_refused() -> None:
    with pytest.raises(messages.DocumentError):
        messages.decode(TOPIC_ID, zlib.compress(b"[" * (1 << 27)))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(GOOD)), inner, max_size=7),
    max_leaves=12,
)


@given(st.sampled_from([TOPIC_ID, "group:a", "clock", "?"]), _json | st.builds(lambda more: {**GOOD, **more}, st.dictionaries(st.sampled_from(list(GOOD)), _json)))  # fmt: skip
def test_any_json_decodes_to_a_document_or_a_document_error(key: str, data: object) -> None:
    try:
        document, _ = messages.decode(key, message(HEAD, data))
    except messages.DocumentError:
        return
    assert messages.decode(key, messages.encode(document, WRITTEN))[0] == document


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_a_document_error(value: bytes) -> None:
    with pytest.raises(messages.DocumentError):
        messages.decode(TOPIC_ID, value)
