"""Rows for scripts: JSON, JSON lines, YAML and CSV."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kretain.system import stdio
from retention_cli.plan.value import json_lines

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


def write_json(parts: Iterable[str]) -> None:
    """Write JSON to stdout; where that is not UTF-8, with escapes for all but ASCII, so that it stays JSON."""
    plain = not stdio.is_utf8()
    for part in stdio.while_heard(parts):
        sys.stdout.write(_NOT_ASCII.sub(_escaped, part) if plain else part)


def _escaped(some: re.Match[str]) -> str:
    return json.dumps(some[0])[1:-1]


def print_json(head: Mapping[str, Any], key: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object of which ``key`` lists the rows."""
    write_json(json_lines(head, key, rows))


def print_jsonl(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON object a line."""
    write_json(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def print_yaml(value: Any) -> None:
    """Print one YAML document."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    yaml.dump(value, sys.stdout, Dumper=dumper, sort_keys=False, allow_unicode=stdio.is_utf8(), width=1000)


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a heading and a line a row; lists of reasons become text, absent values empty cells."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in stdio.while_heard(rows):
        writer.writerow([_cell(row.get(column)) for column in columns])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return "; ".join(f"{one['code']}: {one['text']}" if isinstance(one, dict) else str(one) for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value
