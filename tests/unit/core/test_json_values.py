"""The quick reader of JSON gives what ``json.loads`` gives: nothing in a changed audit log looks better through it."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from retention_cli.core.json_values import loads

ODD = (
    *('{"a":1,"a":2}', '{"b":1,"a":0,"b":3}', "[NaN,Infinity,-Infinity]", "[1e400,-1e400,-0,-0.0,0.1,1E5]"),
    *('["\\ud800","\\ud83d\\ude00","\\udc00\\ud800"]', "[9223372036854775808,-9223372036854775809]", "[01]", "[1.]"),
    *("[.5]", "[+1]", '["a\tb"]', '["a\x00b"]', "{}\x00", "{} {}", "[1,]", '{"a":1,}', "\x0b[]", " \t\n\r[] ", "[-01]"),
    *('["\\/\\b\\x41"]', '["\\u12"]', "[1_000]", "[" * 300 + "]" * 300, "[" * 3_000 + "]" * 3_000, "nan", "['a']", ""),
    *(
        f"[{'9' * 4_000}]",
        f"[{'9' * 5_000}]",
        "[5e-324,1.7976931348623157e308,9007199254740993.0]",
        "/**/[]",
        "\ufeff{}",
    ),
)
RAW = (*(one.encode() for one in ODD), b'["\xff"]', b'["\xed\xa0\x80"]', "{}".encode("utf-16"), "[]".encode("utf-32"))


def said(text: str | bytes, *, quick: bool) -> str:
    """Return what a reader makes of a text, with its types and the order of keys."""
    try:
        return repr(loads(text) if quick else json.loads(text))
    except (ValueError, RecursionError):
        return "refused"


@pytest.mark.parametrize("text", [*ODD, *RAW], ids=range(len(ODD) + len(RAW)))
def test_json_is_read_as_by_the_standard_library(text: str | bytes) -> None:
    assert said(text, quick=True) == said(text, quick=False)


def test_changed_json_is_read_as_by_the_standard_library() -> None:
    draw = random.Random(1)
    for _ in range(20_000):
        text = bytearray(draw.choice(RAW)[:60])
        for _ in range(draw.randrange(1, 4)):
            n = draw.randrange(len(text) + 1)
            with suppress(IndexError):
                text[n : n + draw.randrange(2)] = draw.choice(
                    [b"", bytes([draw.choice(b'09-+.eE"\\{}[],: \x00\x7fuN\xc3')])]
                )
        assert said(bytes(text), quick=True) == said(bytes(text), quick=False), bytes(text)
