"""Read past runs from the audit logs: of all clusters for display, of one cluster for its limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from retention_cli.audit.chain import Chain
from retention_cli.audit.files import folders_with_log
from retention_cli.audit.log import AuditLog, Run, add
from retention_cli.core.model import TopicPartition
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.core.units import timestamp
from retention_cli.decide.guards.limits import Amount
from retention_cli.policy.model import matches
from retention_cli.policy.settings import Limits

DAY_MS: Final = 86_400_000
_REFUSED: Final = 6
"""The exit code of a run that was refused before it trimmed anything."""


def read_history(state_dir: Path) -> list[Run]:
    """Return all runs in the state directory's audit logs, oldest first.

    Raises:
        StateError: an audit log can't be read.
    """
    return read_past(state_dir)[0]


def read_past(state_dir: Path) -> tuple[list[Run], list[dict[str, Any]]]:
    """Return all runs in the audit logs, and the settings that ``protect`` changed or tried to change, oldest first.

    A change whose outcome is not in the log may have been made: it is unverified.

    Raises:
        StateError: an audit log can't be read.
    """
    runs: list[Run] = []
    changes: list[dict[str, Any]] = []
    for folder in folders_with_log(state_dir):
        of_log: dict[str, Run] = {}
        begun: dict[tuple[str, str, str], dict[str, Any]] = {}
        for event in AuditLog(folder).events():
            add(of_log, event)
            match event:
                case {"event": "protect", "run": run, "at": str(at), "topic": str(topic), "setting": str(setting)}:
                    begun[run, topic, setting] = {
                        "run": run,
                        "at": at,
                        "cluster": folder.name,
                        "topic": topic,
                        "setting": setting,
                        **{key: event.get(key) for key in ("from", "to", "original")},
                        "outcome": "unverified",
                        "reason": None,
                    }
                    changes.append(begun[run, topic, setting])
                case {"event": "protected", "run": run, "topic": str(topic), "setting": str(setting)}:
                    begun.get((run, topic, setting), {}).update(
                        outcome=event.get("outcome"), reason=event.get("reason")
                    )
        runs.extend(of_log.values())
    return sorted(runs, key=lambda run: (run.begun["at"], run.run)), sorted(changes, key=lambda row: row["at"])


def read_archived(state_dir: Path, warn: Callable[[str], None]) -> dict[str, list[str]]:
    """Return the paths of the manifests that were written, according to the audit logs, by :func:`archive_at`.

    ``warn`` gets a line for each log that can't be read.
    """
    found: dict[str, list[str]] = {}
    for folder in folders_with_log(state_dir):
        try:
            for event in AuditLog(folder).events():
                match event:
                    case {"event": "archive", "partitions": list(rows)}:
                        for one in rows:
                            if isinstance(one, dict):
                                paths = found.setdefault(archive_at(str(one.get("url"))), [])
                                paths += map(str, one.get("manifests", ()))
        except StateError as error:
            warn(f"what was archived is not compared: {error}")
    return found


def archive_at(url: str) -> str:
    """Return an archive's URL without options for its connection: the same archive may be reached in several ways."""
    return url.partition("?")[0].rstrip("/")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which runs to show: those that began from ``since_ms`` on and before ``until_ms`` (Unix ms; None: no bound).

    ``outcome``: a partition had it. ``topics``: names or patterns, and ``partitions``: the run sent a delete
    for one of these. ``limit``: at most this many, the newest.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    outcome: str | None = None
    topics: Sequence[str] = ()
    limit: int | None = None
    partitions: Collection[TopicPartition] = ()


def select(runs: Sequence[Run], choice: Choice) -> list[Run]:
    """Return the chosen runs.

    A run whose end is not in the log may have trimmed what it announced: it counts as unverified.
    """
    found = [
        run
        for run in runs
        if _is_within(run.begun["at"], choice)
        and (choice.outcome is None or _count(run, choice.outcome))
        and (
            not (choice.topics or choice.partitions)
            or any(tp in choice.partitions or matches(choice.topics, tp.topic) for tp in _touched(run))
        )
    ]
    return found if choice.limit is None else found[-choice.limit :]


def select_changes(changes: Sequence[dict[str, Any]], choice: Choice) -> list[dict[str, Any]]:
    """Return the chosen changes of settings: a partition stands for its topic."""
    topics = {*choice.topics, *(tp.topic for tp in choice.partitions)}
    found = [
        row
        for row in changes
        if _is_within(row["at"], choice)
        and (choice.outcome is None or row["outcome"] == choice.outcome)
        and (not topics or matches(topics, row["topic"]))
    ]
    return found if choice.limit is None else found[-choice.limit :]


def _is_within(at: str, choice: Choice) -> bool:
    since, until = (None if ms is None else timestamp(ms) for ms in (choice.since_ms, choice.until_ms))
    return (since is None or at >= since) and (until is None or at < until)


def _touched(run: Run) -> set[TopicPartition]:
    return {
        TopicPartition(row["topic"], row["partition"]) for batch in run.batches.values() for row in batch["partitions"]
    }


def _count(run: Run, outcome: str) -> int:
    return int(outcome == "unverified" if run.end is None else run.end.get("totals", {}).get(outcome, 0))


def carried_out(state_dir: Path, cluster_id: str, created_at_ms: int) -> Run | None:
    """Return the latest run that carried out the saved plan of that moment (Unix ms); None if none did.

    Raises:
        StateError: the log can't be read.
    """
    saved = [
        run
        for run in AuditLog(cluster_folder(state_dir, cluster_id)).runs().values()
        if (plan := run.begun.get("plan") or {}).get("file")
        and plan["created_at"] == timestamp(created_at_ms)
        and (run.end is None or run.end["exit"] != _REFUSED)
    ]
    return saved[-1] if saved else None


def find_run(runs: Sequence[Run], name: str) -> Run:
    """Return the run of that name.

    Raises:
        StateError: there is none.
    """
    for run in runs:
        if run.run == name:
            return run
    raise StateError(
        f"there is no run {name!r} in the audit log; kretain history lists the trims, and kretain explain "
        "TOPIC:PARTITION --run ID shows a recorded plan"
    )


@dataclass(frozen=True, slots=True)
class PastDay:
    """The amount trimmed in the last 24 hours, according to the audit log.

    ``broken`` is the first break of the log's chain, as ``file:line: text``; None if the chain is intact.
    ``alone`` is the part that runs without an approval trimmed.
    """

    amount: Amount
    broken: str | None = None
    alone: Amount = field(default_factory=Amount)

    @property
    def unapproved(self) -> Amount | None:
        """What runs without an approval trimmed; None if it is unknown, as the chain is broken."""
        return self.alone if self.broken is None else None

    def under(self, limits: Limits) -> Amount:
        """Return the amount, for limits per day (G6).

        Raises:
            StateError: there are such limits, and the log's chain is broken, so the amount is not reliable.
        """
        if self.broken is not None and (limits.max_records is not None or limits.max_bytes is not None):
            raise StateError(
                f"{self.broken}; the policy limits what is trimmed per day, which is unknown from a log that is "
                f"broken: kretain history --verify shows all of it"
            )
        return self.amount


def read_past_day(state_dir: Path, cluster_id: str, now_ms: int) -> PastDay:
    """Read the amount trimmed in the last 24 hours, and check the log's chain.

    Raises:
        StateError: the log can't be read.
    """
    return PastDay(*AuditLog(cluster_folder(state_dir, cluster_id)).trimmed_since(timestamp(now_ms - DAY_MS)))


def past_day(state_dir: Path, cluster_id: str, now_ms: int, limits: Limits) -> Amount:
    """Return the amount trimmed in the last 24 hours, for a policy's limits.

    Raises:
        StateError: the log can't be read; or there are limits per day, and its chain is broken.
    """
    return read_past_day(state_dir, cluster_id, now_ms).under(limits)


@dataclass(frozen=True, slots=True)
class Verified:
    """A cluster's audit log and the result of checking its chain. ``cluster`` is the name of its folder."""

    cluster: str
    log: AuditLog
    chain: Chain


def verify_all(state_dir: Path) -> list[Verified]:
    """Verify the chain of every audit log in the state directory, by cluster, even if only its head is left.

    Raises:
        StateError: an audit log can't be read.
    """
    logs = [AuditLog(folder) for folder in folders_with_log(state_dir)]
    return [Verified(log.path.parent.name, log, log.verify()) for log in logs]
