"""Name topics whose records are, or may be, in object storage: what a trim deletes there (KIP-405, KIP-1150). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from retention_cli.core.model import Reason, TopicFacts
from retention_cli.decide.guards import untouchable
from retention_cli.policy.settings import Settings

_NAMED: Final = 3
_REMOTE: Final = "remote.storage.enable: a trim also deletes what is in remote storage before the new log start"


class OffDisks(NamedTuple):
    """The topics that rules reach and that are not on disks alone, by name.

    ``unconfirmed`` are tiered and no entry says ``tiered: trim``; ``confirmed`` are tiered, and one does.
    """

    unconfirmed: list[str]
    confirmed: list[str]
    diskless: list[str]

    def notes(self) -> list[Reason]:
        """Return what a plan says of them."""
        texts = (
            (
                "tiered",
                self.unconfirmed,
                f"{_REMOTE}. If you want that, set tiered: trim; policy check requires it",
            ),
            ("tiered", self.confirmed, _REMOTE),
            ("diskless", self.diskless, "diskless.enable: object storage holds the records; R6 and R7 ignore it"),
        )
        return [Reason(code, f"{some_of(names)}: {text}") for code, names, text in texts if names]


def off_disks(topics: Iterable[TopicFacts], settings: Mapping[str, Settings]) -> OffDisks:
    """Return the topics that R1 to R5 reach and that are tiered or diskless."""
    found = OffDisks([], [], [])
    for topic in topics:
        chosen = settings[topic.name]
        times = (chosen.consumed_after_ms, chosen.event_time_ms, chosen.min_timestamp_ms, chosen.forced_age_ms)
        asked = any(one is not None for one in (*times, chosen.max_bytes, chosen.max_topic_bytes))
        if not asked or untouchable(topic, chosen) is not None:
            continue
        if topic.tiered:
            (found.confirmed if chosen.trim_tiered else found.unconfirmed).append(topic.name)
        if topic.diskless:
            found.diskless.append(topic.name)
    return found


def some_of(names: list[str]) -> str:
    """Return the first of some topics' names, and how many more there are."""
    return f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED:,} more' if len(names) > _NAMED else ''}"
