"""When a broker's answer to a look-up is taken, and when records are read instead (docs/rules.md, Look-ups)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from retention_cli.brokers.log_offsets import Answer, Found, NotFound, Spec
from retention_cli.brokers.records import Reached
from retention_cli.core.model import LookUp, TopicPartition
from retention_cli.observe.times import with_lookups
from retention_cli.policy.settings import Settings
from tests.support.facts import Log, topic

TP, T = TopicPartition("orders", 0), 1_700_000_000_000
READ = Reached(14, stopped=False, timestamp=T, record=14)


class Leader:
    """A cluster with one partition: what its leader answers to a time, and to MAX_TIMESTAMP."""

    clock = SimpleNamespace(monotonic=lambda: 0.0)

    def __init__(self, at_time: Answer, newest: Answer) -> None:
        self.answers: dict[Spec, Answer] = {T: at_time, "max-timestamp": newest}

    def list_offsets_soon(self, wanted: Sequence[Mapping[TopicPartition, Spec]], _leaders: object) -> Any:
        found = [{tp: self.answers[spec] for tp, spec in one.items()} for one in wanted]
        return SimpleNamespace(result=lambda: found)

    def search_records(self, searches: Mapping[TopicPartition, Any], _timeout_s: float) -> dict[TopicPartition, Any]:
        assert searches[TP].start == 10, "all from S on are looked at"
        return {TP: READ}


@pytest.mark.parametrize("about", [{"tiered": True}, {"diskless": True}, {}])
@pytest.mark.parametrize(
    ("at_time", "newest", "conclusive"),
    [
        (Found(10, T), NotFound(), True),
        (Found(20, T + 1), NotFound(), None),
        (NotFound(), Found(15, T - 1), None),
        (Found(20, T - 1), NotFound(), False),
        (Found(20), NotFound(), False),
        (NotFound(), NotFound(), False),
    ],
)
def test_answer_counts_if_every_record_before_it_is_older_for_certain(
    at_time: Answer, newest: Answer, conclusive: bool | None, about: dict[str, Any]
) -> None:
    """A broker passes over remote segments, and MAX_TIMESTAMP knows only those on its disks (KIP-405)."""
    facts = Log(10, [T] * 20).facts(Settings())._replace(topic=replace(topic(), **about))
    leader: Any = Leader(at_time, newest)
    found = with_lookups(leader, {TP: facts}, [T], {}, 10.0)[TP].lookups[T]
    assert isinstance(found, LookUp)
    as_answered = at_time.offset if isinstance(at_time, Found) else 30
    assert found.offset == (as_answered if (not about if conclusive is None else conclusive) else 14)
