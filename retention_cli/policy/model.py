"""A loaded policy: its entries in order, and each topic's effective settings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import translate
from typing import Any, Final, Literal, TypeVar, cast

from retention_cli.core.model import Reason, Unknown
from retention_cli.core.printable import short, shown
from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.settings import (
    DEFAULT_MAX_AHEAD_MS,
    DEFAULT_SCAN_RECORDS,
    TRIGGER_KEYS,
    ApproveRules,
    AuditRules,
    DiskRules,
    GroupRules,
    Limits,
    OneOff,
    Origin,
    Prices,
    Settings,
    UntilConsumed,
    event_source,
)
from retention_cli.policy.urls import NONE, NotifyRules

REGEX = "re:"
"""The prefix of a regular expression."""


class PatternError(ValueError):
    """A pattern that is not a regular expression; the text names it, bounded, and says why."""


@functools.lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a glob, or ``re:`` and a regular expression.

    Regular expressions are RE2's, as in Kafka's own group protocol (KIP-848): a match takes linear time for every
    pattern and name, and anyone may name a group. RE2 has no look-arounds and no back-references.

    Raises:
        PatternError: RE2 does not accept the regular expression.
    """
    if not pattern.startswith(REGEX):
        return re.compile(translate(pattern))
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        found: re.Pattern[str] = re2.compile(pattern.removeprefix(REGEX), options)
    except (re2.error, UnicodeEncodeError) as error:
        problem = error.args[0] if isinstance(error, re2.error) and error.args else str(error)
        why = short(problem.decode("utf-8", "replace") if isinstance(problem, bytes) else str(problem))
        raise PatternError(f"{shown(pattern)} is not a regular expression (RE2): {why}") from None
    return found


COMMITOFFSET_TIMES = ("retention.commitoffset.ms", "retention.commitoffset.minutes", "retention.commitoffset.hours")
"""R1's time has three keys, the finest unit first: in one entry the finer wins."""

ENABLE: Final = "retention.commitoffset.enable"
_OF_DISKS: Final = frozenset({"retention.bytes", "retention.topic.bytes", "granularity"})


_V = TypeVar("_V")


def merged(before: Mapping[str, _V], new: Mapping[str, _V]) -> dict[str, _V]:
    """Return settings overridden by new ones. R1's time has three keys: a new one replaces all three."""
    replaced = COMMITOFFSET_TIMES if any(key in new for key in COMMITOFFSET_TIMES) else ()
    return {**{key: value for key, value in before.items() if key not in replaced}, **new}


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether any glob or ``re:`` regular expression matches all of ``name``.

    Kafka's own subscriptions match complete names, too: it is the narrower reading.
    """
    return any(compiled(pattern).fullmatch(name) is not None for pattern in patterns)


def is_pattern(text: str) -> bool:
    """Return whether a name on the command line may match others than itself."""
    return text.startswith(REGEX) or any(sign in text for sign in "*?[")


def _limit(value: int | None) -> int | None:
    """Return a limit in bytes or ms, None for Kafka's own −1 (no limit)."""
    return None if value == -1 else value


class _Live(Enum):
    """The value of a key that the file marks ``cluster``."""

    CLUSTER = "cluster"


LIVE: Final = _Live.CLUSTER


def _marked(found: Mapping[str, Origin]) -> frozenset[str]:
    return frozenset(key for key, origin in found.items() if origin.value is LIVE)


NOT_READ: Final = Unknown.because("policy-topic", "settings marked cluster are in the policy topic, which was not read")
_NO_LIVE_TIME: Final = Unknown.because(
    "policy-topic",
    "retention.commitoffset is enabled, but the policy topic has no time for it yet: set one with kretain policy set",
)
_WALL_CLOCK: Final = "retention.min.wallclock.ms"
_NO_LIVE_GUARD: Final = Unknown.because(
    "policy-topic",
    f"{_WALL_CLOCK} is marked cluster, but the policy topic does not set it yet: use kretain policy set (0: off)",
)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The policy topic's settings by topic: each key's checked value, and the message that it is from.

    ``unsettled`` has the topics whose settings are unknown, and why; ``unread`` is set if the policy topic itself could
    not be read.
    """

    values: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    unsettled: Mapping[str, Unknown] = field(default_factory=dict)
    unread: Unknown | None = NOT_READ
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of ``topics``: its patterns, the keys that it sets, and the line of each."""

    line: int | None
    match: tuple[str, ...]
    values: Mapping[str, Any]
    lines: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator wants. ``source`` names the file, ``digest`` its content (``sha256:…``).

    A policy of flags alone has no entries; its ``one_off`` has patterns.
    """

    source: str
    digest: str
    groups: GroupRules = field(default_factory=GroupRules)
    limits: Limits = field(default_factory=Limits)
    scan_records: int = DEFAULT_SCAN_RECORDS
    disks: DiskRules = field(default_factory=DiskRules)
    audit: AuditRules = field(default_factory=AuditRules)
    approve: ApproveRules | None = None
    notify: NotifyRules = field(default_factory=NotifyRules)
    prices: Prices | None = None
    entries: tuple[Entry, ...] = ()
    one_off: OneOff = field(default_factory=OneOff)
    state: Literal["local", "cluster"] = "local"
    live: LiveSettings = field(default_factory=LiveSettings)
    archive_keys: tuple[str, ...] = ()

    def with_one_off(self, one_off: OneOff) -> Policy:
        """Return this policy overridden by flags; if one of them is a trigger, without its own triggers (R1 to R7)."""
        disks = replace(self.disks, percent=None, watermarks=()) if one_off.any_trigger else self.disks
        return replace(self, one_off=one_off, disks=disks)

    def settings_for(self, topic: str) -> Settings | None:
        """Return the topic's effective settings, None if no entry and no flag matches it.

        Raises:
            PolicyError: R1 is enabled for it without a time.
        """
        found = self._effective(topic)
        return None if found is None else self._settings(topic, *found)

    def origins(self, topic: str) -> dict[str, Origin] | None:
        """Return each key that is set for the topic, with its value and place; None if nothing matches.

        Keys marked ``cluster`` have the policy topic's value, or :data:`LIVE` if it was not read or has none. The
        file's triggers that one-off rules turn off have no value; their place says so.
        """
        if (effective := self._effective(topic)) is None:
            return None
        found = effective[0]
        if self.one_off.any_trigger:
            found = {
                key: Origin(None, f"{one.place} (off: one-off rules)")
                for key, one in (self.origins_in_file(topic) or {}).items()
                if key in TRIGGER_KEYS
            } | found
        return dict(sorted(found.items()))

    def origins_in_file(self, topic: str) -> dict[str, Origin] | None:
        """Return each key that the file sets for the topic, as written there; None if no entry matches."""
        matching = [entry for entry in self.entries if matches(entry.match, topic)]
        found: dict[str, Origin] = {}
        for entry in matching:
            found = merged(found, {key: Origin(value, self._place(entry, key)) for key, value in entry.values.items()})
            if topic in entry.match:
                found["match"] = Origin(topic, self._place(entry, "match"))
        return found if matching else None

    def labels_of(self, topic: str) -> Mapping[str, str]:
        """Return the topic's labels: those of the last matching entry that has any."""
        found = (self.origins_in_file(topic) or {}).get("labels")
        return {} if found is None else cast("Mapping[str, str]", found.value)

    @property
    def moves(self) -> bool:
        """Whether rules may differ from what the file says: by live keys, watermarks or flags."""
        return self.any_live or bool(self.disks.watermarks) or self.one_off.any_rule

    def _place(self, entry: Entry, key: str) -> str:
        line = entry.lines.get(key, entry.line)
        return self.source if line is None else f"{self.source}:{line}"

    def problem(self, entry: Entry, key: str, text: str) -> PolicyProblem:
        """Return a problem at the place of an entry's key."""
        return PolicyProblem(self.source, entry.lines.get(key, entry.line), key, text)

    def live_keys(self, topic: str) -> frozenset[str]:
        """Return the topic's keys that the file marks ``cluster``, even if flags override them."""
        return _marked(self.origins_in_file(topic) or {})

    @property
    def any_live(self) -> bool:
        """Whether any entry marks a key ``cluster``."""
        return any(value is LIVE for entry in self.entries for value in entry.values.values())

    @property
    def needs_disks(self) -> bool:
        """Whether any rule of this run needs disks, sizes or segments; one-off rules turn the file's triggers off."""
        keys = _OF_DISKS - TRIGGER_KEYS if self.one_off.any_trigger else _OF_DISKS
        used = any(not keys.isdisjoint(entry.values) for entry in self.entries)
        return used or self.disks.percent is not None or bool(self.disks.watermarks)

    def _effective(self, topic: str) -> tuple[dict[str, Origin], frozenset[str]] | None:
        """Return a topic's effective keys, and those that the file marks ``cluster``; None if nothing matches it.

        Flags override the policy topic, which overrides the file.
        """
        in_file, flags = self.origins_in_file(topic), self.one_off
        flagged = flags.any_rule and (matches(flags.patterns, topic) if flags.patterns else in_file is not None)
        if in_file is None and not flagged:
            return None
        marked, live = _marked(in_file or {}), self.live.values.get(topic, {})
        found = merged(in_file or {}, {key: origin for key, origin in live.items() if key in marked})
        if flags.any_trigger:
            found = {key: origin for key, origin in found.items() if key not in TRIGGER_KEYS}
        return ({**found, **flags.origins(topic)} if flagged else found), marked

    def _unsettled(self, topic: str, found: Mapping[str, Origin], marked: frozenset[str]) -> Unknown | None:
        """Return why the topic's live settings are unknown, None if they are known or it has none.

        Keys that the file marks count here even if a flag or a one-off rule overrides them: a message that can't be
        read may have said anything. A guard that no application has set yet holds the topic.
        """
        if not marked:
            return None
        if (unsettled := self.live.unread or self.live.unsettled.get(topic)) is not None:
            return unsettled
        missing = _marked(found)
        enabled = found.get(ENABLE)
        timed = any(key in found and key not in missing for key in COMMITOFFSET_TIMES)
        if enabled is not None and enabled.value is True and not timed:
            return _NO_LIVE_TIME
        return _NO_LIVE_GUARD if _WALL_CLOCK in missing else None

    def _settings(self, topic: str, found: Mapping[str, Origin], marked: frozenset[str]) -> Settings:
        unsettled = self._unsettled(topic, found, marked)

        def value(key: str, default: Any) -> Any:
            return found[key].value if key in found and found[key].value is not LIVE else default

        consumed_after = next((time for key in COMMITOFFSET_TIMES if (time := value(key, None)) is not None), None)
        if not value(ENABLE, default=False):
            consumed_after = None
        elif consumed_after is None and unsettled is None:
            text = f"is true for topic {topic} but no time is set: add retention.commitoffset.hours, .minutes or .ms"
            raise PolicyError([PolicyProblem.at(found[ENABLE].place, ENABLE, text)])
        required = tuple(dict.fromkeys((*self.groups.require, *value("groups.require", ()))))
        source = value("retention.eventtime.source", None)
        return Settings(
            consumed_after_ms=consumed_after,
            watch_first_ms=self.groups.watch_first_ms,
            forced_age_ms=_limit(value("retention.ms", None)),
            forced_age_guarded="retention.ms" in found and found["retention.ms"].place == "--older-than",
            event_time_ms=value("retention.max.eventtime.ms", None),
            event_source=None if source is None else event_source(source),
            ignore_future=value("retention.eventtime.ignore.future", default=False),
            skip_unreadable=value("on.unreadable", "hold") == "skip",
            min_timestamp_ms=value("log.retention.min.timestamp", None) or None,
            allow_empty=value("allow.empty", default=False),
            min_wallclock_ms=value("retention.min.wallclock.ms", None),
            max_ahead_ms=value("retention.timestamp.max.ahead.ms", DEFAULT_MAX_AHEAD_MS),
            unconsumed=value("unconsumed", "hold"),
            trim_compacted=value("compacted", "skip") == "trim",
            allow_ancient=value("allow.ancient", default=False),
            archive=None if value("archive", NONE) == NONE else value("archive", None),
            hold=value("hold", None),
            named_in_full="match" in found,
            of_audit=topic == self.audit.topic,
            max_bytes=_limit(value("retention.bytes", None)),
            max_topic_bytes=_limit(value("retention.topic.bytes", None)),
            whole_segments=value("granularity", "record") == "segment",
            trim_tiered=value("tiered", "skip") == "trim",
            require_groups=required,
            scan_records=value("lookup.scan.records", self.scan_records),
            unsettled=unsettled,
            until_consumed=_until_consumed(value("retention.until.consumed", None), required),
        )


def _until_consumed(value: Mapping[str, Any] | None, required: tuple[str, ...]) -> UntilConsumed | None:
    """Return the rule, None without one, or if it is off (a maximum of 0)."""
    if value is None or not value["max"]:
        return None
    return UntilConsumed(tuple(dict.fromkeys(value.get("groups") or required)), value["max"], value.get("max.bytes"))
