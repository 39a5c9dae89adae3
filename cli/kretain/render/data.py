"""Rows for scripts: JSON, JSON lines, YAML and CSV."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kretain.reach import complete, complete_json, completed
from kretain.system import stdio
from retention_cli.core.printable import printable
from retention_cli.plan.value import json_lines

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_HIDDEN: Final = re.compile(r"[\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+")
"""C1, bidirectional overrides and other unprintable characters, which JSON's own escapes leave as they are."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def write_json(parts: Iterable[str]) -> None:
    """Write JSON to stdout; if stdout is not UTF-8, escape all but ASCII, so that it is still valid JSON."""
    escape = _HIDDEN if stdio.is_utf8() else _NOT_ASCII
    for part in map(complete_json, stdio.while_heard(parts)):
        sys.stdout.write(part if part.isascii() else escape.sub(_escaped, part))


def _escaped(some: re.Match[str]) -> str:
    return json.dumps(some[0])[1:-1]


def print_json(head: Mapping[str, Any], key: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object whose ``key`` lists the rows."""
    write_json(json_lines(head, key, rows))


def print_jsonl(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object per line."""
    write_json(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def print_yaml(value: Any) -> None:
    """Print one YAML document."""
    import yaml

    value = completed(value)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=stdio.is_utf8(), width=1000)
    if _HIDDEN.search(text) is not None:
        text = yaml.dump(value, Dumper=dumper, sort_keys=False, width=1000)
    sys.stdout.write(text)


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a heading and one line per row; lists of reasons become text, absent values empty cells.

    Unprintable characters are escaped, and a cell that a spreadsheet would treat as a formula is prefixed with ``'``.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in stdio.while_heard(rows):
        writer.writerow([_cell(row.get(column)) for column in columns])


def _told(one: Any) -> str:
    """Return an element of a list: a reason as ``code: text``, another object as its values."""
    if not isinstance(one, dict):
        return str(one)
    if one.keys() >= {"code", "text"}:
        return f"{one['code']}: {one['text']}"
    return " ".join(_told(value) for value in one.values() if value is not None)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        value = "; ".join(_told(one) for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        shown = stdio.escaped(
            printable(complete(value)), getattr(sys.stdout, "encoding", None) or "utf-8"
        )  # a name stays unique
        return f"'{shown}" if value.startswith(_FORMULA) else shown
    return "" if value is None else value
