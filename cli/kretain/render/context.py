"""The contexts of the configuration file, on the screen and for scripts. Secrets are masked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from retention_cli.brokers.security.client_files import masked

FORMAT: Final = "kretain.contexts/v1"
COLUMNS: Final = ("context", "default", "bootstrap_server", "policy", "confirm")


def print_contexts(path: Path, contexts: Mapping[str, Mapping[str, Any]], default: str | None, output: Output) -> None:
    """Print a row per context."""
    rows: list[dict[str, Any]] = [
        {
            "context": name,
            "default": name == default,
            "bootstrap_server": _bootstrap(entry),
            "policy": None if entry.get("policy") is None else str(entry["policy"]),
            "confirm": entry.get("confirm"),
        }
        for name, entry in contexts.items()
    ]
    match output:
        case Output.json:
            data.print_json({"format": FORMAT}, "contexts", rows)
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "contexts": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            if not rows:
                screen.say(f"There are no contexts in {path}.", "bold")
                return
            screen.print_table(
                (Column("context", whole=True), Column("bootstrap server"), Column("policy"), Column("confirm")),
                [
                    (
                        f"{row['context']}{' (default)' if row['default'] else ''}",
                        row["bootstrap_server"] or "",
                        row["policy"] or "",
                        str(row["confirm"] or ""),
                    )
                    for row in rows
                ],
                ["bold" if row["default"] else None for row in rows],
            )


def print_context(path: Path, name: str, entry: Mapping[str, Any], output: Output) -> None:
    """Print what one context sets."""
    settings = {str(key): masked(str(key), str(value)) for key, value in (entry.get("settings") or {}).items()}
    plain = {key: str(value) for key, value in entry.items() if key != "settings"}
    if "bootstrap-server" in plain:
        plain["bootstrap-server"] = masked("bootstrap.servers", plain["bootstrap-server"])
    rows = [{"key": key, "value": value} for key, value in sorted({**plain, **_below("settings", settings)}.items())]
    match output:
        case Output.json:
            data.print_json({"format": FORMAT, "context": name}, "settings", rows)
        case Output.yaml:
            data.print_yaml({"format": FORMAT, "context": name, "settings": rows})
        case Output.csv:
            data.print_csv(("key", "value"), rows)
        case Output.table:
            screen.say(f"Context {name or '(none)'} of {path}", "bold")
            screen.say()
            screen.print_table((Column("key"), Column("value")), [(row["key"], row["value"]) for row in rows])


def _below(name: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}.{key}": value for key, value in values.items()}


def _bootstrap(entry: Mapping[str, Any]) -> str | None:
    given = entry.get("bootstrap-server") or (entry.get("settings") or {}).get("bootstrap.servers")
    return None if given is None else masked("bootstrap.servers", str(given))
