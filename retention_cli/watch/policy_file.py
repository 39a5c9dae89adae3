"""The policy file of a process that runs for years: read anew in each pass, and trusted once it stays as it is.

A text that does not parse may have been meant to stop deletes, and one that does may be half of what an editor is
writing. So while the file is broken, the last good one is planned by, and nothing is trimmed; a changed one is planned
by at once, but trimmed by only if the next pass finds it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from retention_cli.core.model import Reason
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import Selection
from retention_cli.trim.batches import StopError


@dataclass(frozen=True, slots=True)
class Look:
    """The policy to plan by.

    ``broken`` is what is wrong with the file now, ``hold`` why nothing may be trimmed by it.
    """

    selection: Selection
    broken: PolicyError | None = None
    hold: Reason | None = None


@dataclass(slots=True)
class PolicyFile:
    """The file, and what was last read of it.

    Args:
        load: reads and checks it.
    """

    load: Callable[[], Selection]
    valid: bool = True
    """Whether the file was right when it was last read."""
    _good: Selection | None = None
    _before: str | None = field(default=None)

    def look(self) -> Look:
        """Read the file at the beginning of a pass.

        Raises:
            PolicyError: it is broken, and there was no good one before.
        """
        first = self._good is None
        try:
            selection = self.load()
        except PolicyError as error:
            self._before, self.valid = None, False
            if self._good is None:
                raise
            hold = Reason("policy", "nothing is trimmed while the policy file is broken; planned by the last good one")
            return Look(self._good, error, hold)
        digest = selection.policy.digest
        settled = first or digest == self._before
        self._good, self._before, self.valid = selection, digest, True
        if settled:
            return Look(selection)
        text = "the policy file has changed: planned by it now, trimmed by it from the next pass on"
        return Look(selection, None, Reason("policy", text))

    def again(self, digest: str) -> Selection:
        """Read the file for a recheck.

        Raises:
            StopError: it is not the one that the pass was planned by, or it is broken.
        """
        try:
            selection = self.load()
        except PolicyError as error:
            self._before, self.valid = None, False
            raise StopError(Reason("policy", f"the policy file was broken meanwhile: {error}")) from None
        if selection.policy.digest != digest:
            self._before = None
            raise StopError(Reason("policy", "the policy file was changed meanwhile"))
        return selection
