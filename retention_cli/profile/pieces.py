"""Convert a piece of a partition's hours to bytes and back, to send it between processes. Pure."""

from __future__ import annotations

import dataclasses
import json
import zlib
from typing import Final

from retention_cli.core.extras import numpy
from retention_cli.profile.front import Front
from retention_cli.profile.hours import Frame, PartitionHours, Row

_FIELDS: Final = len(dataclasses.fields(Row))


class BrokenPieceError(Exception):
    """The bytes are not a valid piece of a profile."""


def to_bytes(piece: PartitionHours) -> bytes:
    """Return a piece as compressed bytes: a line of JSON, then its rows and front as little-endian int64."""
    np = numpy()
    front = piece.front
    steps = [] if front is None else front.steps
    head = {
        "frame": dataclasses.asdict(piece.frame),
        "start": piece.start,
        "end": piece.end,
        "max_ms": piece.max_ms,
        "exact": piece.exact,
        "rows": len(piece.rows),
        "front": None if front is None else [front.length, front.known_to_ms],
    }
    rows = [[key, *dataclasses.astuple(row)] for key, row in piece.rows.items()]
    parts = [
        np.array(rows, "<i8").reshape(-1),
        *(values.astype("<i8") for values, _ in steps),
        *(counts.astype("<i8") for _, counts in steps),
    ]
    return zlib.compress(json.dumps(head).encode() + b"\n" + b"".join(part.tobytes() for part in parts), 1)


def from_bytes(raw: bytes) -> PartitionHours:
    """Return the piece that :func:`to_bytes` wrote.

    Raises:
        BrokenPieceError: the bytes are not a valid piece.
    """
    np = numpy()
    try:
        head_text, _, content = zlib.decompress(raw).partition(b"\n")
        head = json.loads(head_text)
        numbers = np.frombuffer(content, "<i8").astype(np.int64)
        count = head["rows"]
        cut = count * (_FIELDS + 1)
        rows = {row[0]: Row(*row[1:]) for row in numbers[:cut].reshape(count, _FIELDS + 1).tolist()}
        front = None
        if head["front"] is not None:
            length, known_to_ms = head["front"]
            values, counts = numbers[cut:].reshape(2, length)
            steps = [(values, counts)] if length else []
            front = Front(steps, length, known_to_ms)
        return PartitionHours(
            Frame(**head["frame"]), head["start"], head["end"], rows, head["max_ms"], front, head["exact"]
        )
    except (zlib.error, ValueError, TypeError, KeyError):
        raise BrokenPieceError("this is no piece of a profile, or it is damaged") from None
