"""The facts of a cluster that tasks get: values that are sent with the code. None of them is a secret.

The connection is a *reference*: the name of a file with the connection's settings, which the task opens where it runs
(:mod:`retention_cli.engines.spark.connections`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.topic_configs import TopicConfig
from retention_cli.engines.spark.connections import ConnectionRef
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.settings import Settings


@dataclass(frozen=True)
class ClusterJob:
    """One cluster's part of a plan.

    ``partitions`` has the partition count of each managed topic that may be trimmed, ``latest`` the groups that
    start at the end where they have no commit (F2). ``topic_ids`` are those of all topics, managed or not: all of a
    group's commits are remembered (F5, F6). ``configs`` are the settings that the client read first. ``now_ms`` is the
    time from which all cutoffs are calculated. ``ends_only``: nothing is decided, so no times or sizes are looked up.
    ``unread``: sizes and samples are, for what consumers have yet to read.
    """

    cluster: str
    connection: ConnectionRef
    timeout_s: float
    policy: Policy
    topics: tuple[str, ...]
    now_ms: int
    partitions: Mapping[str, int] = field(default_factory=dict)
    latest: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, TopicConfig | RequestFailedError] = field(default_factory=dict)
    lost: str | None = None
    ends_only: bool = False
    unread: bool = False

    def settings_for(self, topic: str) -> Settings | None:
        """Return a topic's settings, None if it is not selected or not managed."""
        if self.topics and not matches(self.topics, topic):
            return None
        return self.policy.settings_for(topic)


class SettingsCache:
    """Each topic's settings, computed once per task."""

    def __init__(self, jobs: Mapping[str, ClusterJob]) -> None:
        self._jobs = jobs
        self._known: dict[tuple[str, str], Settings | None] = {}

    def __call__(self, cluster: str, topic: str) -> Settings | None:
        """Return a topic's settings, None if it is not managed."""
        key = (cluster, topic)
        if key not in self._known:
            self._known[key] = self._jobs[cluster].settings_for(topic)
        return self._known[key]

    def managed(self, cluster: str, topic: str) -> Settings:
        """Return the settings of a slice's topic, which is managed."""
        found = self(cluster, topic)
        assert found is not None, f"{topic} is not managed"  # noqa: S101  (no slice has it)
        return found
