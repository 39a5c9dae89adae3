"""Recall in the client what the ledger has of a cluster's partitions, in columns: an object each is for odd ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.engines.spark.jobs import ClusterJob, Proofs, Recalled
from retention_cli.memory.documents import memory_as_bytes
from retention_cli.memory.interface import Memory
from retention_cli.memory.ledger import Ledger
from retention_cli.memory.partition_rows import has_samples_alone, partition_of


def recalled(job: ClusterJob, memory: Memory) -> Recalled:
    """Return what the ledger knows of the partitions, as it was before this run.

    Raises:
        StateError: a row is not what was written.
    """
    lost = None if memory.lost is None else memory.lost.reasons[0].text
    if not isinstance(memory, Ledger):
        return Recalled(lost=lost)
    places = job.places
    topics = {topic_id: index for index, topic_id in enumerate(places.ids) if topic_id is not None}
    whole = np.array([job.needs_memory(name) for name in places.names], bool)
    stamps = [created_now(job, name) for name in places.names]
    created = np.array([-1 if one is None else one for one in stamps], np.int8)
    memories: dict[int, bytes] = {}
    proofs = Proofs.of(len(places))
    keys = places.keys
    for rows in memory.stored_rows(topics):
        if not rows:
            continue
        indexes, positions = _positions(keys, topics, rows)
        plain = np.array([has_samples_alone(row) for row in rows], bool) & ~whole[indexes]
        there = positions >= 0
        some = np.flatnonzero(plain & there)
        if len(some):
            theirs = rows if len(some) == len(rows) else [rows[n] for n in some.tolist()]
            proofs.add_plain(positions[some], theirs, created[indexes[some]])
        for n in np.flatnonzero(~plain & there).tolist():
            one, position, index = partition_of(rows[n]), int(positions[n]), int(indexes[n])
            if whole[index]:
                memories[position] = memory_as_bytes(one)
            else:
                proofs.add(position, one, created=stamps[index])
    return Recalled(memories, proofs, lost)


def created_now(job: ClusterJob, topic: str) -> bool | None:
    """Return whether a topic is CreateTime now, None if that is unknown."""
    config = job.configs.get(topic)
    stamps = config.timestamp_type if isinstance(config, TopicConfig) else None
    return None if stamps is None else stamps == "CreateTime"


def _positions(keys: Any, topics: Mapping[str, int], rows: Sequence[Sequence[Any]]) -> tuple[Any, Any]:
    """Return the index of each row's topic, and the position of its partition, -1 if it is not among the places.

    ``keys`` are those of the places, ``topics`` the topics' indexes by id.
    """
    indexes = np.array([topics[row[0]] for row in rows], np.int64)
    wanted = indexes << 32 | np.array([row[1] for row in rows], np.int64)
    at = np.searchsorted(keys, wanted)
    there = np.append(keys, -1)[at] == wanted
    return indexes, np.where(there, at, -1)
