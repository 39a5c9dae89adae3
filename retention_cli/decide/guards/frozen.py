"""G7: an entry's ``hold`` freezes its topics."""

from __future__ import annotations

from retention_cli.core.model import Code, Reason
from retention_cli.policy.settings import Settings


def frozen(settings: Settings) -> Reason | None:
    """Return the reason for the freeze, None if the topic is not frozen."""
    return None if settings.hold is None else Reason(Code.G7, f"on hold: {settings.hold}")
