"""What kretain is set up with: contexts, a topic's settings, live settings, its own topics, and a diagnosis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kretain.errors import warn
from kretain.render.output import BLANK, Column, Line, Table, cluster_head, heading, joined, number, show
from retention_cli.brokers.security.client_files import masked
from retention_cli.core.units import count, format_duration, format_time
from retention_cli.policy.live import POLICY_TOPIC, LiveList
from retention_cli.policy.model import LIVE, NOT_READ, Policy
from retention_cli.policy.settings import Origin, Settings
from retention_cli.reports.doctor import Diagnosis, Verdict
from retention_cli.reports.policy_check import Findings
from retention_cli.state.own_topics import Changed, Initialized

DOCTOR_FORMAT: Final = "kretain.doctor/v1"
DOCTOR_COLUMNS: Final = ("check", "verdict", "text", "commands")
_CONTEXTS_FORMAT: Final = "kretain.contexts/v1"
_DEFAULTS: Final = {
    "retention.commitoffset.enable": False,
    "retention.ms": None,
    "unconsumed": "hold",
    "compacted": "skip",
    "allow.ancient": False,
    "archive": None,
    "hold": None,
}
_SIGNS: Final[dict[Verdict, tuple[str, str | None, str]]] = {
    "good": ("✓", None, "works"),
    "limited": ("!", "yellow", "works, but may hold more than needed"),
    "missing": ("✗", "bold red", "would hold or fail: see ✗ above"),
}
_OUTCOMES: Final = {
    "made": "created",
    "there": "exists",
    "wrong": "exists, not usable",
    "missing": "would be created",
}


def print_diagnosis(found: Diagnosis, output: str) -> None:
    """Print a row per check, then the verdict for each command."""
    commands = found.commands()
    show(
        output,
        {
            **cluster_head(DOCTOR_FORMAT, found.cluster_id, found.bootstrap),
            "platform": asdict(found.platform),
            "commands": commands,
        },
        "checks",
        [
            {"check": one.name, "verdict": one.verdict, "text": one.text, "commands": list(one.commands)}
            for one in found.checks
        ],
        lambda: [
            Table(
                (Column("", unbroken=True), Column("what", unbroken=True), Column("finding")),
                [(_SIGNS[one.verdict][0], one.name, one.text) for one in found.checks],
                [_SIGNS[one.verdict][1] for one in found.checks],
            ),
            heading("Commands"),
            *(
                Line(f"{_SIGNS[one][0]} {name:11} {_SIGNS[one][2]}", _SIGNS[one][1] or "green", 2)
                for name, one in commands.items()
            ),
        ],
        DOCTOR_COLUMNS,
    )


def print_own_topics(cluster_id: str, bootstrap: str, topics: Sequence[Initialized], output: str) -> None:
    """Print a row per topic of kretain's own."""
    show(
        output,
        cluster_head("kretain.init/v1", cluster_id, bootstrap),
        "topics",
        map(asdict, topics),
        lambda: [
            Table(
                (
                    Column("topic", unbroken=True),
                    Column("outcome"),
                    Column("partitions", "right"),
                    Column("replicas", "right"),
                ),
                [(one.topic, _OUTCOMES[one.outcome], str(one.partitions), str(one.replicas)) for one in topics],
                ["red" if one.problem else None for one in topics],
            )
        ],
        ("topic", "outcome", "partitions", "replicas", "problem"),
    )


def print_contexts(path: Path, contexts: Mapping[str, Mapping[str, Any]], default: str | None, output: str) -> None:
    """Print a row per context. Secrets are masked."""
    rows = [
        {
            "context": name,
            "default": name == default,
            "bootstrap_server": None if bootstrap is None else masked("bootstrap.servers", str(bootstrap)),
            "policy": None if entry.get("policy") is None else str(entry["policy"]),
            "confirm": entry.get("confirm"),
        }
        for name, entry in contexts.items()
        for bootstrap in (entry.get("bootstrap-server") or (entry.get("settings") or {}).get("bootstrap.servers"),)
    ]
    show(
        output,
        {"format": _CONTEXTS_FORMAT},
        "contexts",
        rows,
        lambda: [
            Table(
                (Column("context", unbroken=True), Column("bootstrap server"), Column("policy"), Column("confirm")),
                [
                    (
                        f"{row['context']}{' (default)' if row['default'] else ''}",
                        *(str(row[key] or "") for key in ("bootstrap_server", "policy", "confirm")),
                    )
                    for row in rows
                ],
                ["bold" if row["default"] else None for row in rows],
            )
            if rows
            else Line(f"No contexts in {path}.", "bold")
        ],
        ("context", "default", "bootstrap_server", "policy", "confirm"),
    )


def print_context(path: Path, name: str, entry: Mapping[str, Any], output: str) -> None:
    """Print what one context sets. Secrets are masked."""
    plain = {
        key: masked("bootstrap.servers", str(value)) if key == "bootstrap-server" else str(value)
        for key, value in entry.items()
        if key != "settings"
    }
    settings = {f"settings.{key}": masked(str(key), str(one)) for key, one in (entry.get("settings") or {}).items()}
    rows = sorted((plain | settings).items())
    show(
        output,
        {"format": _CONTEXTS_FORMAT, "context": name},
        "settings",
        [{"key": key, "value": value} for key, value in rows],
        lambda: [
            Line(f"Context {name or '(none)'} in {path}", "bold"),
            BLANK,
            Table((Column("key"), Column("value")), rows),
        ],
        ("key", "value"),
    )


def print_settings(topic: str, origins: Mapping[str, Origin], settings: Settings, policy: Policy, output: str) -> None:
    """Print a row per key: its value, and its origin: file and line, flag or default."""
    found: dict[str, tuple[Any, str]] = {
        **{key: (value, "default") for key, value in _DEFAULTS.items()},
        "groups.require": (
            list(settings.require_groups),
            f"{policy.source} (groups.require)" if policy.groups.require else "default",
        ),
        "lookup.scan.records": (settings.scan_records, "default"),
        **{key: (_shown(one, policy, topic), one.place) for key, one in origins.items() if key != "match"},
    }
    rows = [{"key": key, "value": value, "origin": origin} for key, (value, origin) in sorted(found.items())]
    show(
        output,
        {"format": "kretain.settings/v1", "topic": topic},
        "settings",
        rows,
        lambda: [
            Table(
                (Column("key"), Column("value"), Column("from")),
                [(row["key"], _value(row["key"], row["value"]), row["origin"]) for row in rows],
                ["dim" if row["origin"] == "default" else None for row in rows],
            )
        ],
        ("key", "value", "origin"),
    )


def _shown(origin: Origin, policy: Policy, topic: str) -> Any:
    """Return a setting's value; a setting in the policy topic may have none."""
    if origin.value is not LIVE:
        return origin.value
    if policy.live.unread is None:
        return "cluster (held)" if topic in policy.live.unsettled else "cluster (not set)"
    return "cluster (not read)" if policy.live.unread is NOT_READ else "cluster (can't be read)"


def _value(key: str, value: Any) -> str:
    match value:
        case None:
            return "off"
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict() if key == "labels":
            return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"
        case dict():
            return ", ".join(
                f"{name}: {_value('' if name == 'max.bytes' else f'retention.{name}', one)}"
                for name, one in value.items()
            )
        case int() if key == "log.retention.min.timestamp":
            return f"{format_time(value)} ({value})" if value else "off (0)"
        case -1 if key == "retention.ms":
            return "off (-1)"
        case int() if key.startswith("retention."):
            return format_duration(value)
    return str(value)


def print_changed(done: Changed, output: str) -> None:
    """Print the content of a topic's new message, and its offset in the policy topic."""
    place = {"topic": done.topic, "partition": done.partition, "offset": done.offset}
    row = {"format": "kretain.live-change/v1", **place, "settings": done.values, "dry_run": done.offset is None}
    where = (
        "dry run: nothing was written"
        if done.offset is None
        else f"{POLICY_TOPIC}-{done.partition} offset {done.offset:,}"
    )
    values = ", ".join(f"{key} = {_plain(value)}" for key, value in sorted((done.values or {}).items()))
    show(
        output,
        row,
        "",
        [row],
        lambda: [f"{done.topic}: {'no settings left' if done.values is None else values} ({where})."],
        ("topic", "key", "value", "partition", "offset"),
        [{**place, "key": key, "value": value} for key, value in (done.values or {}).items()],
    )


def print_checked(path: Path, entries: int, findings: Findings, output: str) -> None:
    """Print that a policy is valid, and what it reaches."""
    row = {
        "policy": str(path),
        "entries": entries,
        "topics": findings.managed,
        "never_touched": findings.skipped,
        "on_hold": findings.frozen,
    }
    text = joined(
        f"{count(entries, 'entry matches', 'entries match')} {count(findings.managed, 'topic')}"
        if findings.managed
        else count(entries, "entry", "entries"),
        findings.skipped and f"{findings.skipped:,} never touched (G5)",
        findings.frozen and f"{findings.frozen:,} on hold (G7)",
        by=", ",
    )
    show(
        output,
        {"format": "kretain.policy-check/v1"},
        "policies",
        [row],
        lambda: [f"{path}: OK: {text}."],
        tuple(row),
    )


def print_live(cluster_id: str, bootstrap: str, found: LiveList, output: str) -> None:
    """Print a row per setting in the policy topic, and its problems."""
    show(
        output,
        cluster_head("kretain.live/v1", cluster_id, bootstrap) | {"problems": [*map(asdict, found.problems)]},
        "settings",
        [asdict(one) for one in found.rows],
        lambda: [
            None if found.rows else Line("No live settings. Set one: kretain policy set TOPIC KEY=VALUE", "bold"),
            bool(found.rows)
            and Table(
                (Column("topic"), Column("key"), Column("value"), Column("offset", "right"), Column("counts?")),
                [
                    (
                        one.topic,
                        one.key,
                        _plain(one.value),
                        number(one.offset),
                        "?" if one.counts is None else "counts" if one.counts else f"no: {one.why_not}",
                    )
                    for one in found.rows
                ],
                ["dim" if one.counts is False else None for one in found.rows],
            ),
            heading("Problems") if found.problems else None,
            *(Line(one.text, "magenta", 2) for one in found.problems),
        ],
        ("topic", "key", "value", "partition", "offset", "counts", "why_not"),
    )
    warn(*(found.problems if output == "csv" else ()))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
