"""Tell what kind of cluster this is, as far as its names and its cluster id show it (docs/platforms.md). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Release = tuple[int, ...]
"""A version of Apache Kafka, such as (3, 9)."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What a cluster seems to be. ``sign`` is what shows it; ``docs`` is its section.

    ``kafka_apis`` is the release of Apache Kafka whose APIs it offers, None if it does not run Kafka's code.
    """

    name: str
    sign: str
    docs: str
    kafka_apis: str | None

    def __str__(self) -> str:
        apis = "" if self.kafka_apis is None else f", with the APIs of Kafka {self.kafka_apis}"
        return f"{self.name}{apis} ({self.sign}): see {self.docs}"


_HOSTS: Final = (
    ("Amazon MSK Serverless", "amazon-msk", r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"),
    ("Amazon MSK", "amazon-msk", r"\.kafka\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"),
    ("Confluent Cloud", "confluent-cloud", r"\.confluent\.cloud"),
    ("Aiven", "aiven", r"\.aivencloud\.com"),
    ("Redpanda", "redpanda", r"\.cloud\.redpanda\.com"),
    ("Azure Event Hubs", "azure-event-hubs", r"\.servicebus\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)"),
    ("Google Managed Kafka", "google-managed-kafka", r"\.managedkafka\..+\.cloud\.goog"),
    ("WarpStream", "warpstream", r"\.warpstream\.com"),
    ("StreamNative", "streamnative", r"\.snio\.cloud"),
    ("Strimzi", "strimzi", r"-kafka-(bootstrap|brokers)(\..*)?"),
)
"""A platform, its section, and how its host names end."""
_APACHE: Final = ("Apache Kafka", "nothing shows a provider or another product", "apache-kafka")
_OWN_CODE: Final = ("Redpanda", "Azure Event Hubs", "WarpStream", "StreamNative")
_NEWEST: Final = (4, 3)
"""The newest release that its APIs tell apart from the one before."""


def platform_of(hosts: Iterable[str], cluster_id: str, release: Release | None) -> Platform:
    """Return what kind of cluster this is; Apache Kafka if nothing says otherwise.

    Args:
        hosts: the host names of the brokers, and those that we connected to.
        cluster_id: the cluster's id.
        release: the release of Apache Kafka that the brokers' APIs come to, None if that is unknown.
    """
    names = [host.lower().rstrip(".") for host in hosts]
    by_hosts = (
        (name, "by its host names", section)
        for name, section, ends in _HOSTS
        if any(re.search(f"{ends}$", host) for host in names)
    )
    by_id = ("Redpanda", "by its cluster id", "redpanda")
    name, sign, section = by_id if cluster_id.startswith("redpanda.") else next(by_hosts, _APACHE)
    apis = None
    if release is not None and name not in _OWN_CODE:
        apis = ".".join(map(str, release)) + (" or later" if release >= _NEWEST else "")
    return Platform(name, sign, f"docs/platforms.md#{section}", apis)
