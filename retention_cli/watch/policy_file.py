"""The policy file of a process that runs for years: read anew in each pass, and trusted once it stays as it is.

A text that does not parse may have been meant to stop deletes, and one that does may be half of what an editor is
writing. So while the file is broken, the last good one is planned by, and nothing is trimmed; a changed one is planned
by at once, but trimmed by only once it was found unchanged for some seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from retention_cli.core.model import Reason
from retention_cli.policy.errors import PolicyError
from retention_cli.policy.selection import Selection
from retention_cli.policy.urls import NotifyRules
from retention_cli.trim.batches import StopError

SETTLES_S: Final = 5.0


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
        settles_s: how long a changed file must stay as it is before it is trimmed by (s).
    """

    load: Callable[[], Selection]
    settles_s: float = SETTLES_S
    valid: bool = True
    """Whether the file was right when it was last read."""
    _good: Selection | None = None
    _before: tuple[str, float] | None = field(default=None)

    @property
    def notify(self) -> NotifyRules:
        """Where the last valid policy posts to."""
        return NotifyRules() if self._good is None else self._good.policy.notify

    def look(self) -> Look:
        """Read the file at the beginning of a pass.

        Raises:
            PolicyError: it is broken, and there was no good one before.
        """
        try:
            selection = self.load()
        except PolicyError as error:
            self._before, self.valid = None, False
            if self._good is None:
                raise
            hold = Reason("policy", "the policy file is broken: planning with the last valid one, trimming nothing")
            return Look(self._good, error, hold)
        digest = selection.policy.digest
        now_s = time.monotonic()
        if self._good is None:
            self._before = (digest, -math.inf)  # the one that the process was started with has settled
        elif self._before is None or self._before[0] != digest:
            self._before = (digest, now_s)
        self._good, self.valid = selection, True
        if now_s - self._before[1] >= self.settles_s:
            return Look(selection)
        text = "the policy file has changed: planning with it now, trimming once it has stayed unchanged"
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
            raise StopError(Reason("policy", f"the policy file broke during the pass: {error}")) from None
        if selection.policy.digest != digest:
            self._before = None
            raise StopError(Reason("policy", "the policy file changed during the pass"))
        return selection
