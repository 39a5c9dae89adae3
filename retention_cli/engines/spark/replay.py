"""``kretain replay`` over Spark: each task decides all runs again for a share of the topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa

from retention_cli.archive.store import Store
from retention_cli.core.grouping import by_key
from retention_cli.core.json_values import loads
from retention_cli.engines.spark.session import SparkError, runs_here, slots
from retention_cli.engines.spark.shipping import Row, Sender, Sent, run_tasks
from retention_cli.evidence.format import as_json
from retention_cli.evidence.replay import Day, Difference, Held, Recorded, Replayed, merged, replay
from retention_cli.policy.model import Policy

_SHARES = pa.schema([("share", pa.int32()), ("text", pa.string())])
"""Of each share: its sums as JSON, then a row for each difference."""
_Work = tuple[Sequence[Recorded], Sequence[str], Policy]


def replay_over(sender: Sender, runs: Sequence[Recorded], policy: Policy) -> Replayed:
    """Decide the runs' rows again under a policy, over Spark.

    Raises:
        SparkError: Spark could not run it, or the evidence is where executors can't read it.
    """
    urls = [one.store.url for one in runs]
    here = next((url for url in urls if "://" not in url or url.startswith("file:")), None)
    if here is not None and not runs_here(sender.session):
        raise SparkError(
            f"the evidence {here} is on this machine: copy it to where Spark's executors can read it, and name that "
            f"with --evidence URL; or replay without --spark"
        )
    nowhere: Any = None  # a task has its own: credentials are those of the executors
    work: _Work = ([one._replace(store=nowhere) for one in runs], urls, policy)
    count, sent = slots(sender.session), sender.send(work)
    rows = run_tasks(sender.session, partial(_rows, sent, count), _SHARES, count, "Spark could not replay the runs")
    texts: dict[int, list[str]] = by_key((row["share"], row["text"]) for row in rows)
    return merged(runs, [_replayed(texts[share]) for share in range(count)])


def _replayed(texts: Sequence[str]) -> Replayed:
    decisions, days, totals, unsized, reasons = loads(texts[0])
    return Replayed(
        (),
        decisions,
        [Day(*one) for one in days],
        totals,
        unsized,
        [Held(*one) for one in reasons],
        lambda: (Difference(*loads(one)) for one in texts[1:]),
    )


def _rows(sent: Sent[_Work], shares: int, share: int) -> Iterator[Row]:
    """Decide a share of the topics, in a task; yield rows of :data:`_SHARES`."""
    bare, urls, policy = sent.load()
    store = cache(Store)
    runs = [one._replace(store=store(url)) for one, url in zip(bare, urls, strict=True)]
    found = replay(runs, policy, share=(share, shares))
    head = (found.decisions, found.days, found.totals, found.unsized, found.reasons)
    for one in (head, *found.differences()):
        yield {"share": share, "text": as_json(one)}
