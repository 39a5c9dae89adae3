"""Print a topic's effective settings, with the origin of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from retention_cli.core.units import format_duration, format_time
from retention_cli.memory.topics.policy import Changed
from retention_cli.policy.live import POLICY_TOPIC
from retention_cli.policy.live_edit import LiveList, LiveRow
from retention_cli.policy.model import LIVE, NOT_READ, Policy
from retention_cli.policy.settings import Origin, Settings

FORMAT = "kretain.settings/v1"
COLUMNS = ("key", "value", "origin")
LIVE_FORMAT = "kretain.live/v1"
LIVE_COLUMNS = ("topic", "key", "value", "partition", "offset", "counts", "why_not")
CHANGED = "kretain.live-change/v1"
_DEFAULTS = {
    "retention.commitoffset.enable": False,
    "retention.ms": None,
    "unconsumed": "hold",
    "compacted": "skip",
    "allow.ancient": False,
    "archive": None,
    "hold": None,
}


def print_settings(
    topic: str, origins: Mapping[str, Origin], settings: Settings, policy: Policy, output: Output
) -> None:
    """Print a row per key: its value, and its origin: file and line, flag or default."""
    rows = [{"key": key, **_shown(origin, policy, topic)} for key, origin in origins.items() if key != "match"]
    given = {row["key"] for row in rows}
    rows += [{"key": key, "value": value, "origin": "default"} for key, value in _DEFAULTS.items() if key not in given]
    if "groups.require" not in given:
        rows.append(
            {
                "key": "groups.require",
                "value": list(settings.require_groups),
                "origin": _top(policy, policy.groups.require),
            }
        )
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
                (Column("key"), Column("value"), Column("from")),
                [(str(row["key"]), _value(str(row["key"]), row["value"]), str(row["origin"])) for row in rows],
                ["dim" if row["origin"] == "default" else None for row in rows],
            )


def print_changed(done: Changed, output: Output) -> None:
    """Print the content of a topic's new message, and its offset in the policy topic."""
    row = {"topic": done.topic, "partition": done.partition, "offset": done.offset}
    match output:
        case Output.json:
            data.print_jsonl([{"format": CHANGED, **row, "settings": done.values}])
        case Output.yaml:
            data.print_yaml({"format": CHANGED, **row, "settings": done.values})
        case Output.csv:
            rows = [{**row, "key": key, "value": value} for key, value in (done.values or {}).items()]
            data.print_csv(("topic", "key", "value", "partition", "offset"), rows)
        case Output.table:
            place = f"{POLICY_TOPIC}-{done.partition} offset {done.offset:,}"
            if done.values is None:
                screen.say(f"{done.topic}: nothing is set any more ({place}).")
            else:
                values = ", ".join(f"{key} = {_plain(value)}" for key, value in sorted(done.values.items()))
                screen.say(f"{done.topic}: {values} ({place}).")


def print_live(cluster_id: str, bootstrap: str, found: LiveList, output: Output) -> None:
    """Print a row per setting in the policy topic, and its problems."""
    rows = [
        {
            "topic": one.topic,
            "key": one.key,
            "value": one.value,
            "partition": one.partition,
            "offset": one.offset,
            "counts": one.counts,
            "why_not": one.why_not,
        }
        for one in found.rows
    ]
    problems = [{"code": one.code, "text": one.text} for one in found.problems]
    head = {"format": LIVE_FORMAT, "cluster": {"id": cluster_id, "bootstrap": bootstrap}, "problems": problems}
    match output:
        case Output.json:
            data.print_json(head, "settings", rows)
        case Output.yaml:
            data.print_yaml({**head, "settings": rows})
        case Output.csv:
            data.print_csv(LIVE_COLUMNS, rows)
            for one in found.problems:
                screen.warn(one.text)
        case Output.table:
            screen.print_table(
                (
                    Column("topic"),
                    Column("key"),
                    Column("value"),
                    Column("offset", "right"),
                    Column("counts?"),
                ),
                [(one.topic, one.key, _plain(one.value), f"{one.offset:,}", _counts(one)) for one in found.rows],
                ["dim" if one.counts is False else None for one in found.rows],
            )
            if found.problems:
                screen.heading("Problems")
                for one in found.problems:
                    screen.bullet(one.text, "magenta")


def _counts(one: LiveRow) -> str:
    if one.counts is None:
        return "?"
    return "counts" if one.counts else f"no: {one.why_not}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(origin: Origin, policy: Policy, topic: str) -> dict[str, Any]:
    """Return a setting's value and its origin; a setting in the policy topic may have no value."""
    if origin.value is not LIVE:
        return {"value": origin.value, "origin": origin.place}
    if policy.live.unread is not None:
        said = "not read" if policy.live.unread is NOT_READ else "can't be read"
    else:
        said = "held" if topic in policy.live.unsettled else "not set"
    return {"value": f"cluster ({said})", "origin": origin.place}


def _top(policy: Policy, value: tuple[str, ...]) -> str:
    return f"{policy.source} (groups.require)" if value else "default"


def _value(key: str, value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if key == "log.retention.min.timestamp" and isinstance(value, int):
        return f"{format_time(value)} ({value})" if value else "off (0)"
    if key == "retention.ms" and value == -1:
        return "off (-1)"
    if isinstance(value, int) and key.startswith("retention."):
        return format_duration(value)
    return str(value)
