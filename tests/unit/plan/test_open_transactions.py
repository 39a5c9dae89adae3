"""Who holds a row back by an open transaction (G1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.transactions import OpenTransaction
from retention_cli.core.model import Decision, Reason
from retention_cli.plan.open_transactions import owner_text, with_owners

HELD = Reason("G1", "R1 would trim to 7, but an open transaction begins at 3")


def kept(partition: int, *reasons: Reason) -> Decision:
    return Decision("t", "id", partition, "keep", 3, 9, 3, 7, "group:g", None, 0, 0, 0, None, None, reasons)


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (
            OpenTransaction(5, 1_000, "orders", 2_000),
            "of transactional.id orders (producer 5), open since 1970-01-01T00:00:02.000Z",
        ),
        (OpenTransaction(5, 1_000, "orders"), "of transactional.id orders (producer 5)"),
        (OpenTransaction(5, 1_000), "of producer 5, which last wrote there at 1970-01-01T00:00:01.000Z"),
    ],
)
def test_known_owner_of_an_open_transaction_is_named(owner: OpenTransaction, text: str) -> None:
    assert owner_text(owner) == text


def test_transaction_owner_changes_only_the_reason_about_that_transaction() -> None:
    held = kept(0, HELD, Reason("G1", "R1 would trim to 9, but the high watermark"))
    other = kept(1, HELD)
    owner = OpenTransaction(5, 1_000, "orders")
    reader: Any = SimpleNamespace(open_transactions=lambda _partitions: {held.tp: owner})
    named = with_owners(reader, [held, other])
    assert [one.text for one in named[0].reasons] == [f"{HELD.text}, {owner_text(owner)}", held.reasons[1].text]
    assert named[1] == other
