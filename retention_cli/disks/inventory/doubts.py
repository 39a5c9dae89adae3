"""What no scan writes into an inventory: rows doubted one by one, and beside the row before them."""

from __future__ import annotations

from typing import Any, Final

from retention_cli.core.extras import arrow
from retention_cli.disks.inventory.table import COLUMNS

DISORDER: Final = "is there twice or out of order"
OVERLAP: Final = "begins before the one before it ends"
GAP: Final = "begins behind where the one before it ends"


def lacking(table: Any) -> str | None:
    """Say which column has nulls that must have none."""
    for name, _, null in COLUMNS:
        if not null and table[name].null_count:
            return f"{table[name].null_count:,} rows have no {name}"
    return None


def wrong(table: Any, broker: Any) -> tuple[int, str] | None:
    """Return the number of a row that can't be, and what is wrong with it.

    Args:
        table: rows that lack nothing.
        broker: whose they are; of each row, where it is an array.
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
    """Return the number of a row that does not fit behind the one before it, and what is wrong with it.

    Args:
        table: rows that are not wrong by themselves.
        begins: the numbers of those that begin a replica.
    """
    import numpy as np

    base = table["base_offset"].to_numpy()
    following, known = _ends(table)
    inside = np.ones(len(base), dtype=bool)
    inside[begins] = False
    same = np.flatnonzero(inside)  # rows that have one of the same replica before them
    if (bad := same[base[same] <= base[same - 1]]).size:
        return int(bad[0]), DISORDER
    if (bad := same[known[same - 1] & (following[same - 1] > base[same])]).size:
        return int(bad[0]), OVERLAP
    if (bad := same[known[same - 1] & (following[same - 1] < base[same])]).size:
        return int(bad[0]), GAP
    return None


def starts(table: Any) -> Any:
    """Return the numbers of the rows that begin another dir, topic or partition. Texts are dictionaries."""
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
    """Name a row for people."""
    cells = {name: table[name][number].as_py() for name in ("topic", "partition", "base_offset")}
    return f"{cells['topic']}-{cells['partition']} at offset {cells['base_offset']:,}"


def _ends(table: Any) -> tuple[Any, Any]:
    """Return the next offsets, and which are known."""
    pc = arrow("pyarrow.compute")
    column = table["next_offset"]
    return pc.fill_null(column, -1).to_numpy(), pc.is_valid(column).to_numpy(zero_copy_only=False)
