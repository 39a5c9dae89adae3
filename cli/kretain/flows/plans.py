"""Make, save and read the plan of one cluster, note what is new about it, and forecast it.

The commands and the Python API share this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kretain.config import Resolved
from kretain.options.common import now_ms
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.files import FileError, atomic_path, write_atomic
from retention_cli.core.progress import Progress
from retention_cli.core.signing import private_key_at
from retention_cli.core.state_dir import StateError, cluster_folder, opened
from retention_cli.engines.fleet.plan import FleetPlan, fleet_lines
from retention_cli.plan.approval import requested
from retention_cli.plan.make import PlanInputs, PlanJob, Planner
from retention_cli.plan.value import Plan, plan_lines
from retention_cli.policy.selection import Selection
from retention_cli.state.memories import Memories
from retention_cli.trim.history import past_day
from retention_cli.trim.narrow import of_partitions

if TYPE_CHECKING:  # only a forecast needs these
    from retention_cli.forecast.steady import Terms
    from retention_cli.forecast.value import Forecast

NOTES_FILE: Final = "notes.json"
_DAY_MS: Final = 86_400_000
_LONGEST: Final = 1 << 20
"""No more of the file is read, so that a longer one is no JSON and ignored. It has 30 bytes per note."""


def plan_now(
    settings: Resolved,
    reader: ClusterReader,
    selection: Selection,
    planner: Planner,
    memories: Memories,
    progress: Progress,
    observed: Callable[[PlanInputs, int], None] | None = None,
) -> Plan:
    """Return the plan of one cluster as of now.

    Args:
        settings: the state directory, whose audit log knows what was trimmed in the last 24 hours (G6).
        reader: the cluster, opened.
        selection: the policy and the chosen topics.
        planner: the engine, of :func:`kretain.flows.spark.planner`.
        memories: the ledgers of clusters; what is seen is saved in them.
        progress: receives reports.
        observed: called with what the plan is made of, with what groups have committed, and the time decided for.

    Raises:
        BrokerError, PolicyError, NothingMatchesError: see :data:`retention_cli.plan.make.Planner`.
    """
    now, limits = now_ms(), selection.policy.limits
    return planner(
        PlanJob(
            reader,
            selection,
            now,
            lambda cluster: past_day(settings.state_dir, cluster, now, limits),
            memories,
            progress=progress,
            observed=None if observed is None else lambda inputs: observed(inputs, now),
            with_seen=observed is not None,
        )
    )


def named_alone(settings: Resolved, plan: Plan, selection: Selection) -> Plan:
    """Return the plan of those partitions alone that TOPIC:PARTITION arguments name; without these, the plan itself.

    Raises:
        NothingMatchesError: the plan has no such partition.
    """
    return of_partitions(
        plan, selection, lambda: past_day(settings.state_dir, plan.cluster_id, now_ms(), selection.policy.limits)
    )


def signed(made: Plan, key: Path | None) -> Plan:
    """Return the plan, signed by its requester with the key in this file; without one, the plan itself.

    Raises:
        KeyRefusedError: the key can't be used.
    """
    return made if key is None else requested(made, private_key_at(key))


def save_plan(made: Plan | FleetPlan, out: Path) -> None:
    """Save a plan: Parquet if the file is called ``.parquet``, else JSON. The file is complete, or not there.

    Raises:
        FileError: it can't be written.
        MissingPartError: it is to be Parquet, and pyarrow is not installed.
    """
    if out.suffix == ".parquet":
        from retention_cli.engines.fleet.saved import write_fleet
        from retention_cli.plan.saved import write_plan

        with atomic_path(out) as scratch:
            if isinstance(made, FleetPlan):
                write_fleet(scratch, made)
            else:
                write_plan(scratch, made)
    else:
        write_atomic(out, fleet_lines(made) if isinstance(made, FleetPlan) else plan_lines(made))


def read_saved(path: Path, cluster: str | None) -> Plan:
    """Read a saved plan: a cluster's own, or that of the ``cluster`` of this name from a fleet's.

    Raises:
        SavedPlanError: it is not an executable plan; the text names the place.
        MissingPartError: it is Parquet, and pyarrow is not installed.
    """
    from retention_cli.engines.fleet.saved import read_one
    from retention_cli.plan.saved import read_plan

    return read_plan(path) if cluster is None else read_one(path, cluster)


def forecasts(
    settings: Resolved, reader: ClusterReader, chosen: Sequence[Selection], terms: Terms, progress: Progress
) -> list[Forecast]:
    """Return a forecast per selection. Groups that stood before count by the first one's ledger."""
    from retention_cli.forecast.reading import groups_before, read_forecast

    stood = groups_before(settings.memories(reader, chosen[0].policy.state), reader.metadata([]).cluster_id)
    return [
        read_forecast(
            reader,
            selection,
            terms,
            memories=settings.memories(reader, selection.policy.state),
            before=stood,
            state_dir=settings.state_dir,
            progress=progress,
        )
        for selection in chosen
    ]


@contextlib.contextmanager
def once_a_day(state_dir: Path, cluster_id: str, now_ms: int) -> Iterator[Callable[[str], bool]]:
    """Yield a function that returns whether a note was not printed about this cluster in the last 24 hours.

    Each note that it is asked about counts as printed. If the state directory cannot be read or written, notes are
    printed again, and nothing else changes.
    """
    shown: dict[str, int] = {}
    with (
        contextlib.suppress(OSError, ValueError, RecursionError, StateError),
        opened(cluster_folder(state_dir, cluster_id) / NOTES_FILE, os.O_RDONLY) as handle,
    ):
        found = json.loads(os.read(handle, _LONGEST))
        if isinstance(found, dict):
            shown = {key: at for key, at in found.items() if isinstance(at, int) and 0 <= now_ms - at < _DAY_MS}
    before = dict(shown)

    def is_new(text: str) -> bool:
        return (
            shown.setdefault(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16], now_ms) == now_ms
        )

    yield is_new
    if shown != before:
        with contextlib.suppress(FileError, StateError):
            write_atomic(cluster_folder(state_dir, cluster_id) / NOTES_FILE, [json.dumps(shown)], 0o600)
