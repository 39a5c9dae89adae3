"""What kind of cluster `kretain doctor` sees, by host names and cluster id; its link leads to a section of the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention_cli.reports.doctor import Platform, platform_of

DOCS = Path(__file__).parents[3]
ID = "kNPKKYq_QvOnBaZb46V_BQ"


@pytest.mark.parametrize(
    ("hosts", "cluster_id", "name", "apis"),
    [
        (["broker-1", "10.0.0.7"], ID, "Apache Kafka", "3.9"),
        (["boot-x1.c2.kafka-serverless.eu-central-1.amazonaws.com"], ID, "Amazon MSK Serverless", "3.9"),
        (["b-1.prod.x1.c2.kafka.eu-central-1.amazonaws.com"], ID, "Amazon MSK", "3.9"),
        (["b-1.prod.x1.c2.kafka.cn-north-1.amazonaws.com.cn"], ID, "Amazon MSK", "3.9"),
        (["PKC-1.eu-central-1.aws.Confluent.cloud."], "lkc-1", "Confluent Cloud", "3.9"),
        (["kafka-1.aivencloud.com"], ID, "Aiven", "3.9"),
        (["localhost"], "redpanda.9722a164-329b-4c17-8b03-e3109f0e9196", "Redpanda", None),
        (["seed-1.x.fmc.prd.cloud.redpanda.com"], ID, "Redpanda", None),
        (["namespace.servicebus.windows.net"], ID, "Azure Event Hubs", None),
        (["bootstrap.c.europe-west3.managedkafka.project.cloud.goog"], ID, "Google Managed Kafka", "3.9"),
        (["api-1.kafka.discoveryv2.prod-z.us-east-1.warpstream.com"], ID, "WarpStream", None),
        (["pc-1.aws-euc1.streamnative.g.snio.cloud"], ID, "StreamNative", None),
        (["10.0.0.7", "prod-dual-role-0.prod-kafka-brokers.kafka.svc"], ID, "Strimzi", "3.9"),
        (["prod-kafka-bootstrap"], ID, "Strimzi", "3.9"),
        (
            ["kafka.amazonaws.com.example.net", "confluent.cloud.example", "notconfluent.cloud.x"],
            ID,
            "Apache Kafka",
            "3.9",
        ),
    ],
)
def test_platform_is_told_by_host_names_or_cluster_id(
    hosts: list[str], cluster_id: str, name: str, apis: str | None
) -> None:
    found = platform_of(hosts, cluster_id, (3, 9))
    assert (found.name, found.kafka_apis) == (name, apis)
    page, _, section = found.docs.partition("#")
    headings = [
        line[3:].lower().replace(" ", "-") for line in (DOCS / page).read_text().splitlines() if line[:3] == "## "
    ]
    assert section in headings


@pytest.mark.parametrize(
    ("release", "apis"),
    [(None, None), ((2, 8), "2.8"), ((4, 2), "4.2"), ((4, 3), "4.3 or later"), ((5, 0), "5.0 or later")],
)
def test_release_is_named_where_the_apis_show_it(release: tuple[int, ...] | None, apis: str | None) -> None:
    found = platform_of(["broker-1"], ID, release)
    assert found.kafka_apis == apis
    assert found == Platform(found.name, found.sign, "docs/platforms.md#apache-kafka", apis)
    assert ("APIs" in str(found)) == (apis is not None)
