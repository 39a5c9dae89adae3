"""What an observation says of a topic's consumers, to be kept with its records. Pure, but for the groups' kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retention_cli.archive.positions import Kind, Positions, Stood
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.consumers import is_outside, is_share, plain_name
from retention_cli.core.grouping import by_key
from retention_cli.core.model import TopicPartition, known
from retention_cli.observe.floors.fold import CommitRow, position_of
from retention_cli.observe.request import Observation


def kinds_of(reader: ClusterReader) -> dict[str, Kind]:
    """Return the kinds of the cluster's groups by name; those that members read records for are ``group``.

    Raises:
        BrokerError: a broker did not list its groups.
    """
    return {one.name: "streams" if one.kind == "streams" else "group" for one in reader.list_groups(reader.brokers())}


def positions_of(observed: Observation, kinds: Mapping[str, Kind]) -> dict[str, Positions]:
    """Return what an observation with rows says of each topic's consumers, and what of it belongs to this log (F5)."""
    topics = {tp.topic: one.topic for tp, one in observed.facts.items()}
    ends = observed.epoch_ends_by_partition()
    of = by_key(((name, row.group), row) for row in observed.rows for name in topics if row.topic in (None, name))

    def stood(rows: Sequence[CommitRow]) -> Stood:
        read = (row for row in rows if row.kind != "failed")
        return Stood(
            plain_name(rows[0].group),
            _kind(rows[0], kinds),
            {row.partition: _offset(row, observed, ends) for row in read if row.partition is not None},
            next((row.text for row in rows if row.kind == "failed"), None),
        )

    return {
        name: Positions(
            observed.cluster_id,
            name,
            topic_id,
            observed.ends_read_ms,
            tuple(one.leader_epoch for tp, one in sorted(observed.facts.items()) if tp.topic == name),
            tuple(stood(rows) for (topic, group), rows in sorted(of.items()) if group and topic == name),
            next((row.text or "" for row in of.get((name, ""), ())), None),
        )
        for name, facts in topics.items()
        if (topic_id := known(facts.topic_id)) is not None
    }


def _kind(row: CommitRow, kinds: Mapping[str, Kind]) -> Kind:
    if is_outside(row.group):
        return "share" if is_share(row.group) else "outside"
    return kinds.get(row.group, "gone" if row.kind == "gone" else "group")


def _offset(
    row: CommitRow, observed: Observation, ends: Mapping[TopicPartition, Mapping[int, int | None]]
) -> int | None:
    """Return the position that a row gives, None if it is not proven to be one in this log."""
    tp = TopicPartition(str(row.topic), row.partition or 0)
    facts = observed.facts.get(tp)
    end = None if facts is None else known(facts.high_watermark)
    if facts is None or end is None or (row.leader_epoch is None and (tp in observed.cuts or tp in observed.doubts)):
        return None
    offset = position_of(row, facts.leader_epoch, ends.get(tp, {}))
    return None if offset is None or offset > end else offset
