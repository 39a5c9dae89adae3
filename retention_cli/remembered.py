"""What is remembered of each partition, laid beside what is read of it, and added to (RULES.md G3, F5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from retention_cli.brokers.log_offsets import Found, Leaders, NotFound
from retention_cli.brokers.reader import ClusterReader
from retention_cli.guards.wall_clock import telling
from retention_cli.memory import Memory, PartitionMemory
from retention_cli.model import PartitionFacts, Sample, TopicPartition, Unknown
from retention_cli.policy.settings import Settings


@dataclass(slots=True)
class Remembered:
    """The memory of one pass over a cluster.

    Args:
        memory: what is remembered of the cluster.
        settings: by topic.
        leaders: who leads each partition, and in which epoch.
        ends_read_ms: our wall clock right after H was read: nothing below it was written later.
        now_ms: the clock of all cutoffs.
    """

    memory: Memory
    settings: Mapping[str, Settings]
    leaders: Leaders
    ends_read_ms: int
    now_ms: int
    partitions: dict[TopicPartition, PartitionMemory] = field(default_factory=dict)

    def recall(self, facts: dict[TopicPartition, PartitionFacts], reader: ClusterReader) -> None:
        """Note leftovers (F5), and lay in the samples of each partition whose policy asks for them (G3)."""
        self.memory.note_leftovers(leftover_ends(facts))
        old: dict[tuple[TopicPartition, int], int] = {}
        for tp, one in facts.items():
            topic_id = one.topic.topic_id
            if isinstance(topic_id, Unknown):
                self.partitions[tp] = PartitionMemory()
                continue
            memory = self.partitions[tp] = self.memory.partition(tp.topic, topic_id, tp.partition)
            wait_ms = self.settings[tp.topic].min_wallclock_ms
            if wait_ms is not None and not isinstance(one.high_watermark, Unknown):
                now = self._sample(tp, one.high_watermark)
                samples = (*memory.samples, now)
                facts[tp] = one._replace(samples=self.memory.lost or samples)
                index = telling(samples, self.now_ms - wait_ms)
                if index is not None and samples[index].leader_epoch not in (-1, now.leader_epoch):
                    old[tp, samples[index].leader_epoch] = index
        if old:
            self._check_epochs(old, facts, reader)

    def _check_epochs(
        self,
        old: Mapping[tuple[TopicPartition, int], int],
        facts: dict[TopicPartition, PartitionFacts],
        reader: ClusterReader,
    ) -> None:
        """Ask where the leader epochs of old samples ended: what lies beyond was lost, and written anew (G3)."""
        leaders = {tp: self.leaders[tp] for tp, _epoch in old}
        for (tp, epoch), answer in reader.epoch_ends(list(old), leaders).items():
            samples = facts[tp].samples
            if isinstance(samples, Unknown) or isinstance(answer, NotFound):  # forgotten with its records
                continue
            index = old[tp, epoch]
            if isinstance(answer, Found):
                kept = samples[index]._replace(high_watermark=min(samples[index].high_watermark, answer.offset))
                facts[tp] = facts[tp]._replace(samples=(*samples[:index], kept, *samples[index + 1 :]))
            else:
                text = f"the end of leader epoch {epoch} could not be read: {answer}"
                facts[tp] = facts[tp]._replace(samples=Unknown.because("G3", text))

    def add(self, facts: Mapping[TopicPartition, PartitionFacts]) -> None:
        """Add this pass to what is remembered: each high watermark, and when it was that."""
        for tp, memory in self.partitions.items():
            end = facts[tp].high_watermark
            if not isinstance(end, Unknown):
                memory.add_sample(self._sample(tp, end))

    def _sample(self, tp: TopicPartition, high_watermark: int) -> Sample:
        return Sample(self.ends_read_ms, high_watermark, self.leaders[tp].leader_epoch)


def leftover_ends(facts: Mapping[TopicPartition, PartitionFacts]) -> dict[tuple[str, int], int]:
    """Return the high watermarks of the partitions of which some commit lies beyond (RULES.md F5)."""
    return {
        (tp.topic, tp.partition): one.high_watermark
        for tp, one in facts.items()
        if isinstance(one.floor, Unknown)
        and not isinstance(one.high_watermark, Unknown)
        and any(reason.code == "F5" for reason in one.floor.reasons)
    }
