"""Checks for rows that no scan writes into an inventory: each row alone, and compared with the row before it."""

from __future__ import annotations

from typing import Any, NamedTuple

from retention_cli.core.extras import arrow
from retention_cli.disks.inventory.table import COLUMNS


class Flaw(NamedTuple):
    """A row that no scan writes, and what is wrong with it."""

    row: int
    text: str


def lacking(table: Any) -> Flaw | None:
    """Return the first column with nulls that may have none; None if there is no such column."""
    for name, _, null in COLUMNS:
        if not null and table[name].null_count:
            return Flaw(0, f"{table[name].null_count:,} rows have no {name}")
    return None


def wrong(table: Any, broker: int) -> Flaw | None:
    """Return an impossible row, and what is wrong with it; None if there is none.

    Args:
        table: rows without forbidden nulls (:func:`lacking`).
        broker: the broker id that the rows must have.
    """
    import numpy as np

    if not len(table):
        return None
    numbers = {
        name: table[name].to_numpy() for name in ("broker", "partition", "base_offset", "bytes", "log_bytes", "mtime")
    }
    base, closed = numbers["base_offset"], ~table["active"].to_numpy(zero_copy_only=False)
    following, known = _ends(table)
    for bad, what in (
        (numbers["broker"] != broker, f"is of another broker than {broker}"),
        (numbers["partition"] < 0, "has a negative partition"),
        (base < 0, "has a negative base offset"),
        (known & (following < base), "ends before it begins"),
        ((numbers["bytes"] < 0) | (numbers["log_bytes"] < 0), "has a negative size"),
        (closed & (numbers["bytes"] < numbers["log_bytes"]), "takes less than its own log file"),
    ):
        if bad.any():
            return Flaw(int(np.argmax(bad)), what)
    return None


def disordered(table: Any, begins: Any) -> Flaw | None:
    """Return a row that can't follow the row before it, and what is wrong; None if there is none.

    Args:
        table: rows that are possible by themselves (:func:`wrong`).
        begins: the numbers of the rows that begin a replica.
    """
    import numpy as np

    base = table["base_offset"].to_numpy()
    following, known = _ends(table)
    inside = np.ones(len(base), dtype=bool)
    inside[begins] = False
    after = np.flatnonzero(inside)  # rows that follow a row of the same replica
    before, ends, known = base[after - 1], following[after - 1], known[after - 1]
    for bad, what in (
        (base[after] <= before, "is there twice or out of order"),
        (known & (ends > base[after]), "begins before the one before it ends"),
        (known & (ends < base[after]), "begins behind where the one before it ends"),
    ):
        if bad.any():
            return Flaw(int(after[np.argmax(bad)]), what)
    return None


def starts(table: Any) -> Any:
    """Return the numbers of the rows that begin another dir, topic or partition. Texts must be dictionaries."""
    import numpy as np

    changed = np.zeros(len(table), dtype=bool)
    if len(table):
        changed[0] = True
    for name in ("dir", "topic"):
        codes = table[name].unify_dictionaries().combine_chunks()
        codes = codes.chunk(0) if hasattr(codes, "num_chunks") else codes
        numbers = codes.indices.to_numpy()
        changed[1:] |= numbers[1:] != numbers[:-1]
    partitions = table["partition"].to_numpy()
    changed[1:] |= partitions[1:] != partitions[:-1]
    return np.flatnonzero(changed)


def row_name(table: Any, number: int) -> str:
    """Return a row's name for messages: topic, partition and offset."""
    cells = {name: table[name][number].as_py() for name in ("topic", "partition", "base_offset")}
    return f"{cells['topic']}-{cells['partition']} at offset {cells['base_offset']:,}"


def _ends(table: Any) -> tuple[Any, Any]:
    """Return the next offsets, and a mask of those that are known."""
    pc = arrow("pyarrow.compute")
    column = table["next_offset"]
    return pc.fill_null(column, -1).to_numpy(), pc.is_valid(column).to_numpy(zero_copy_only=False)
