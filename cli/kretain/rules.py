"""The TOPIC argument and the one-off rules, and the selection that they and the policy file come to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kretain.completing import complete_topics
from kretain.exits import UsageError
from kretain.options import duration_ms, option
from retention_cli.planning import Selection
from retention_cli.policy.settings import OneOff

ONE_OFF = "One-off rules (they override the policy file)"


class Unconsumed(StrEnum):
    """What may happen to records that nobody has read."""

    hold = "hold"
    trim = "trim"


Topics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC", show_default=False, autocompletion=complete_topics,
        help="Topic names, globs ('orders.*', '*') or re:^…$; default: all that the policy matches.",
    ),
]  # fmt: skip
ConsumedAfter = Annotated[
    int | None,
    option(
        "--consumed-after", metavar="DURATION", panel=ONE_OFF, parser=duration_ms,
        help="Trim what every consumer has read and is older than this (R1).",
    ),
]  # fmt: skip
OlderThan = Annotated[
    int | None,
    option(
        "--older-than", metavar="DURATION", panel=ONE_OFF, parser=duration_ms,
        help="Trim what is older than this (R4), but not what somebody has yet to read (G2).",
    ),
]  # fmt: skip
UnconsumedOption = Annotated[
    Unconsumed | None,
    option("--unconsumed", panel=ONE_OFF, help="trim: also what nobody has read yet. Default: hold."),
]


__all__ = [
    "ConsumedAfter", "OlderThan", "OneOff", "Selection", "Topics", "Unconsumed", "UnconsumedOption",
    "flags_alone", "one_off", "selection",
]  # fmt: skip


def one_off(
    topics: list[str] | None, consumed_after: int | None, older_than: int | None, unconsumed: Unconsumed | None
) -> OneOff:
    """Return the flags as the engine takes them."""
    return OneOff(
        patterns=tuple(topics or ()),
        consumed_after_ms=consumed_after,
        older_than_ms=older_than,
        unconsumed=None if unconsumed is None else unconsumed.value,
    )


def selection(policy_file: Path | None, topics: list[str] | None, flags: OneOff) -> Selection:
    """Return the policy with the flags laid over it, and the topics chosen.

    Raises:
        UsageError: there is neither a policy file nor a one-off rule with a TOPIC.
        PolicyError: the file is wrong.
    """
    _check_patterns(topics)
    if policy_file is not None:
        from retention_cli.policy.load import load_policy

        policy = load_policy(policy_file)
    else:
        if flags.consumed_after_ms is None and flags.older_than_ms is None:
            raise UsageError(
                "there is no policy: give -p FILE (KRETAIN_POLICY, or a context's), or a TOPIC with a one-off rule such as "
                "--consumed-after 3d"
            )
        if not topics:
            raise UsageError("a one-off rule without a policy file needs a TOPIC (a glob; '*' for all)")
        policy = flags_alone(flags)
    return Selection(policy.with_one_off(flags), tuple(topics or ()))


def flags_alone(flags: OneOff) -> Any:
    """Return a policy that consists of flags."""
    import hashlib
    import json

    from retention_cli.policy.model import Policy

    digest = hashlib.sha256(json.dumps([flags.flags(), flags.patterns], sort_keys=True).encode()).hexdigest()
    return Policy(source="flags", digest=f"sha256:{digest}")


def _check_patterns(topics: list[str] | None) -> None:
    import re

    for pattern in topics or ():
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None
        elif not pattern:
            raise UsageError("a TOPIC is empty")
