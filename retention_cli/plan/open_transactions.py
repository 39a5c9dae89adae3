"""Say who holds a row back by an open transaction (G1), and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.log_offsets import OpenTransaction
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.codes import Code
from retention_cli.core.model import Decision, Reason
from retention_cli.core.units import timestamp
from retention_cli.decide.guards.log_end import OPEN

_MOST: Final = 1_000
"""So many partitions are asked about; the others' rows say where the transaction begins."""


def with_owners(reader: ClusterReader, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """Return the decisions, with the owners of open transactions in their reasons, where brokers name them."""
    stopped = [index for index, one in enumerate(decisions) if any(map(_is_open, one.reasons))][:_MOST]
    if not stopped:
        return decisions
    try:
        owners = reader.open_transactions([decisions[index].tp for index in stopped])
    except BrokerError:
        return decisions
    found = list(decisions)
    for index in stopped:
        if (owner := owners.get(found[index].tp)) is not None:
            reasons = tuple(
                Reason(one.code, f"{one.text}, {owner_text(owner)}") if _is_open(one) else one
                for one in found[index].reasons
            )
            found[index] = found[index]._replace(reasons=reasons)
    return found


def owner_text(owner: OpenTransaction) -> str:
    """Return who has a transaction open, and since when."""
    if owner.name is None:
        return f"of producer {owner.producer}, which last wrote there at {timestamp(owner.last_write_ms)}"
    since = "" if owner.since_ms is None else f", open since {timestamp(owner.since_ms)}"
    return f"of transactional.id {owner.name} (producer {owner.producer}){since}"


def _is_open(reason: Reason) -> bool:
    return reason.code == Code.G1 and OPEN in reason.text
