"""A copy of the audit log in a topic of its cluster, where the policy wants one (docs/audit.md).

The log on the disk is the record: a copy that fails stops nothing, and what it lacks is sent by the next trim.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Final

from retention_cli.audit import copies
from retention_cli.audit.log import AuditLog
from retention_cli.audit.otlp import export
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.state_dir import StateError
from retention_cli.policy.settings import AuditRules

SHIPPED_NAME: Final = "audit.shipped"


def ship(log: AuditLog, reader: ClusterReader, audit: AuditRules, cluster_id: str) -> str | None:
    """Send what each copy that the policy wants lacks, for a minute at the most (:data:`copies.MOST_S`), all in all.

    Only the holder of the trim lock may call it.

    Return why lines are left for the next trim, None if the copies have all of them.
    """
    left, deadline = [], time.monotonic() + copies.MOST_S
    if audit.otlp is not None:
        left.append(export(log, audit.otlp, audit.otlp_auth_file, cluster_id, reader.timeout_s, deadline))
    if audit.topic is not None:
        left.append(to_topic(log, reader, audit.topic, deadline))
    return "; ".join(one for one in left if one is not None) or None


def to_topic(log: AuditLog, reader: ClusterReader, topic: str, deadline: float) -> str | None:
    """Send the lines that the topic lacks, in order, to its partition 0, and wait until they are acknowledged.

    Lines may be sent twice, after a crash: they are then the same, byte by byte. Return why lines are left for the next
    trim, None if the topic has all.
    """
    folder = log.path.parent
    try:
        about = reader.metadata([topic]).topics.get(topic)
        if about is None:
            return f"topic {topic} is not there, or may not be described: make it, and the next trim sends the lines"
        config = reader.topic_configs([topic])[topic]
        if isinstance(config, TopicConfig) and "compact" in config.cleanup_policy:
            return f"topic {topic} is compacted, and would keep a line of each run: set its cleanup.policy to delete"
        place = {"topic": topic, "topic_id": about.topic_id}
        with ClusterWriter(reader.settings, {topic}, reader.timeout_s) as writer:
            unsent = copies.unsent(log, copies.reached_by(folder, SHIPPED_NAME, place))
            sent = False
            while lines := list(islice(unsent, copies.AT_ONCE)):
                if sent and time.monotonic() > deadline:
                    return f"topic {topic} lacks lines after {copies.MOST_S:g} s: the next trim goes on with them"
                answers = writer.append_all(topic, [(one.run.encode("utf-8", "replace"), one.value) for one in lines])
                failed = next((n for n, one in enumerate(answers) if isinstance(one, BrokerError)), len(lines))
                copies.remember(folder, SHIPPED_NAME, place, lines[:failed])
                sent = True
                if failed < len(lines):
                    return f"{answers[failed]}; the next trim sends the lines that it lacks"
    except (BrokerError, StateError) as error:
        return f"{error}; the next trim sends the lines that topic {topic} lacks"
    return None
