"""kretain's own topics, on the screen and for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from kretain.options.common import Output
from kretain.render import data
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from retention_cli.memory.topics.make import Initialized

FORMAT = "kretain.init/v1"
COLUMNS = ("topic", "outcome", "partitions", "replicas", "problem")

_SAID = {"made": "made", "there": "was there", "wrong": "was there, and is wrong", "missing": "would be made"}


def print_topics(cluster_id: str, bootstrap: str, topics: Sequence[Initialized], output: Output) -> None:
    """Print a row per topic."""
    head = {"format": FORMAT, "cluster": {"id": cluster_id, "bootstrap": bootstrap}}
    rows = [
        {
            "topic": one.topic,
            "outcome": one.outcome,
            "partitions": one.partitions,
            "replicas": one.replicas,
            "problem": one.problem,
        }
        for one in topics
    ]
    match output:
        case Output.json:
            data.print_json(head, "topics", rows)
        case Output.yaml:
            data.print_yaml({**head, "topics": rows})
        case Output.csv:
            data.print_csv(COLUMNS, rows)
        case Output.table:
            screen.print_table(
                (
                    Column("topic", whole=True),
                    Column("outcome"),
                    Column("partitions", "right"),
                    Column("replicas", "right"),
                ),
                [(one.topic, _SAID[one.outcome], str(one.partitions), str(one.replicas)) for one in topics],
                ["red" if one.problem else None for one in topics],
            )
