"""Checks for rows that no scan writes into an inventory: each row alone, and compared with the row before it."""

from __future__ import annotations

from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.disks.inventory.table import COLUMNS

DISORDER: Final = "is there twice or out of order"
OVERLAP: Final = "begins before the one before it ends"
GAP: Final = "begins behind where the one before it ends"


def lacking(table: Any) -> str | None:
    """Return an error text for the first column with nulls that may have none; None if there is no such column."""
    for name, _, null in COLUMNS:
        if not null and table[name].null_count:
            return f"{table[name].null_count:,} rows have no {name}"
    return None


def wrong(table: Any, broker: Any) -> tuple[int, str] | None:
    """Return the number of an impossible row, and what is wrong with it; None if there is none.

    Args:
        table: rows without forbidden nulls (:func:`lacking`).
        broker: the broker id that the rows must have; an array has one per row.
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
        (numbers["broker"] != broker, "is of another broker than {}"),
        (numbers["partition"] < 0, "has a negative partition"),
        (base < 0, "has a negative base offset"),
        (known & (following < base), "ends before it begins"),
        ((numbers["bytes"] < 0) | (numbers["log_bytes"] < 0), "has a negative size"),
        (closed & (numbers["bytes"] < numbers["log_bytes"]), "takes less than its own log file"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            return row, what.format(int(np.broadcast_to(broker, len(bad))[row]))
    return None


def disordered(table: Any, begins: Any) -> tuple[int, str] | None:
    """Return the number of a row that can't follow the row before it, and what is wrong; None if there is none.

    Args:
        table: rows that are possible by themselves (:func:`wrong`).
        begins: the numbers of the rows that begin a replica.
    """
    import numpy as np

    base = table["base_offset"].to_numpy()
    following, known = _ends(table)
    inside = np.ones(len(base), dtype=bool)
    inside[begins] = False
    same = np.flatnonzero(inside)  # rows that follow a row of the same replica
    if (bad := same[base[same] <= base[same - 1]]).size:
        return int(bad[0]), DISORDER
    if (bad := same[known[same - 1] & (following[same - 1] > base[same])]).size:
        return int(bad[0]), OVERLAP
    if (bad := same[known[same - 1] & (following[same - 1] < base[same])]).size:
        return int(bad[0]), GAP
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
