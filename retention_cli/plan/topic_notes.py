"""Name topics of which a trim deletes more than one may expect. Pure.

Brokers keep them forever, and a pattern brings them under a rule of age or size (G5); or some of their records are, or
may be, in object storage (KIP-405, KIP-1150).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from retention_cli.core.codes import Code
from retention_cli.core.model import INFINITE_MS, Reason, TopicFacts
from retention_cli.decide.guards import untouchable
from retention_cli.policy.model import Policy
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


def reached_by_pattern(topics: Iterable[TopicFacts], settings: Mapping[str, Settings], policy: Policy) -> list[Reason]:
    """Return a note that names topics with ``retention.ms=-1`` that R4, R5 or R6 reaches through a pattern.

    Such a topic is often a database: schemas, a journal, a history of changes. It is not held.
    """
    by_disk = policy.disks.percent is not None
    names = []
    for topic in topics:
        chosen = settings[topic.name]
        limits = (chosen.forced_age_ms, chosen.max_bytes, chosen.max_topic_bytes)
        reached = (by_disk or limits != (None, None, None)) and not chosen.named_in_full
        if reached and topic.retention_ms == INFINITE_MS and untouchable(topic, chosen) is None:
            names.append(topic.name)
    if not names:
        return []
    text = (
        f"{some_of(names)}: retention.ms is -1 and only a pattern matches. Brokers keep these records "
        f"forever. To keep them, exclude the topic or set hold; otherwise name it in full"
    )
    return [Reason(Code.G5, text)]
