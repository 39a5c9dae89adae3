"""Random topics with random records and readers, and a random policy for them."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    NewTopic,
)

from tests.support.plain import kept_alive
from tests.support.world import HOUR, QUIET, World, end_transaction, now_ms, wait_until

Place = tuple[str, int]
CODECS = ("none", "gzip", "lz4", "zstd")


@dataclass
class Topic:
    """What a random topic is like. ``retention_h`` is the broker's own, None for infinite."""

    name: str
    partitions: int
    kind: str
    retention_h: int | None


class Fleet:
    """Random topics of one seed. Ages are whole hours and up to 50 minutes, so that no cutoff is near a record."""

    def __init__(self, world: World, seed: int, topics: int = 25) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.prefix = f"fleet{seed}-{os.getpid()}"
        self.base = now_ms()
        self.topics = [self._topic(number) for number in range(topics)]
        self.groups = [f"{self.prefix}-g{number}" for number in range(6)]
        self.stray, self.late = f"{self.prefix}-stray", f"{self.prefix}-late"
        self._open: list[Producer] = []

    # -- topics and records -------------------------------------------------------------------------

    def _topic(self, number: int) -> Topic:
        kinds = ["plain"] * 5 + ["rolled"] * 6 + ["compact", "seconds", "empty"]
        kind = "compacted" if number < 3 else self.rng.choice(kinds)
        name = f"{self.prefix}-{number}-{kind}"
        if self.rng.random() < 0.08:
            name = f"_{name}"
        retention_h = 960 if kind != "seconds" and self.rng.random() < 0.2 else None
        return Topic(name, self.rng.randint(1, 3), kind, retention_h)

    def places(self) -> list[Place]:
        return [(topic.name, n) for topic in self.topics for n in range(topic.partitions)]

    def build(self) -> None:
        """Make the topics; fill them stroke by stroke: plain records, committed, aborted and open transactions.

        Then commit and trim somewhere.
        """
        policies = {"compacted": "compact,delete", "compact": "compact"}
        new = []
        for topic in self.topics:
            config = {
                "retention.ms": str(-1 if topic.retention_h is None else topic.retention_h * HOUR),
                "cleanup.policy": policies.get(topic.kind, "delete"),
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": str(HOUR if topic.kind in ("rolled", "compacted") else 10_000 * HOUR),
            }
            new.append(NewTopic(topic.name, topic.partitions, 1, config=config))
        for made in self.world.admin.create_topics(new).values():
            made.result(60)
        for topic in self.topics:
            self.world.await_leaders(topic.name, topic.partitions)
        self.fill()
        self._compact()
        self.commit_somewhere()
        self.trim_somewhere()

    def fill(self) -> None:
        """Append to random partitions, four times. Each of a stroke's transactions spans several of them."""
        usual = {codec: self._producer(**{"compression.type": codec}) for codec in CODECS}
        ends = {end: self._producer(**{"transactional.id": f"{self.prefix}-{end}"}) for end in ("commit", "abort")}
        for producer in ends.values():
            producer.init_transactions(30)
        for stroke in range(4):
            begun: dict[str, Producer] = {}
            for topic in self.topics:
                for partition in range(topic.partitions if topic.kind != "empty" else 0):
                    end = self._end_of_stroke(topic, last=stroke == 3)
                    if end is None:
                        continue
                    if end != "plain" and end not in begun:
                        begun[end] = ends.get(end) or self._producer(**{"transactional.id": f"{self.prefix}-{stroke}"})
                        if end == "open":
                            begun[end].init_transactions(30)
                            self._open.append(begun[end])
                        begun[end].begin_transaction()
                    producer = usual[self.rng.choice(CODECS)] if end == "plain" else begun[end]
                    self._append(producer, topic, partition, first=stroke == 0)
            for producer in (*usual.values(), *begun.values()):
                assert producer.flush(60) == 0
            for end, producer in begun.items():
                if end != "open":
                    end_transaction(producer, commit=end == "commit")

    def _end_of_stroke(self, topic: Topic, *, last: bool) -> str | None:
        if topic.kind == "seconds":
            return "plain"
        ends = ["plain"] * 12 + ["commit"] * 2 + ["abort"] * 2 + ["open"] * last
        return None if self.rng.random() < 0.2 and topic.kind != "compacted" else self.rng.choice(ends)

    def _append(self, producer: Producer, topic: Topic, partition: int, *, first: bool) -> None:
        ages = [self.rng.randrange(720) for _ in range(self.rng.randint(1, 25))]
        if self.rng.random() < 0.5:
            ages.sort(reverse=True)
        for number, age in enumerate(ages):
            stamp = self.base - age * HOUR - self.rng.randrange(10, 50) * 60_000
            if topic.kind == "seconds" and first:
                stamp //= 1000
            key = f"k{self.rng.randrange(12) if topic.kind.startswith('compact') else number}"
            producer.produce(topic.name, b"x" * 80, key, partition=partition, timestamp=stamp)

    def _producer(self, **more: str) -> Producer:
        config = {"bootstrap.servers": self.world.bootstrap, "logger": QUIET, "linger.ms": 5}
        if "transactional.id" in more:  # on a slow machine a transaction stays open for long
            config["transaction.timeout.ms"] = 900_000
        return Producer({**config, "batch.num.messages": 5, **more})

    def _compact(self) -> None:
        """Let the cleaner make gaps, then stop it: two engines are to read the same."""
        names = [topic.name for topic in self.topics if topic.kind == "compacted"]
        places = [place for place in self.places() if place[0] in names]

        def gaps() -> bool:
            found = [self.world.records(*place, isolation="read_uncommitted") for place in places]
            return any(len(one) + 6 < one[-1][0] - one[0][0] for one in found if one)

        wait_until(gaps, "the cleaner's first gap", 30)
        for name in names:
            self.world.configure(name, {"min.compaction.lag.ms": "9000000000"})

    def trim_somewhere(self) -> None:
        """Trim half of the partitions to anywhere, some twice: into batches, to segments' ends, to H."""
        for _ in range(2):
            for place in self.places():
                first, last = self.world.ends(*place)
                if self.rng.random() < 0.3 and last > first and not place[0].endswith("compact"):
                    self.world.delete_records(place[0], self.rng.randint(first, last), place[1])

    # -- groups --------------------------------------------------------------------------------------

    def commit_somewhere(self) -> None:
        """Commit anywhere: ahead, behind, below S, now and then beyond H, now and then on some partitions only."""
        commits = defaultdict[tuple[str, str], dict[int, int]](dict)
        for topic in self.topics:
            ends = [self.world.ends(topic.name, partition)[1] for partition in range(topic.partitions)]
            chosen = self.rng.sample(self.groups, self.rng.choice([0, 1, 1, 2, 3]))
            chosen += [group for group in (self.stray, self.late) if self.rng.random() < 0.15]
            for group in chosen:
                some = group == self.late or self.rng.random() < 0.15
                for partition in range(topic.partitions):
                    if not (some and self.rng.random() < 0.5):
                        end = ends[partition]
                        anywhere = self.rng.choice([end, end, self.rng.randint(0, end)])
                        commits[group, topic.name][partition] = anywhere + (3 if self.rng.random() < 0.03 else 0)
        for (group, name), offsets in commits.items():
            self.world.commit(group, name, offsets)

    @contextmanager
    def members(self) -> Iterator[None]:
        """Two live groups, one of each protocol: one commits on what it is assigned, one on nothing at all."""
        consumers = []
        for protocol in ("classic", "consumer"):
            topic = self.rng.choice([topic for topic in self.topics if topic.kind in ("plain", "rolled")])
            consumers.append(self.world.member(f"{self.prefix}-live-{protocol}", [topic.name], group_protocol=protocol))
            if self.rng.random() < 0.5:
                offset = self.rng.randint(0, self.world.ends(topic.name)[1])
                consumers[-1].commit(offsets=[TopicPartition(topic.name, 0, offset)], asynchronous=False)
        with kept_alive(*consumers):
            yield

    # -- policy -----------------------------------------------------------------------------------------

    def policy(self) -> str:
        rng = self.rng
        lines = ["version: 1", f'groups: {{ignore: ["{self.stray}"], latest: ["{self.late}"]}}', "topics:"]
        lines.append(f'  - {{match: ["{self.prefix}-*", "_{self.prefix}-*"], retention.commitoffset.enable: false}}')
        for topic in self.topics:
            name, keys = topic.name, ["compacted: trim"] if topic.kind == "compacted" and rng.random() < 0.8 else []
            if (hours := rng.choice([None, 1, 24, rng.randint(1, 700), 970])) is not None:
                keys += ["retention.commitoffset.enable: true", f"retention.commitoffset.hours: {hours}"]
            if (hours := rng.choice([None, None, rng.randint(300, 980), rng.randint(1, 700)])) is not None:
                keys.append(f"retention.ms: {hours}h")
            keys += ["hold: a case"] * (rng.random() < 0.06)
            keys += ["allow.ancient: true"] * (topic.kind == "seconds" and rng.random() < 0.5)
            keys += [f"groups.require: [{rng.choice(self.groups)}]"] * (rng.random() < 0.08)
            match = name if not name.startswith("_") or rng.random() < 0.5 else f"{name[:-1]}?"
            lines.append(f"  - {{{', '.join([f'match: {json.dumps(match)}', *keys])}}}")
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        for producer in self._open:
            producer.abort_transaction(30)
        for done in self.world.admin.delete_topics([topic.name for topic in self.topics]).values():
            done.result(60)
