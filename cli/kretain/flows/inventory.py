"""The options ``--inventory`` and ``--exact-bytes``, and reading the inventory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.errors import UsageError, tell
from kretain.options.common import option

if TYPE_CHECKING:  # importing these imports numpy and pyarrow, which only an inventory needs
    from retention_cli.disks.batch_sizes import BatchSizes
    from retention_cli.disks.solve.inventory_view import InventoryView
    from retention_cli.policy.model import Policy

Inventories = Annotated[
    list[Path] | None,
    option(
        "--inventory",
        metavar="FILE",
        help="Segments as kretain segments scan wrote them, a file per broker or a folder of files. Repeat it.",
    ),
]


ExactBytes = Annotated[
    bool,
    option(
        "--exact-bytes",
        help="Without an inventory: read what partitions and topics hold that are above retention.bytes or "
        "retention.topic.bytes, all of it, instead of estimating it.",
    ),
]


def check_one(paths: list[Path] | None, *, exact_bytes: bool, wait: bool = False) -> None:
    """Check that no option for the disks of one cluster was given, for a command on several clusters.

    Raises:
        UsageError: one was given.
    """
    for given, name in ((paths, "--inventory"), (exact_bytes, "--exact-bytes"), (wait, "--wait")):
        if given:
            raise UsageError(f"{name} is for one cluster: name it with --cluster NAME")


class InventoryOption:
    """The inventory of ``--inventory``, else of the policy: its files, and its content if this process reads it.

    ``batches`` reads logs instead, if there is no inventory and ``--exact-bytes`` is given. A file that can't be read
    is left out with a warning, unless the inventory must be ``whole``: what a person starts trims nothing by bad input.

    Raises:
        InventoryError: the policy names files that do not exist.
    """

    def __init__(
        self, paths: list[Path] | None, policy: Policy, *, exact_bytes: bool = False, whole: bool = False
    ) -> None:
        self._whole = whole
        self.paths = paths or _of_policy(policy)
        self.batches: BatchSizes | None = None
        if exact_bytes and not self.paths:
            from retention_cli.disks.batch_sizes import BatchSizes

            self.batches = BatchSizes()
        self._view: InventoryView | None = None

    def view(self) -> InventoryView | BatchSizes | None:
        """Return the inventory; if there is none, the reader of batch sizes, or None.

        Raises:
            InventoryError: the inventory can't be read.
            MissingPartError: pyarrow or numpy is not installed.
        """
        if self._view is None and self.paths:
            from retention_cli.core.extras import arrow

            arrow("numpy")
            from retention_cli.disks.inventory.inventory import InventoryError, read_inventory
            from retention_cli.disks.solve.inventory_view import COLUMNS, InventoryView

            inventory = read_inventory(self.paths, COLUMNS)
            if self._whole and inventory.unread:
                raise InventoryError(inventory.unread[0])
            for problem in inventory.unread:
                tell(f"kretain: {problem}. Without it, what lies on that broker's disks is unknown")
            self._view = InventoryView(inventory)
        return self._view or self.batches


def _of_policy(policy: Policy) -> list[Path]:
    """Return the files and folders that ``disks.inventory`` names, relative to the policy file's folder."""
    folder = Path(policy.source).parent
    found: list[Path] = []
    for text in policy.disks.inventory:
        path = folder / text  # an absolute path stays as it is
        if path.exists() or not any(sign in text for sign in "*?["):
            found.append(path)
            continue
        matching = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not matching:
            from retention_cli.disks.inventory.inventory import InventoryError

            raise InventoryError(
                f"{policy.source}: disks.inventory: {text} matches no file: make one with kretain segments scan --out"
            )
        found += matching
    return found
