"""One partition in depth, as it was: the picture of ``explain``, from a run's evidence."""

from __future__ import annotations

from collections.abc import Sequence

from retention_cli.core.commands import kretain
from retention_cli.core.state_dir import StateError
from retention_cli.decide.decision import weigh
from retention_cli.evidence.checks import decided
from retention_cli.evidence.replay import Recorded, rows_about
from retention_cli.reports.explain import Explained


def explain_past(
    runs: Sequence[Recorded], topic: str, partition: int | None, run: str | None
) -> tuple[str, list[Explained]]:
    """Return a run's name, and a topic's partitions, or one of them, as its last recheck saw them.

    ``run`` None: the last of the runs that did.

    Raises:
        EvidenceError: a file is damaged.
        StateError: no run, or not that one, has evidence of it.
    """
    for one in reversed(runs):
        if (run is None or one.run == run) and (rows := rows_about(one, topic, partition)):
            return one.run, [
                Explained(row.facts, row.settings, weigh(row.facts, row.settings, row.now_ms), decided(row), row.now_ms)
                for row in rows
            ]
    about = topic if partition is None else f"{topic}:{partition}"
    which = "no run by then has" if run is None else f"run {run} has no"
    raise StateError(
        f"{which} evidence of {about}: {kretain('history', names=(about,))} lists the runs that trimmed it"
    )
