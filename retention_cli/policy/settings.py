"""A topic's effective settings: what every rule and guard is told, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

DEFAULT_SCAN_RECORDS: Final = 10_000
DEFAULT_IGNORED_GROUPS: Final = ("console-consumer-*",)


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for one topic after all entries and flags. Times in ms; None means: not asked for.

    ``consumed_after_ms`` is R1's T and ``forced_age_ms`` R4's A. ``forced_age_guarded`` says that A came
    from a one-off flag, which G2 guards. ``named_in_full`` says that an entry's pattern is the topic's
    very name (G5).
    """

    consumed_after_ms: int | None = None
    forced_age_ms: int | None = None
    forced_age_guarded: bool = False
    unconsumed: Literal["hold", "trim"] = "hold"
    trim_compacted: bool = False
    allow_ancient: bool = False
    hold: str | None = None
    named_in_full: bool = False
    require_groups: tuple[str, ...] = ()
    scan_records: int = DEFAULT_SCAN_RECORDS


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Which groups count (RULES.md F1–F4): patterns for ignore and latest, names for require."""

    ignore: tuple[str, ...] = DEFAULT_IGNORED_GROUPS
    require: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """A plan past one of these is refused (RULES.md G6). None means no limit."""

    max_records: int | None = None
    max_bytes: int | None = None
    max_percent: float | None = None


@dataclass(frozen=True, slots=True)
class OneOff:
    """Rules given as flags, for this run only. ``patterns`` are the TOPIC arguments.

    They override a file's entries for the topics they match; without patterns, for all that it matches.
    """

    patterns: tuple[str, ...] = ()
    consumed_after_ms: int | None = None
    older_than_ms: int | None = None
    unconsumed: Literal["hold", "trim"] | None = None

    @property
    def any_rule(self) -> bool:
        """Whether a flag asks for anything at all."""
        return not (self.consumed_after_ms is None and self.older_than_ms is None and self.unconsumed is None)

    def flags(self) -> dict[str, int | str]:
        """Return the flags as a plan records them: their names, and values in ms or words."""
        given = {
            "--consumed-after": self.consumed_after_ms,
            "--older-than": self.older_than_ms,
            "--unconsumed": self.unconsumed,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: ``kretain.yaml:7``, ``--older-than`` or ``default``."""

    value: object
    place: str


@dataclass(frozen=True, slots=True)
class Origins:
    """Each key's value for one topic and where it comes from, for ``kretain policy show``."""

    settings: Settings
    keys: dict[str, Origin] = field(default_factory=dict)
