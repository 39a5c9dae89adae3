"""Protect: plan which settings to raise or restore, and carry that out, one setting at a time (docs/protect.md)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from retention_cli.audit.log import AuditLog
from retention_cli.brokers.alterer import ConfigAlterer
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.writer import ClusterWriter
from retention_cli.core.model import Maybe, Reason, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import cluster_folder, trim_lock, user_name
from retention_cli.core.units import timestamp
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.selection import Selection
from retention_cli.protect.decision import (
    CHANGES,
    SETTINGS,
    Decision,
    Live,
    Protection,
    Record,
    Setting,
    State,
    Terms,
    current,
    decide_all,
    expected,
)
from retention_cli.protect.memory import SENT_S, RaisedSettings, check_writable
from retention_cli.protect.reading import live_of, read_protection
from retention_cli.state.own_topics import PROTECTED_TOPIC

Resume = Literal["resume", "restore"]
_LOCK_S: Final = 30.0
"""How long to wait for a trim of this cluster to end."""
_LEARNS_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectJob:
    """What to protect, and how.

    Args:
        reader: the cluster, opened.
        selection: the policy.
        memories: the ledgers of clusters.
        state_dir: the folder of the audit log and the lock.
        clock_ms: returns the current time (Unix ms).
        terms: how often protect runs.
        run: the run's name, for records and the audit log.
        permit: entered around each change; raises if it may not be made.
        progress: called with what is being done.
        alterer_for: creates what changes settings; not called by a dry run.
        writer_for: creates what appends records; not called by a dry run.
    """

    reader: ClusterReader
    selection: Selection
    memories: Callable[[str], Ledger]
    state_dir: Path
    clock_ms: Callable[[], int]
    terms: Terms
    run: str
    permit: Callable[[], AbstractContextManager[None]] = nullcontext
    progress: Progress = silent
    alterer_for: Callable[[ClusterReader], ConfigAlterer] = ConfigAlterer
    writer_for: Callable[[ClusterReader], ClusterWriter] = lambda reader: ClusterWriter(
        reader.pinned_settings, {PROTECTED_TOPIC}, reader.timeout_s
    )


def plan_protection(job: ProtectJob) -> tuple[Protection, RaisedSettings]:
    """Read and decide; return what to do, and the records that it continues. Changes nothing.

    Raises:
        BrokerError: the cluster or ``_kretain_protected`` can't be read.
        NothingMatchesError: no topic asks for protection.
        StateError: the ledger can't be read.
    """
    reading = read_protection(job.reader, job.selection, job.memories, job.clock_ms, job.progress)
    cluster_id, ids = reading.metadata.cluster_id, reading.metadata.topic_ids
    memory = RaisedSettings(job.reader, job.memories(cluster_id))
    records = memory.read()  # after the live values: by then all that kretain set is in a record
    ours = current(records, {one.topic: one.topic_id for one in reading.topics})
    rows = decide_all(reading.topics, ours, job.terms, reading.rooms)
    others = (  # P6
        Reason(
            "protect",
            f"{one.setting} of topic {one.topic} is raised, and this policy does not protect it: "
            f"kretain protect --restore {one.topic} restores it",
        )
        for key, one in current(records, ids).items()
        if key not in ours and one.state in ("raised", "changing") and not job.selection.topics
    )
    return Protection(cluster_id, job.reader.settings.bootstrap, rows, [*reading.notes, *others]), memory


def carry_out(job: ProtectJob, made: Protection, memory: RaisedSettings) -> Protection:
    """Make the planned changes, each after a record of it is on the cluster and in the audit log.

    Raises:
        LockedError: a trim of this cluster is running.
        MissingApiError: the cluster does not offer what a change needs.
        StateError: the audit log can't be written.
        StopError: this instance may not change anything any more.
    """
    if not made.changes and not memory.overtaken and all(one.record.state != "changing" for one in made.rows):
        return made
    with _Changes.begun(job, made.cluster_id, memory) as changes:
        return replace(made, rows=[changes.make(one) for one in made.rows])


def resume(job: ProtectJob, topic: str, how: Resume) -> list[str]:
    """Let kretain raise a topic's settings again, or restore their originals first; return what was done.

    Raises:
        BrokerError, LockedError, StateError: see :func:`carry_out`; nothing is known of the topic.
    """
    metadata = job.reader.metadata([topic])
    memory = RaisedSettings(job.reader, job.memories(metadata.cluster_id))
    found = [one for one in memory.read().values() if one.topic == topic]
    if topic not in metadata.topics or not found:
        raise BrokerError(f"kretain has raised no setting of topic {topic}")
    done = []
    with _Changes.begun(job, metadata.cluster_id, memory) as changes:
        for one in found:
            live = changes.current(topic, one.setting, default=one.original is None)
            ours = (
                one.topic_id == metadata.topic_ids.get(topic, "")
                and one.state in ("raised", "changing")
                and live.own in expected(one)
            )
            what = f"{one.setting} of topic {topic}"
            if how == "restore" and ours:
                changes.change(one, live.own, one.original, live.default)
                done.append(f"{what}: restored to {one.original or 'the default'}")
            elif ours:  # its original is not what is live
                done.append(f"{what}: kretain itself has raised it, and continues from there")
            elif how == "resume" or one.state not in ("restored", "unreadable"):
                changes.note(one, "restored", live.own, live.own)
                done.append(f"{what}: kretain may raise it again, from {live.own or 'the default'}")
    return done


@dataclass(slots=True)
class _Changes:
    """Makes changes while the lock is held. Of each, the record comes first, then the audit log, then the request."""

    job: ProtectJob
    memory: RaisedSettings
    alterer: ConfigAlterer
    writer: ClusterWriter
    log: AuditLog
    silent: bool = False
    """Whether a broker did not answer what a topic's own value is."""

    @classmethod
    @contextmanager
    def begun(cls, job: ProtectJob, cluster_id: str, memory: RaisedSettings) -> Iterator[_Changes]:
        reader, folder = job.reader, cluster_folder(job.state_dir, cluster_id)
        check_writable(reader)
        with (
            trim_lock(folder, timestamp(job.clock_ms()), _LOCK_S),
            job.writer_for(reader) as writer,
        ):
            log = AuditLog(folder)
            log.rotate(job.selection.policy.audit.max_bytes)
            memory.put_back(writer)
            yield cls(job, memory, job.alterer_for(reader), writer, log)

    def settled(self, known: Record) -> Record:
        """Record which value is live of a change that was left open: its request is over by now."""
        with suppress(RequestFailedError):  # the next pass looks again
            if known.state == "changing" and (own := self.current(known.topic, known.setting).own) in expected(known):
                return self.note(known, "restored" if own == known.original else "raised", own, known.before)
        return known

    def make(self, one: Decision) -> Decision:
        """Settle what was left open, and make one planned change; return it with its outcome."""
        known = self.settled(one.record)
        if one.action not in CHANGES and one.action != "release":
            return one
        try:
            if one.action == "release":
                self.release(known, one.own)
            else:
                new = known.original if one.action == "restore" else str(one.new)
                with self.job.permit():
                    self.change(known, one.own, new, one.original)
        except RequestFailedError as error:
            return replace(one, outcome="failed", problem=" ".join(str(error).split()))
        return replace(one, outcome="done")

    def release(self, known: Record, value: str | None) -> None:
        """Record that another client set a value, if it is still live: a kretain may have raised it meanwhile.

        All brokers are asked: one that was frozen may not have heard of kretain's own change yet.

        Raises:
            RequestFailedError: it is not, or another kretain is changing it.
        """
        if (now := self.own_values(known)) != {value}:
            shown = " or ".join(sorted(str(one) for one in now))
            raise RequestFailedError(f"it is {shown} now: the next pass checks again", retriable=True)
        self.note(known, "released", value, known.value)

    def change(self, known: Record, old: str | None, new: str | None, default: Maybe[int | None]) -> None:
        """Change a setting from its live value to a new one; None removes it, if the default is still the one given.

        No broker may report a value that kretain does not know: others may not have heard of it yet.

        Raises:
            RequestFailedError: it was not changed, or that is unknown, or another client changes it at the same time.
            StateError: the audit log can't be written: nothing was changed.
        """
        topic, setting = known.topic, known.setting
        others = set[str | None]()
        if not self.silent:
            try:
                others = self.own_values(known) - {old, known.value, known.before, known.original}
            except RequestFailedError:  # a silent broker must not cost unread records: it is asked no more
                self.silent = True
        good_until = self.job.reader.clock.since_boot() + SENT_S
        self.note(known, "changing", new, old)
        problem = None
        now = self.current(topic, setting, default=new is None)
        if new is None and isinstance(now.default, Unknown):
            problem = f"{now.default.reasons[0].text}: {old} stays"
        elif new is None and now.default != default:
            problem = f"the default is {now.default} by now: {old} stays until the next pass has decided"
        if others := others | {now.own} - {old}:
            problem = f"another client has just set it to {' or '.join(sorted(map(str, others)))}: left alone"
        if self.job.reader.metadata([topic]).topic_ids.get(topic, "") != known.topic_id:
            problem = f"topic {topic} was deleted or recreated"
        if problem is not None:  # what was known before still is; the next pass decides whose value it is
            self.note(known, known.state, known.value, known.before)
            raise RequestFailedError(problem, retriable=False)
        self.say("protect", known, **{"from": old, "to": new, "original": known.original})
        failed = self.alterer.alter(topic, setting, new, good_until)
        if failed is None and (after := self.waited(topic, setting, new)) != new:
            failed = RequestFailedError(f"it reads back as {after}: another client sets it", retriable=False)
        self.say("protected", known, outcome="done" if failed is None else "failed", reason=failed and str(failed))
        if failed is not None:
            raise failed
        self.note(known, "restored" if new == known.original else "raised", new, old)

    def own_values(self, known: Record) -> set[str | None]:
        """Return the topic's own value as all brokers report it.

        Raises:
            RequestFailedError: one of them doesn't.
        """
        answer = self.job.reader.values_everywhere(known.topic, [known.setting])
        if isinstance(answer, RequestFailedError):
            raise answer
        return {one.value if one.own else None for one in answer[known.setting]}

    def note(self, known: Record, state: State, value: str | None, before: str | None) -> Record:
        """Write a record to the cluster and the ledger; return it."""
        record = replace(
            known,
            state=state,
            value=value,
            before=before,
            run=self.job.run,
            at_ms=self.job.clock_ms(),
            by=f"{user_name()}@{socket.gethostname()}",
        )
        self.memory.write(self.writer, record)
        return record

    def say(self, event: str, known: Record, **more: Any) -> None:
        """Write a line of the audit log."""
        self.log.append(
            {
                "event": event,
                "run": self.job.run,
                "at": timestamp(self.job.clock_ms()),
                "topic": known.topic,
                "topic_id": known.topic_id,
                "setting": known.setting,
                **more,
            }
        )

    def waited(self, topic: str, setting: Setting, new: str | None) -> str | None:
        """Return a topic's own value once it is the new one, or after a few seconds: a broker learns of it late."""
        clock = self.job.reader.clock
        deadline = clock.monotonic() + _LEARNS_S
        while (now := self.current(topic, setting).own) != new and clock.monotonic() < deadline:
            clock.sleep(0.1)
        return now

    def current(self, topic: str, setting: Setting, *, default: bool = False) -> Live:
        """Return a setting now; its default is unknown unless ``default`` asks all brokers for it.

        Raises:
            RequestFailedError: it can't be read.
        """
        reader = self.job.reader
        everywhere = reader.values_everywhere(PROTECTED_TOPIC, SETTINGS) if default else {}
        live = live_of(reader.own_values([topic], SETTINGS)[topic], everywhere)
        if isinstance(live, Unknown):
            raise RequestFailedError(live.reasons[0].text, retriable=True)
        return live[setting]
