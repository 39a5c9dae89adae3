"""Consumer groups, on the screen and for scripts."""

from __future__ import annotations

from typing import Any

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, number
from retention_cli.reports.groups import GroupList, GroupSummary

FORMAT = "kretain.groups/v1"
COLUMNS = ("group", "type", "protocol_type", "state", "counts", "topics", "partitions", "lag")


def print_groups(found: GroupList, output: Output) -> None:
    """Print a row per group."""
    rows = [_row(one) for one in found.groups]
    head = {
        "format": FORMAT,
        "cluster": {"id": found.cluster_id, "bootstrap": found.bootstrap},
        "complete": found.incomplete is None,
    }
    match output:
        case Output.json:
            data.print_json(head, "groups", rows)
        case Output.yaml:
            data.print_yaml({**head, "groups": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (
                    Column("group"),
                    Column("type"),
                    Column("state"),
                    Column("topics", "right"),
                    Column("partitions", "right"),
                    Column("lag", "right"),
                    Column("counts?"),
                ),
                [
                    (
                        one.name,
                        one.kind,
                        one.state or "?",
                        number(len(one.topics)),
                        number(one.partitions),
                        number(one.lag),
                        one.counts,
                    )
                    for one in found.groups
                ],
                [None if one.counts.startswith("counts") else "dim" for one in found.groups],
            )
            screen.say()
            counting = sum(one.counts.startswith("counts") for one in found.groups)
            screen.say(f"{count(len(rows), 'group')}, {counting:,} of them count.", "bold")


def _row(one: GroupSummary) -> dict[str, Any]:
    return {
        "group": one.name,
        "type": one.kind,
        "protocol_type": one.protocol_type,
        "state": one.state,
        "counts": one.counts,
        "topics": one.topics,
        "partitions": one.partitions,
        "lag": one.lag,
    }
