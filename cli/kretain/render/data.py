"""Rows for scripts: JSON, JSON lines, YAML and CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from retention_cli.plan import json_lines


def print_json(head: Mapping[str, Any], key: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object of which ``key`` lists the rows."""
    for part in json_lines(head, key, rows):
        sys.stdout.write(part)


def print_jsonl(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a JSON object a line."""
    for row in rows:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def print_yaml(value: Any) -> None:
    """Print one YAML document."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    yaml.dump(value, sys.stdout, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1000)


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a heading and a line a row; lists of reasons become text, absent values empty cells."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return "; ".join(f"{one['code']}: {one['text']}" if isinstance(one, dict) else str(one) for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value
