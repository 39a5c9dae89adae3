"""Live settings from the command line: KEY=VALUE pairs, and warnings once they are set."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from kretain.errors import UsageError, warn
from retention_cli.policy.live import check_value
from retention_cli.policy.model import Policy
from retention_cli.state.policy_topic import Changed

_MINIMUM = "log.retention.min.timestamp"


def read_pairs(pairs: list[str]) -> dict[str, Any]:
    """Return KEY=VALUE pairs with values as JSON types: numbers, true or false where they parse as such, else text.

    Raises:
        UsageError: a pair has no =, or a key is given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE")
        if key in found:
            raise UsageError(f"{key} is given twice")
        found[key] = _scalar(text)
    return found


def _scalar(text: str) -> Any:
    if re.fullmatch(r"-?[0-9]{1,30}", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


def warn_of(done: Changed, new: Mapping[str, Any], policy: Policy, *, there: bool) -> None:
    """Warn about settings that may not have the intended effect."""
    for text in done.corrected:
        warn(f"replaced: {text}")
    if not there:
        warn(f"the cluster has no topic {done.topic}, or this user lacks DESCRIBE on it")
    settings = policy.settings_for(done.topic)
    if _MINIMUM in new and settings is not None and not settings.allow_empty:
        minimum = check_value(_MINIMUM, new[_MINIMUM])
        if minimum > time.time_ns() // 1_000_000:
            warn(f"{_MINIMUM} lies in the future: until then it holds, unless the policy file says allow.empty: true")
