"""A group's commits from reading to judging (:mod:`.judged_group`), as columns instead of an object each. Pure.

Groups of a live cluster have moved since the last look, each of them. :class:`~retention_cli.memory.group.GroupMemory`
has three objects for each commit, which took more time and memory than all else of a plan. What nearly every group
comes to is done here: all of its places are still there, and what was refused is unchanged. For anything else
(a commit that is gone, a recreated topic, an older format) the functions return None, and ``GroupMemory`` does it.
tests/unit/memory/test_seen_group.py checks that both come to the same.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

from retention_cli.memory.commit import Position
from retention_cli.memory.group import VERSION, GroupMemory
from retention_cli.memory.group_columns import (
    REFUSED,
    Columns,
    Document,
    are_numbers,
    are_refused,
    document_of,
    is_columns,
    live_of,
    nothing,
)
from retention_cli.memory.interface import RecalledGroup

_WIDTH_COUNTED: Final = 4

_NEW: Final = Document(0, 0, b"", {}, nothing(), b"", nothing())


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group that was read and is not judged yet: its commits now, and what was stored of it.

    ``ids`` are those of its topics that are known.
    """

    seen_ms: int
    stood_ms: int
    digest: bytes
    ids: Mapping[str, str]
    now: Columns
    before: Document


def stored(raw: bytes) -> Document | None:
    """Return what a document says, None if it has what only :class:`GroupMemory` knows how to use.

    Raises:
        ValueError: it is no document.
    """
    if is_columns(raw):
        return document_of(raw)
    try:
        data = json.loads(zlib.decompress(raw))
        if data.get("format") != VERSION or data["gone"] or data.get("doubted"):
            return None
        seen_ms, stood_ms, ids = data["seen"], data.get("stood"), data["ids"]  # older versions had no "stood"
        counted, opened, refused = data["counted"], data["open"], data["refused"]
        sound = all(map(are_numbers, (counted, opened, refused), (_WIDTH_COUNTED, 3, 3)))
        if not sound or type(stood_ms) is not int or not all(isinstance(one, str) for one in ids.values()):
            return None
        live = live_of(counted, opened, refused)
        return None if live is None else Document(seen_ms, stood_ms, bytes.fromhex(data["digest"]), ids, *live)
    except (zlib.error, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ValueError("a group's memory can't be read: it is damaged") from None


def recalled(one: Document) -> RecalledGroup:
    """Return the refused commits: nothing of the group is gone."""
    return RecalledGroup({}, one.refused())


def seen(
    before: Document | None, now: Columns | None, ids: Mapping[str, str], digest: bytes, now_ms: int
) -> SeenGroup | None:
    """Return a group's current commits beside what is stored of it; None if ``GroupMemory`` must be asked.

    Args:
        before: what is stored, as of when the group was last seen; None if it never was.
        now: its commits now, None if they are no columns.
        ids: the topics' current ids.
        digest: that of the commits.
        now_ms: our wall clock (Unix ms).
    """
    known = before or _NEW
    if now is None or any(topic in ids and ids[topic] != one for topic, one in known.ids.items()):
        return None  # or a topic was recreated
    then = known.live
    if same := then[:2] == now[:2]:  # the same places, as nearly always
        moved = None if _refused_anew(known, now) else then.offsets != now.offsets
    else:
        moved = before is None or _moved(known, now)
    if moved is None:
        return None
    at_ms = max(now_ms, known.seen_ms + 1)
    named = {topic: one for topic in now.counts if (one := ids.get(topic, known.ids.get(topic))) is not None}
    if same and known.ids == named:  # kept once
        known = known._replace(ids=named, live=Columns(now.counts, now.partitions, *then[2:]))
    stood_ms = known.stood_ms if known.seen_ms and not moved else at_ms
    return SeenGroup(at_ms, stood_ms, digest, named, now, known)


def _refused_anew(known: Document, now: Columns) -> bool:
    """Return whether a commit that was refused, on one of the same places, is another one now."""
    if REFUSED not in known.state:
        return False
    then, those = known.live, are_refused(known.state)
    return [*compress(zip(then.offsets, then.epochs, strict=True), those)] != [
        *compress(zip(now.offsets, now.epochs, strict=True), those)
    ]


def _moved(known: Document, now: Columns) -> bool | None:
    """Return whether any commit has moved; None if one is gone, or one that was refused has changed."""
    counted, opened, refused = known.rows()
    there = now.rows()
    if not all(topic in there for some in (counted, opened, refused) for topic in some):
        return None
    moved = False
    for topic, rows in there.items():
        offsets = {row[0]: row[1] for row in rows}
        then = {row[0]: row[1] for row in counted.get(topic, ())}
        then.update((row[0], row[1]) for row in opened.get(topic, ()))
        if topic in refused:
            commits = {row[0]: (row[1], row[2]) for row in rows}
            for partition, offset, epoch in refused[topic]:
                if commits.get(partition) != (offset, epoch):
                    return None
                then.pop(partition, None)
                del offsets[partition]
        if not then.keys() <= offsets.keys():
            return None  # a commit is gone
        moved = moved or then != offsets
    return moved


def expanded(one: SeenGroup) -> GroupMemory:
    """Return the same as a group's memory, to be judged and changed as any other.

    It continues what was stored when the group was read, whatever another process has stored since: both are merged
    when ours is saved.
    """
    before = one.before
    group = GroupMemory(seen_ms=before.seen_ms, ids=dict(before.ids), stood_ms=before.stood_ms)
    group.counted, group.open, group.refused = (
        {(topic, row[0]): Position(*row[1:]) for topic, rows in some.items() for row in rows} for some in before.rows()
    )
    group.update(one.now.rows(), one.ids, one.digest, one.seen_ms)
    return group
