"""Read the positions that a command prints (F7)."""

from __future__ import annotations

from retention_cli.core.printable import plain
from retention_cli.core.subprocesses import CommandError, output_of
from retention_cli.observe.floors.sources.interface import Consumer, Consumers, Reach, SourceError
from retention_cli.observe.floors.sources.stored import MAX_BYTES, check_age, read_positions
from retention_cli.policy.settings import FloorSource


def read(source: FloorSource, reach: Reach) -> Consumers:
    """Run the command and return the positions that it prints.

    What it writes to stderr is not shown: it may hold a secret.

    Args:
        source: ``command`` is the program and its arguments, ``place`` the folder that it runs in.
        reach: for our wall clock.

    Raises:
        SourceError: it can't be run, fails, takes too long, or prints no positions that can be used.
    """
    try:
        content = output_of(source.command, source.timeout_ms / 1000, MAX_BYTES, source.place or None)
    except CommandError as error:
        who = plain(source.command[0]) if str(error).startswith("can't") else "the command"
        raise SourceError(f"{who} {error}") from None
    at_ms, positions = read_positions(content)
    if at_ms is not None:
        check_age(at_ms, reach.reader.clock.wall_ms(), source.max_age_ms)
    return {source.name: Consumer(positions)}
