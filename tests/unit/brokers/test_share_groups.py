"""Dead letters of share groups that only point into a topic (F3, KIP-1191)."""

from __future__ import annotations

import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.share_groups import why
from retention_cli.brokers.topic_configs import Values

NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({NAME: "", COPY: "false"}, None),
        ({NAME: "dlq.q", COPY: "true"}, None),
        ({NAME: "dlq.q", COPY: "false"}, "its dead letters in dlq.q only point to records here"),
        ({NAME: "dlq.q", COPY: None}, "only point to records here"),
        ({NAME: "dlq.q"}, "only point to records here"),
        ({}, "its broker does not say"),
        ({NAME: None, COPY: "true"}, "its broker does not say"),
        (
            RequestFailedError("this user needs DESCRIBE_CONFIGS on the group", retriable=False),
            "needs DESCRIBE_CONFIGS",
        ),
    ],
)
def test_dead_letters_are_unknown_unless_they_are_copies_or_off(
    values: Values | RequestFailedError, said: str | None
) -> None:
    found = why(values)
    assert (found is None) if said is None else found is not None and said in found
