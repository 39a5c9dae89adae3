"""A diagnosis, on the screen and for scripts."""

from __future__ import annotations

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from retention_cli.reports.doctor import Diagnosis, Verdict

FORMAT = "kretain.doctor/v1"
COLUMNS = ("check", "verdict", "text", "commands")
_SIGNS: dict[Verdict, tuple[str, str]] = {
    "good": ("✓", "green"),
    "limited": ("!", "yellow"),
    "missing": ("✗", "bold red"),
}


def print_diagnosis(found: Diagnosis, output: Output) -> None:
    """Print a row per check, then the verdict for each command."""
    rows = [
        {"check": one.name, "verdict": one.verdict, "text": one.text, "commands": list(one.commands)}
        for one in found.checks
    ]
    head = {
        "format": FORMAT,
        "cluster": {"id": found.cluster_id, "bootstrap": found.bootstrap},
        "commands": found.commands(),
    }
    match output:
        case Output.json:
            data.print_json(head, "checks", rows)
        case Output.yaml:
            data.print_yaml({**head, "checks": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (Column("", whole=True), Column("what", whole=True), Column("finding")),
                [(_SIGNS[one.verdict][0], one.name, one.text) for one in found.checks],
                [_SIGNS[one.verdict][1] if one.verdict != "good" else None for one in found.checks],
            )
            screen.heading("Commands")
            for command, verdict in found.commands().items():
                sign, style = _SIGNS[verdict]
                words = {
                    "good": "works",
                    "limited": "works, and may hold more than it must",
                    "missing": "would hold or fail: see ✗ above",
                }
                screen.bullet(f"{sign} {command:11} {words[verdict]}", style)
