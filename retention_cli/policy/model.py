"""A loaded policy: entries in order, and what they come to for one topic."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Any

from retention_cli.policy.errors import PolicyError, PolicyProblem
from retention_cli.policy.settings import DEFAULT_SCAN_RECORDS, GroupRules, Limits, OneOff, Origin, Settings

_TIMES = ("retention.commitoffset.ms", "retention.commitoffset.minutes", "retention.commitoffset.hours")
"""R1's three spellings of one time, the finest first: in one entry the finer wins."""


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    # A regular expression matches the whole name, as Kafka's own subscriptions do: the narrower reading.
    return re.compile(pattern[3:] if pattern.startswith("re:") else translate(pattern))


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether a glob, or a ``re:`` regular expression, matches the whole of ``name``."""
    return any(_compiled(pattern).fullmatch(name) is not None for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Entry:
    """One element of ``topics``: its patterns, the keys that it sets, and the line of each."""

    index: int
    line: int | None
    match: tuple[str, ...]
    values: Mapping[str, Any]
    lines: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator wants. ``source`` names the file, ``digest`` its content (``sha256:…``).

    A policy of flags alone has no entries, and ``one_off`` with patterns.
    """

    source: str
    digest: str
    groups: GroupRules = GroupRules()
    limits: Limits = Limits()
    scan_records: int = DEFAULT_SCAN_RECORDS
    entries: tuple[Entry, ...] = ()
    one_off: OneOff = OneOff()

    def with_one_off(self, one_off: OneOff) -> Policy:
        """Return this policy with flags laid over it."""
        return replace(self, one_off=one_off)

    def settings_for(self, topic: str) -> Settings | None:
        """Return the topic's effective settings, or None where no entry and no flag matches it.

        Raises:
            PolicyError: R1 is enabled for it without a time.
        """
        found = self._collect(topic)
        return None if found is None else self._settings(topic, found)

    def origins(self, topic: str) -> dict[str, Origin] | None:
        """Return each key that is set for the topic with where it comes from, None where nothing matches."""
        found = self._collect(topic)
        if found is None:
            return None
        self._settings(topic, found)
        return dict(sorted(found.items()))

    def unmatched(self, topics: Iterable[str]) -> list[Entry]:
        """Return the entries that match none of ``topics``."""
        names = list(topics)
        return [entry for entry in self.entries if not any(matches(entry.match, name) for name in names)]

    def problem(self, entry: Entry, key: str, text: str) -> PolicyProblem:
        """Return a problem at the place of an entry's key."""
        return PolicyProblem(self.source, entry.lines.get(key, entry.line), key, text)

    def _overlaid(self, topic: str, in_file: bool) -> bool:
        if not self.one_off.any_rule:
            return False
        return matches(self.one_off.patterns, topic) if self.one_off.patterns else in_file

    def _collect(self, topic: str) -> dict[str, Origin] | None:
        matching = [entry for entry in self.entries if matches(entry.match, topic)]
        overlaid = self._overlaid(topic, bool(matching))
        if not matching and not overlaid:
            return None
        found: dict[str, Origin] = {}
        for entry in matching:
            if any(key in entry.values for key in _TIMES):  # the last entry that sets any of the three
                for key in _TIMES:
                    found.pop(key, None)
            for key, value in entry.values.items():
                line = entry.lines.get(key, entry.line)
                found[key] = Origin(value, f"{self.source}:{line}" if line is not None else self.source)
            if topic in entry.match:
                found["match"] = Origin(topic, f"{self.source}:{entry.lines.get('match', entry.line)}")
        if overlaid:
            self._overlay(topic, found)
        return found

    def _overlay(self, topic: str, found: dict[str, Origin]) -> None:
        flags = self.one_off
        if flags.consumed_after_ms is not None:
            for key in _TIMES:
                found.pop(key, None)
            found["retention.commitoffset.enable"] = Origin(value=True, place="--consumed-after")
            found["retention.commitoffset.ms"] = Origin(flags.consumed_after_ms, "--consumed-after")
        if flags.older_than_ms is not None:
            found["retention.ms"] = Origin(flags.older_than_ms, "--older-than")
        if flags.unconsumed is not None:
            found["unconsumed"] = Origin(flags.unconsumed, "--unconsumed")
        if topic in flags.patterns:
            found["match"] = Origin(topic, "TOPIC")

    def _settings(self, topic: str, found: Mapping[str, Origin]) -> Settings:
        def value(key: str, default: Any) -> Any:
            return found[key].value if key in found else default

        consumed_after = next((found[key].value for key in _TIMES if key in found), None)
        if value("retention.commitoffset.enable", default=False):
            if consumed_after is None:
                raise PolicyError([self._no_time(topic, found["retention.commitoffset.enable"])])
        else:
            consumed_after = None
        forced = value("retention.ms", None)
        return Settings(
            consumed_after_ms=consumed_after,  # type: ignore[arg-type]
            forced_age_ms=None if forced == -1 else forced,
            forced_age_guarded="retention.ms" in found and found["retention.ms"].place == "--older-than",
            unconsumed=value("unconsumed", "hold"),
            trim_compacted=value("compacted", "skip") == "trim",
            allow_ancient=value("allow.ancient", default=False),
            hold=value("hold", None),
            named_in_full="match" in found,
            require_groups=tuple(dict.fromkeys((*self.groups.require, *value("groups.require", ())))),
            scan_records=value("lookup.scan.records", self.scan_records),
        )

    def _no_time(self, topic: str, enabled: Origin) -> PolicyProblem:
        source, _, line = enabled.place.rpartition(":")
        return PolicyProblem(
            source or enabled.place,
            int(line) if line.isdigit() else None,
            "retention.commitoffset.enable",
            f"is true for topic {topic} but no time is set: add retention.commitoffset.hours, .minutes or .ms",
        )
