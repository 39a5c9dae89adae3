"""Bytes changed at random: flipped, cut, doubled, spliced, and with what parsers stumble over put in."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final

STUMBLES: Final = (
    *(b"", b"\x00", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", "\u202e".encode(), b"\x1b[2J", b"\r\n", b"\t"),
    *(b"-1", b"0", b"9" * 400, b"1e999", b"-9223372036854775809", b"NaN", b"0x10", b"1_000", b"null", b"true"),
    *(b"[" * 300, b"{" * 300, b'{"a":' * 300, b"- " * 300, b"&a [*a, *a]", b"<<: *a", b"!!python/object:os.system"),
    *(
        b"9999-12-31T23:59:59Z",
        b"0001-01-01T00:00:00+23:59",
        b"../../x",
        b"re:(a+)+$",
        b"re:(",
        b"*",
        b"\\u00",
        b"${x}",
    ),
)
_NUMBER: Final = re.compile(rb"-?\d+")


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds with one to six changes."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 200)))
        match chance.randrange(8):
            case 0 if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case 1:
                data[at:end] = b""
            case 2:
                data[at:at] = data[at:end] * chance.choice((1, 2, 50))
            case 3:
                data[at:at] = chance.choice(STUMBLES)
            case 4:
                data[at:end] = chance.randbytes(end - at)
            case 5:
                other = chance.choice(seeds)
                data[at:] = other[chance.randrange(len(other) + 1) :]
            case 6 if numbers := list(_NUMBER.finditer(bytes(data))):
                one = chance.choice(numbers)
                data[one.start() : one.end()] = chance.choice(STUMBLES)
            case 7:
                lines = bytes(data).splitlines(keepends=True)
                chance.shuffle(lines)
                data = bytearray(b"".join(lines))
    return bytes(data)
