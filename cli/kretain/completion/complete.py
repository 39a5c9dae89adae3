"""Complete topic and group names from the live cluster: within a second, or silently with none.

``KRETAIN_COMPLETION_TIMEOUT`` (a duration) gives a distant cluster more time. Each function returns all
candidates: Typer leaves out those that do not begin with the typed text.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from kretain import BEGAN

ANSWER_S = 0.75
"""The time from the process's start to the answer (s), so that a TAB takes less than a second."""
LEAST_S = 0.45
"""The cluster's minimum share of that (s), even if start-up took long."""


def complete_topics(ctx: typer.Context) -> list[str]:
    """Return the topics."""
    return _from_cluster(
        ctx, lambda reader: sorted(name for name, topic in reader.metadata().topics.items() if not topic.internal)
    )


def complete_partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return topics, and after a colon the topic's partitions."""
    topic, colon, _ = incomplete.partition(":")
    if not colon:
        return complete_topics(ctx)

    def partitions(reader: Any) -> list[str]:
        found = reader.metadata([topic]).topics.get(topic)
        return [f"{topic}:{number}" for number in sorted(found.partitions)] if found is not None else []

    return _from_cluster(ctx, partitions)


def complete_groups(ctx: typer.Context) -> list[str]:
    """Return the groups."""
    return _from_cluster(ctx, lambda reader: sorted(one.name for one in reader.list_groups(reader.brokers())))


def complete_gone_groups(ctx: typer.Context) -> list[str]:
    """Return the groups that this machine's ledger remembers and that no longer exist."""

    def gone(reader: Any) -> list[str]:
        from retention_cli.core.consumers import plain_name
        from retention_cli.core.state_dir import cluster_folder
        from retention_cli.memory.ledger import Ledger
        from retention_cli.memory.ledger_file import FILE_NAME

        folder = cluster_folder(_settings(ctx).state_dir, reader.metadata([]).cluster_id)
        if not (folder / FILE_NAME).exists():
            return []
        there = {group.name for group in reader.list_groups(reader.brokers())}
        with Ledger(folder) as ledger:
            return [plain_name(name) for name, *_ in ledger.gone_groups(there, 0)]

    return _from_cluster(ctx, gone)


def complete_contexts(ctx: typer.Context) -> list[str]:
    """Return the contexts of the configuration file."""
    return _offered(lambda: sorted(ctx.obj().contexts()))


def complete_runs(ctx: typer.Context) -> list[str]:
    """Return the runs in this machine's audit logs, the newest first."""
    from retention_cli.trim.history import read_history

    return _offered(lambda: (one.run for one in reversed(read_history(_settings(ctx).state_dir))))


def complete_codes() -> list[str]:
    """Return the reason codes."""
    from kretain.texts import explanations

    return list(explanations())


def complete_recipes() -> list[str]:
    """Return the recipes of ``kretain policy new``."""
    from kretain.texts import RECIPES

    return list(RECIPES)


def complete_live_keys() -> list[str]:
    """Return the keys that the policy topic may set."""
    from retention_cli.policy.schema import LIVE_KEYS

    return sorted(LIVE_KEYS)


def complete_live_pairs() -> list[str]:
    """Return those keys, each with the ``=`` behind which its value stands."""
    return [f"{key}=" for key in complete_live_keys()]


def complete_clusters(ctx: typer.Context) -> list[str]:
    """Return the clusters of the fleet file on the command line."""
    from retention_cli.policy.fleet_file import load_fleet

    file = ctx.params.get("fleet") or os.environ.get("KRETAIN_FLEET")
    return [] if file is None else _offered(lambda: [one.name for one in load_fleet(Path(file)).entries])


def _offered(names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that a shell can offer; none if they can't be read."""
    try:  # the shell takes each line as a name
        return [name for name in names() if name.isprintable()]
    except Exception:  # noqa: BLE001  (completion must never answer with an error)
        return []


def _from_cluster(ctx: typer.Context, ask: Callable[[Any], list[str]]) -> list[str]:
    """Return what the cluster answers in time, else nothing."""
    found: list[str] = []

    def names() -> list[str]:
        from retention_cli.brokers.reader import ClusterReader

        with ClusterReader(_settings(ctx).settings(), _patience()) as reader:
            return ask(reader)

    # A name server or a broker that hangs must not block the shell: the thread is abandoned.
    worker = threading.Thread(target=lambda: found.extend(_offered(names)), daemon=True)
    worker.start()
    worker.join(_patience())
    return [] if worker.is_alive() else list(found)


def _settings(ctx: typer.Context) -> Any:
    """Return the settings of the command typed so far; ``obj`` of the context is the configuration."""
    return ctx.obj().of_typed(ctx.params)


def _patience() -> float:
    given = os.environ.get("KRETAIN_COMPLETION_TIMEOUT")
    if given is not None:
        from retention_cli.core.units import UnitError, parse_duration_ms

        with contextlib.suppress(UnitError):
            return parse_duration_ms(given) / 1000
    return max(LEAST_S, ANSWER_S - (time.monotonic() - BEGAN))
