"""The inventory that a policy names, and reading it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retention_cli.disks.inventory.errors import InventoryError
from retention_cli.policy.model import Policy

if TYPE_CHECKING:  # importing it imports numpy, which only an inventory needs
    from retention_cli.disks.solve.inventory_view import InventoryView


def inventory_paths(policy: Policy) -> list[Path]:
    """Return the files and folders that ``disks.inventory`` names, relative to the policy file's folder.

    Raises:
        InventoryError: a pattern matches no file.
    """
    folder = Path(policy.source).parent
    found: list[Path] = []
    for text in policy.disks.inventory:
        path = folder / text  # (if it is absolute, the folder counts for nothing)
        if path.exists() or not any(sign in text for sign in "*?["):
            found.append(path)
            continue
        matching = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not matching:
            raise InventoryError(
                f"{policy.source}: disks.inventory: {text} matches no file: make one with kretain segments scan --out"
            )
        found += matching
    return found


def inventory_view(paths: Sequence[Path], *, whole: bool = False) -> InventoryView | None:
    """Read an inventory; None if there are no files. A file that can't be read is left out, and the plan says so.

    Raises:
        InventoryError: no file can be read, or one can't and the inventory must be ``whole``.
        MissingPartError: pyarrow or numpy is not installed.
    """
    if not paths:
        return None
    from retention_cli.core.extras import arrow

    arrow("numpy")
    from retention_cli.disks.inventory.inventory import Inventory, read_inventory
    from retention_cli.disks.solve.inventory_view import COLUMNS, InventoryView

    inventory = read_inventory(paths, COLUMNS)
    if whole and inventory.unread:
        raise InventoryError(inventory.unread[0])
    columns = {name: inventory.table.column(name) for name in COLUMNS}
    inventory = Inventory(inventory.files, None, inventory.incomplete, inventory.unread)

    def column(name: str) -> Any:
        """Return a column and let go of it, so that its memory is free once it is encoded."""
        arrow().default_memory_pool().release_unused()
        return columns.pop(name)

    return InventoryView(inventory, column)
