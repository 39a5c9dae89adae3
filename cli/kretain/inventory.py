"""The option ``--inventory``, and what is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.exits import UsageError
from kretain.options import option

if TYPE_CHECKING:  # numpy and pyarrow come with an inventory, and not before
    from retention_cli.disks.stock import Stock

Inventories = Annotated[
    list[Path] | None,
    option(
        "--inventory",
        metavar="FILE",
        help="Segments as kretain segments scan wrote them, a file per broker or a folder of files. Repeat it.",
    ),
]


def check_one(paths: list[Path] | None, *, wait: bool = False) -> None:
    """Refuse, of several clusters, what is about the disks of one.

    Raises:
        UsageError: it was given.
    """
    for given, name in ((paths, "--inventory"), (wait, "--wait")):
        if given:
            raise UsageError(f"{name} is for one cluster: name it with --cluster NAME")


def stock(paths: list[Path] | None) -> Stock | None:
    """Read an inventory, None where none is named.

    Raises:
        InventoryError: it can't be read.
        MissingPartError: pyarrow or numpy is not installed.
    """
    if not paths:
        return None
    from retention_cli.columns import arrow

    arrow("numpy")
    from retention_cli.disks.stock import COLUMNS, Stock
    from retention_cli.segments.inventory import read_inventory

    return Stock(read_inventory(paths, COLUMNS))
