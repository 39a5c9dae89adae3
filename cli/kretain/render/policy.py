"""A topic's effective settings, with the origin of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kretain.options import Output
from kretain.render import data, screen
from kretain.render.screen import Column
from retention_cli.policy.model import Policy
from retention_cli.policy.settings import Origin, Settings
from retention_cli.units import format_duration

FORMAT = "kretain.settings/v1"
COLUMNS = ("key", "value", "origin")
_DEFAULTS = {
    "retention.commitoffset.enable": False,
    "retention.ms": None,
    "unconsumed": "hold",
    "compacted": "skip",
    "allow.ancient": False,
    "hold": None,
}


def print_settings(topic: str, origins: Mapping[str, Origin], settings: Settings, policy: Policy, output: Output) -> None:
    """Print a row per key: its value, and the file and line, flag or default that it comes from."""
    rows = [{"key": key, "value": origin.value, "origin": origin.place} for key, origin in origins.items() if key != "match"]
    given = {row["key"] for row in rows}
    rows += [{"key": key, "value": value, "origin": "default"} for key, value in _DEFAULTS.items() if key not in given]
    if "groups.require" not in given:
        rows.append({"key": "groups.require", "value": list(settings.require_groups), "origin": _top(policy, policy.groups.require)})
    if "lookup.scan.records" not in given:
        rows.append({"key": "lookup.scan.records", "value": settings.scan_records, "origin": "default"})
    rows.sort(key=lambda row: str(row["key"]))
    match output:
        case Output.json:
            data.print_json({"format": FORMAT, "topic": topic}, "settings", rows)
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "topic": topic, "settings": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (Column("key"), Column("value", wide=True), Column("from")),
                [(str(row["key"]), _value(str(row["key"]), row["value"]), str(row["origin"])) for row in rows],
                ["dim" if row["origin"] == "default" else None for row in rows],
            )


def _top(policy: Policy, value: tuple[str, ...]) -> str:
    return f"{policy.source} (groups.require)" if value else "default"


def _value(key: str, value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if key == "retention.ms" and value == -1:
        return "off (-1)"
    if isinstance(value, int) and key.startswith("retention."):
        return f"{format_duration(value)} ({value} ms)"
    return str(value)
