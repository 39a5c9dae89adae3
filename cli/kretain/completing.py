"""Topic and group names for the shell, live from the cluster: within a second, or silently none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import typer

PATIENCE_S = 0.8


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with what was typed."""
    return _names(ctx, incomplete, lambda reader: [n for n, t in reader.metadata().topics.items() if not t.internal])


def complete_partitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return topics, and after a colon the topic's partitions."""
    topic, colon, _ = incomplete.partition(":")
    if not colon:
        return complete_topics(ctx, incomplete)

    def partitions(reader: Any) -> list[str]:
        found = reader.metadata([topic]).topics.get(topic)
        return [f"{topic}:{number}" for number in sorted(found.partitions)] if found is not None else []

    return _names(ctx, incomplete, partitions)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with what was typed."""
    return _names(ctx, incomplete, lambda reader: [g.name for g in reader.list_groups(reader.brokers())])


def complete_contexts(incomplete: str) -> list[str]:
    """Return the contexts of the configuration file."""
    try:
        from kretain.config import contexts

        return sorted(name for name in contexts() if name.startswith(incomplete))
    except Exception:  # noqa: BLE001  (a shell that completes must never be answered with an error)
        return []


def _names(ctx: typer.Context, incomplete: str, ask: Callable[[Any], list[str]]) -> list[str]:
    found: list[str] = []

    def work() -> None:
        try:
            with _reader(ctx) as reader:
                found.extend(sorted(name for name in ask(reader) if name.startswith(incomplete)))
        except Exception:  # noqa: BLE001  (see above: unreachable is silence)
            found.clear()

    # A name server or a broker that hangs must not hang the shell: the thread is left behind.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(PATIENCE_S)
    return [] if worker.is_alive() else list(found)


def _reader(ctx: typer.Context) -> Any:
    from pathlib import Path

    from kretain.config import resolve
    from kretain.options import Common
    from retention_cli.brokers.reader import ClusterReader

    def given(name: str) -> str | None:
        value = ctx.params.get(name) or os.environ.get(f"KRETAIN_{name.upper()}")
        return None if value is None else str(value)

    file = given("command_config")
    common = Common(
        bootstrap_server=given("bootstrap_server"), command_config=None if file is None else Path(file), context=given("context")
    )
    return ClusterReader(resolve(common).settings(), PATIENCE_S)
