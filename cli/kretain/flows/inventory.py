"""Read the inventory of ``--inventory`` or of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kretain.errors import UsageError

if TYPE_CHECKING:  # importing these imports numpy and pyarrow, which only an inventory needs
    from retention_cli.disks.inventory_view import InventoryView
    from retention_cli.policy.model import Policy


def check_one(paths: list[Path] | None, *, wait: bool = False) -> None:
    """Check that no option for the disks of one cluster was given, for a command on several clusters.

    Raises:
        UsageError: one was given.
    """
    for given, name in ((paths, "--inventory"), (wait, "--wait")):
        if given:
            raise UsageError(f"{name} is for one cluster: name it with --cluster NAME")


class InventoryOption:
    """The inventory of ``--inventory``, else of the policy: its files, and its content if this process reads it.

    A file that can't be read is left out, unless the inventory must be ``whole``: what a person starts trims nothing by
    bad input.

    Raises:
        InventoryError: the policy names files that do not exist.
    """

    def __init__(self, paths: list[Path] | None, policy: Policy, *, whole: bool = False) -> None:
        from retention_cli.disks.inventory.read import inventory_paths

        self._whole = whole
        self.paths = paths or inventory_paths(policy)
        self._view: InventoryView | None = None

    def view(self) -> InventoryView | None:
        """Return the inventory; None if there is none.

        Raises:
            InventoryError: the inventory can't be read.
            MissingPartError: pyarrow or numpy is not installed.
        """
        from retention_cli.disks.inventory.read import inventory_view

        if self._view is None:
            self._view = inventory_view(self.paths, whole=self._whole)
        return self._view
