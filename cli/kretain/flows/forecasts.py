"""Forecast a cluster by one policy, and by others to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kretain.config import Resolved
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.core.progress import Progress
    from retention_cli.forecast.steady import Terms
    from retention_cli.forecast.value import Forecast
    from retention_cli.policy.selection import Selection


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
