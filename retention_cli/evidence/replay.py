"""Replay: decide every recorded run again under another policy, and compare what it would leave with what was left.

A log has two starts here: the real one, and the one that the policy would have given it. Both begin where the first run
saw it, and both move when brokers delete. A record that was really deleted is not in later facts: under the policy it
counts as deleted once that would trim beyond it.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.store import Store
from retention_cli.core.extras import arrow, texts_of
from retention_cli.core.garbage import collection_paused
from retention_cli.core.model import Decision, Reason
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import StateError
from retention_cli.evidence.format import FACTS, RESULTS, RESULTS_NAME, groups_of, is_file_name, rows_of
from retention_cli.evidence.redecide import CODE, redecide
from retention_cli.evidence.value import NONE, Numbers, Row
from retention_cli.evidence.writer import FOLDER
from retention_cli.policy.model import Policy

Mask = npt.NDArray[np.bool_]
DAY_MS: Final = 86_400_000
_NO_EVIDENCE: Final = (
    "no evidence found; trims and kretain plan --evidence write it. If the policy's evidence is a "
    "URL, give --evidence with the cluster's folder there"
)


class Recorded(NamedTuple):
    """A run that left evidence: its name, when it began (Unix ms), its cluster's folder, and its files."""

    run: str
    at_ms: int
    cluster: str
    store: Store
    paths: Sequence[str]

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each file, rechecks first.

        Raises:
            StateError: one can't be read.
        """
        for path in self.paths:
            try:
                yield path.rpartition("/")[2], self.store.read(path)
            except ArchiveError as error:
                raise StateError(f"the evidence {error}") from None


def recorded(
    state_dir: Path, url: str | None = None, since_ms: int | None = None, until_ms: int | None = None
) -> list[Recorded]:
    """Return the runs that left evidence in that time, oldest first.

    Args:
        state_dir: the folder of the audit logs, with evidence next to them.
        url: the folder of a cluster's evidence instead.
        since_ms: from this time on (Unix ms), None: from the first on.
        until_ms: before this time (Unix ms), None: to the last.

    Raises:
        StateError: it can't be listed, or there is none.
    """
    locations = [str(one) for one in sorted(state_dir.glob(f"*/{FOLDER}"))] if url is None else [url]
    found: dict[tuple[str, str], tuple[Store, list[str]]] = {}
    for place in locations:
        cluster = place.partition("?")[0].rstrip("/").removesuffix(f"/{FOLDER}").rpartition("/")[2]
        try:
            store = Store(place)
            for path in store.files():
                run, _, name = path.rpartition("/")
                if run and "/" not in run and is_file_name(name):
                    found.setdefault((run, cluster), (store, []))[1].append(path)
        except ArchiveError as error:
            raise StateError(f"evidence: {error}") from None
    runs = []
    for (run, cluster), (store, paths) in sorted(found.items()):
        with suppress(ValueError):  # a folder that is no run's
            at_ms = round(1000 * datetime.strptime(f"{run[:16]}+0000", "%Y%m%dT%H%M%SZ%z").timestamp())
            if (since_ms is None or at_ms >= since_ms) and (until_ms is None or at_ms < until_ms):
                runs.append(Recorded(run, at_ms, cluster, store, sorted(paths)))
    if not runs:
        raise StateError(_NO_EVIDENCE)
    return runs


def rows_about(one: Recorded, topic: str, partition: int | None) -> list[Row]:
    """Return what a run's last recheck of a topic, or of one of its partitions, has of each partition.

    Raises:
        EvidenceError: a file is damaged.
    """
    found: dict[int, Row] = {}
    equal = arrow("pyarrow.compute").equal
    for name, content in one.read():
        if name == RESULTS_NAME:
            continue
        for table in groups_of(name, content, FACTS, ("lookups",)):
            some = table.filter(equal(table.column("topic").cast("string"), topic))
            if partition is not None:
                some = some.filter(equal(some.column("partition"), partition))
            found |= {row.facts.partition: row for row in rows_of(some)}
    return [row for _, row in sorted(found.items())]


class Day(NamedTuple):
    """What logs held after a day's last run (bytes on leaders): really, and under the policy."""

    start_ms: int
    retained: int
    under_policy: int


class Held(NamedTuple):
    """Why decisions were to hold, by code: how many, and the first text in the first run, whose number is ``run``."""

    code: str
    decisions: int
    text: str
    run: int = 0


class Difference(NamedTuple):
    """What a policy would have done otherwise with a partition, in records.

    ``earlier`` ones it deletes before they really were deleted, if they ever were; ``later`` ones after that; ``never``
    ones were deleted, and it would still have them. ``unread`` ones it deletes before a group has read them, first in
    ``unread_run``, and ``unread_by`` is the group furthest behind. In ``held`` runs it holds, in ``lacking`` of them
    because the evidence lacks a fact.
    """

    cluster: str
    topic: str
    partition: int
    earlier: int
    later: int
    never: int
    same: int
    unread: int
    unread_by: str | None
    unread_run: str | None
    held: int
    lacking: int


@dataclass(frozen=True)
class Replayed:
    """A policy's replay over runs.

    ``decisions`` were made again. ``totals`` has the sums over :class:`Difference`, and ``partitions``, ``held`` and
    ``lacking`` count partitions. ``unsized`` ones have no known size: days lack them. ``differences`` yields the
    partitions with any difference or hold, by cluster, topic and number.
    """

    runs: Sequence[Recorded]
    decisions: int
    days: Sequence[Day]
    totals: Mapping[str, int]
    unsized: int
    reasons: Sequence[Held]
    differences: Callable[[], Iterator[Difference]]


def merged(runs: Sequence[Recorded], shares: Sequence[Replayed]) -> Replayed:
    """Return a replay over runs, given that of each share of their topics."""
    reasons: dict[str, Held] = {}
    for one in shares:
        for held in one.reasons:
            _add(reasons, held)
    days = [
        Day(some[0].start_ms, sum(one.retained for one in some), sum(one.under_policy for one in some))
        for some in zip(*(one.days for one in shares), strict=True)
    ]
    decisions, unsized = sum(one.decisions for one in shares), sum(one.unsized for one in shares)
    totals = {name: sum(one.totals[name] for one in shares) for name in shares[0].totals}

    def differences() -> Iterator[Difference]:
        return heapq.merge(*(one.differences() for one in shares), key=lambda one: (one.cluster, one.topic))

    return Replayed(runs, decisions, days, totals, unsized, _sorted(reasons), differences)


def _add(reasons: dict[str, Held], one: Held) -> None:
    was = reasons.get(one.code, one._replace(decisions=0))
    first = min(was, one, key=lambda each: (each.run, each.text))
    reasons[one.code] = first._replace(decisions=was.decisions + one.decisions)


def _holds(decisions: Sequence[Decision | None]) -> list[Sequence[Reason] | None]:
    """Return why each decision is a hold, None if it is none."""
    return [one.reasons if one is not None and one.action == "hold" else None for one in decisions]


def _sorted(reasons: Mapping[str, Held]) -> list[Held]:
    return sorted(reasons.values(), key=lambda one: (-one.decisions, one.code))


def _of_share(tables: Iterator[Any], cluster: str, share: tuple[int, int]) -> Iterator[Any]:
    """Yield what tables have of a share of the topics."""
    (number, of), pa = share, arrow()
    for table in tables:
        if of == 1:
            yield table
            continue
        names, which = texts_of(table.column("topic"))
        hashes = [zlib.crc32(f"{cluster}/{name}".encode("utf-8", "surrogatepass")) for name in names]
        mine = table.filter(pa.array((np.array(hashes, np.int64) % of == number)[which]))
        own = [  # without the texts of other shares
            one.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(one.type) else one
            for one in mine.columns
        ]
        yield pa.table(own, names=table.column_names)


@collection_paused()
def replay(
    runs: Sequence[Recorded], policy: Policy, progress: Progress = silent, share: tuple[int, int] = (0, 1)
) -> Replayed:
    """Decide the runs' rows again under a policy.

    ``share`` is a share's number and how many shares there are: only its topics; :func:`merged` joins all shares.

    Raises:
        EvidenceError: a file is damaged.
        StateError: a file can't be read.
        PolicyError: R1 is enabled for a topic without a time.
    """
    settings_for, logs = cache(policy.settings_for), _Logs()
    reasons: dict[str, Held] = {}
    days: dict[int, Day] = {}
    decisions = 0

    def again(row: Row) -> Decision | None:
        """Return the decision under the policy, None if it does not have the topic."""
        settings = settings_for(row.facts.topic.name)
        return None if settings is None else redecide(row, settings, policy.disks)

    for number, one in enumerate(runs, start=1):
        progress("deciding recorded runs again", number, len(runs))
        for name, content in one.read():
            if name == RESULTS_NAME:
                for table in _of_share(groups_of(name, content, _RESULT_COLUMNS), one.cluster, share):
                    logs.really(one, table)
                continue
            for table in _of_share(groups_of(name, content, FACTS, ("lookups",)), one.cluster, share):
                decisions += len(table)
                found = [*map(again, rows_of(table))]
                holds = _holds(found)
                for why in filter(None, holds):
                    _add(reasons, Held(why[0].code, 1, why[0].text, number))
                logs.recheck(number, one, table, found, holds)
        logs.compare(number)
        start = one.at_ms // DAY_MS * DAY_MS
        days[start] = Day(start, *logs.retained_bytes())
    held, unsized = _sorted(reasons), int(np.isnan(logs.of["each"]).sum())
    return Replayed(runs, decisions, [*days.values()], logs.totals(), unsized, held, logs.differences)


_RESULT_COLUMNS: Final = {
    name: RESULTS[name] for name in ("topic", "partition", "outcome", "final", "request_offset", "log_start_after")
}
_COUNTS: Final = ("earlier", "later", "same", "unread", "held", "lacking")
_UNKNOWN: Final = ("real", "new", "end")


def numbers(table: Any, name: str) -> Numbers:
    """Return a column of numbers, −1 where there is none."""
    return cast(Numbers, table.column(name).fill_null(NONE).to_numpy().astype(np.int64))


class _Logs:
    """Every log of the runs so far, as columns ordered by key: a topic's number and a partition."""

    def __init__(self) -> None:
        self.keys: Numbers = np.zeros(0, np.int64)
        self.of: dict[str, Any] = {
            name: np.zeros(0, np.int64) for name in (*_UNKNOWN, *_COUNTS, "real_was", "new_was", "run")
        }
        self.of["each"] = np.zeros(0)  # bytes of a record, about; nan: unknown
        self.numbers: dict[tuple[str, str, str], int] = {}
        self.names: list[tuple[str, str]] = []
        self.current: dict[tuple[str, str], int] = {}
        self.unread: dict[int, tuple[str, str | None]] = {}

    def _number(self, cluster: str, about: str) -> int:
        """Return a topic's number. A topic that was created again is another one, and the former one is gone."""
        found = json.loads(about)
        topic, topic_id = str(found["name"]), found["topic_id"] if isinstance(found["topic_id"], str) else ""
        if (number := self.numbers.get((cluster, topic, topic_id))) is None:
            number = self.numbers[cluster, topic, topic_id] = len(self.names)
            self.names.append((cluster, topic))
        if self.current.setdefault((cluster, topic), number) != number:
            self.of["each"][self.keys >> 32 == self.current[cluster, topic]] = 0
            self.current[cluster, topic] = number
        return number

    def _there(self, keys: Numbers) -> Mask:
        """Return which keys are in the columns: numpy's own isin and unique take many times as long."""
        return cast(Mask, np.append(self.keys, -1)[np.searchsorted(self.keys, keys)] == keys)

    def _row_indexes(self, keys: Numbers) -> Numbers:
        """Return where logs are in the columns; make room for new ones."""
        if not self._there(keys).all():
            every = np.union1d(self.keys, keys)
            indexes = np.searchsorted(every, self.keys)
            for name, old in self.of.items():
                self.of[name] = np.full(len(every), -1 if name in _UNKNOWN else 0, old.dtype)
                self.of[name][indexes] = old
            self.keys = every
        return np.searchsorted(self.keys, keys)

    def recheck(
        self,
        run: int,
        one: Recorded,
        table: Any,
        again: Sequence[Decision | None],
        holds: Sequence[Sequence[Reason] | None],
    ) -> None:
        """Take in a recheck's rows, and what the policy decides for each; None: it does not have the topic.

        ``holds`` has why each decision is a hold (:func:`_holds`).
        """
        about = table.column("topic_facts").unify_dictionaries().combine_chunks()
        if not (topics := [self._number(one.cluster, text) for text in about.dictionary.to_pylist()]):
            return
        keys = np.array(topics, np.int64)[about.indices.to_numpy()] << 32 | numbers(table, "partition")
        at, of = self._row_indexes(keys), self.of
        start, end, size, floor = (
            numbers(table, name) for name in ("log_start", "high_watermark", "size_bytes", "floor")
        )
        first = (of["real"][at] < 0) & (start >= 0)
        for name in ("real", "new"):
            of[name][at] = np.where(first, start, of[name][at])
        fresh = (of["run"][at] != run) & (start >= 0)
        real, new = of["real"][at], of["new"][at]
        gone = fresh & (start > real)  # by brokers, or another tool: under the policy, too
        of["later"][at] += np.where(gone, np.maximum(real - new, 0), 0)
        real, new = np.where(gone, start, real), np.where(gone, np.maximum(start, new), new)
        for name, value in (("real_was", real), ("new_was", new), ("run", run)):
            of[name][at] = np.where(fresh, value, of[name][at])
        target = np.array([NONE if one is None or one.trim_to is None else one.trim_to for one in again], np.int64)
        unread = np.where(target >= 0, np.maximum(target - np.maximum(floor, new), 0), 0)
        of["unread"][at] += unread
        by = table.column("floor_by")
        for n in np.flatnonzero(unread).tolist():
            self.unread.setdefault(int(keys[n]), (one.run, by[n].as_py()))
        of["real"][at], of["new"][at] = real, np.maximum(new, target)
        of["held"][at] += [why is not None for why in holds]
        of["lacking"][at] += [any(one.code == CODE for one in why or ()) for why in holds]
        of["end"][at] = np.where(end >= 0, end, of["end"][at])
        records = np.maximum(end - start, 1)
        of["each"][at] = np.where(end == start, of["each"][at], np.where(size >= 0, size / records, np.nan))

    def really(self, one: Recorded, table: Any) -> None:
        """Take in the outcomes of a run's requests: a log start that was read back, or the one asked for."""
        outcomes = arrow().array(["trimmed", "unverified"])
        table = table.filter(arrow("pyarrow.compute").is_in(table.column("outcome").cast("string"), outcomes))
        topics = table.column("topic").unify_dictionaries().combine_chunks()
        if not (known := [self.current.get((one.cluster, name), -1) for name in topics.dictionary.to_pylist()]):
            return
        keys = np.array(known, np.int64)[topics.indices.to_numpy()] << 32 | numbers(table, "partition")
        there = self._there(keys)
        at = np.searchsorted(self.keys, keys[there])
        after = np.maximum(numbers(table, "log_start_after"), numbers(table, "request_offset"))[there]
        np.maximum.at(self.of["real"], at, after)

    def compare(self, run: int) -> None:
        """Count what a run, now complete, and the policy have deleted."""
        of = self.of
        this: Mask = (of["run"] == run) & (of["real"] >= 0)
        real, new, real_was, new_was = of["real"], of["new"], of["real_was"], of["new_was"]
        for name, to, since in (
            ("earlier", new, np.maximum(new_was, real)),
            ("same", np.minimum(new, real), np.maximum(new_was, real_was)),
            ("later", np.minimum(new, real_was), new_was),
        ):
            of[name] += np.where(this, np.maximum(to - since, 0), 0)

    def retained_bytes(self) -> tuple[int, int]:
        """Return about how many bytes all logs hold: really, and under the policy."""
        of = self.of
        each = np.nan_to_num(np.where(of["real"] >= 0, of["each"], 0))
        real, new = (np.maximum(of["end"] - of[name], 0) * each for name in ("real", "new"))
        return int(real.astype(np.int64).sum()), int(new.astype(np.int64).sum())  # integers: the same in any order

    @property
    def never(self) -> Numbers:
        """How many records were really deleted but would still exist, by log."""
        return cast(Numbers, np.maximum(self.of["real"] - self.of["new"], 0))

    def totals(self) -> dict[str, int]:
        """Return records by how they differ, and how many partitions there are, on hold, and lacking evidence."""
        sums = {name: int(self.of[name].sum()) for name in ("earlier", "later", "same", "unread")}
        never, held, lacking = (int(one.sum()) for one in (self.never, self.of["held"] > 0, self.of["lacking"] > 0))
        return {**sums, "never": never, "partitions": len(self.keys), "held": held, "lacking": lacking}

    def differences(self) -> Iterator[Difference]:
        """Yield what differs, by cluster, topic and partition."""
        of, never = self.of, self.never
        found = np.flatnonzero(never + sum(of[name] for name in _COUNTS if name != "same"))
        names = [self.names[one] for one in (self.keys[found] >> 32).tolist()]
        for n, (cluster, topic) in sorted(zip(found.tolist(), names, strict=True), key=lambda one: (one[1], one[0])):
            key = int(self.keys[n])
            count: dict[str, Any] = {name: int(of[name][n]) for name in _COUNTS}
            run, by = self.unread.get(key, (None, None))
            yield Difference(
                cluster, topic, key & 0xFFFFFFFF, **count, never=int(never[n]), unread_by=by, unread_run=run
            )
