"""Which broker coordinates a group, and requests of a test's own to it."""

from __future__ import annotations

from typing import Any

from tests.support.world import reader_for, wait_until


def coordinator_of(bootstrap: str, group: str) -> int:
    """Wait until a group has a coordinator; return that broker."""
    found: dict[str, int] = {}

    def known() -> bool:
        with reader_for(bootstrap) as reader:
            found.update(reader.coordinators([group]))
        return group in found

    wait_until(known, f"the coordinator of {group}")
    return found[group]


def ask_coordinator(bootstrap: str, group: str, request: Any) -> Any:
    """Send a request to a group's coordinator; return its answer."""
    coordinator = coordinator_of(bootstrap, group)
    with reader_for(bootstrap) as reader:
        return reader.wire.run(reader.wire.ask, request, coordinator)
