"""How old a disk's candidates are, in few steps: enough to tell which of them the walk can reach (R6). Pure.

Where candidates lie in slabs, each slab sums up its own, and the sums are joined: the walk then needs only the
candidates that are in reach.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from retention_cli.disks.solve.segments import Ints, add_up
from retention_cli.disks.solve.walk import narrow

EVERYTHING: Final = 2**63 - 1
"""An age that no candidate exceeds."""


class Steps(NamedTuple):
    """Columns of equal length, sorted by (disk, age): ``size_bytes`` more of a disk's candidates are at most so old.

    They are never more than there are: a step's age is that of the youngest candidate in it.
    """

    disk: Ints
    age: Ints
    size_bytes: Ints


def steps_of(disk: Ints, age: Ints, size_bytes: Ints, most: int) -> Steps:
    """Return candidates, or steps, as at most this many steps a disk, with equally many in each."""
    if not len(disk):
        return Steps(disk, age, size_bytes)
    order = _oldest_first(disk, age)
    disk, age, size = disk[order], age[order], size_bytes[order].astype(np.int64)
    first = np.flatnonzero(np.concatenate(([True], disk[1:] != disk[:-1])))
    counts = np.diff(np.append(first, len(disk)))
    step = np.arange(len(disk)) - np.repeat(first, counts)
    step //= np.repeat(-(-counts // most), counts)
    begins = np.flatnonzero(np.concatenate(([True], (disk[1:] != disk[:-1]) | (step[1:] != step[:-1]))))
    ends = np.append(begins[1:], len(disk)) - 1
    return Steps(disk[ends], age[ends], np.add.reduceat(size, begins))


def reach(steps: Steps, remaining: Ints) -> Ints:
    """Return, by disk number, an age that no candidate exceeds that the walk takes.

    Args:
        steps: all candidates of the disks.
        remaining: the bytes that each disk must lose.
    """
    found = np.full(len(remaining), EVERYTHING)
    if not len(steps.disk):
        return found
    order = _oldest_first(steps.disk, steps.age)
    disk, age, size = (column[order] for column in steps)
    upto = np.cumsum(size)
    first = np.flatnonzero(np.concatenate(([True], disk[1:] != disk[:-1])))
    upto -= np.repeat((upto - size)[first], np.diff(np.append(first, len(disk))))
    enough = np.flatnonzero(upto >= remaining[disk])
    np.minimum.at(found, disk[enough], age[enough])
    return found


def _oldest_first(disk: Ints, age: Ints) -> Ints:
    """Return an order by (disk, age), in which equals have no order."""
    order = np.argsort(age)
    return order[np.argsort(narrow(disk[order]), kind="stable")]


def total(steps: Steps, disks: int) -> Ints:
    """Return, by disk number, the bytes of all candidates."""
    return add_up(steps.size_bytes, steps.disk, disks)
