"""Limit a trim's targets to what is archived, after the recheck and before the deletes (``archive`` in the policy).

Only the archiver writes. Without one, topics that must be archived are held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from retention_cli.archive.layout import ArchiveError
from retention_cli.archive.positions import Positions
from retention_cli.archive.writer import Archived, Archiver, Copies, failed
from retention_cli.core.extras import MissingPartError
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.progress import Progress
from retention_cli.plan.reconcile import Held, Target
from retention_cli.trim.recheck import Recheck


@dataclass(frozen=True, slots=True)
class Sorted:
    """Targets that may be sent, those that must be copied first (URL, target), and those that are held."""

    ready: Mapping[TopicPartition, Target]
    uncopied: Mapping[TopicPartition, tuple[str, Target]]
    held: Mapping[TopicPartition, Held]


@dataclass(slots=True)
class ArchivedFirst:
    """Remembers what this run has copied, and limits trims of archived topics to it.

    Args:
        archiver: None if nothing can be copied, as in a dry run.
        on_copied: records copies in the audit log. It raises if it can't; then nothing more is trimmed.
        positions: returns the positions of topics' consumers, which are kept with the records.
    """

    archiver: Archiver | None
    on_copied: Callable[[Copies], None] = lambda _: None
    positions: Callable[[Collection[str]], Mapping[str, Positions]] = lambda _: {}
    _copied: dict[TopicPartition, Archived | Reason] = field(default_factory=dict)

    def sort(self, targets: Mapping[TopicPartition, Target], fresh: Recheck) -> Sorted:
        """Sort targets by whether the current policy (``fresh.archives``) wants them archived, and whether they are."""
        ready: dict[TopicPartition, Target] = {}
        uncopied: dict[TopicPartition, tuple[str, Target]] = {}
        held: dict[TopicPartition, Held] = {}
        for tp, target in targets.items():
            if (url := fresh.archives.get(tp.topic)) is None:
                ready[tp] = target
            elif self.archiver is None:
                text = f"{tp} must be archived to {url} before it is trimmed, and no archiver is available"
                held[tp] = Held((Reason("archive", text),))
            elif tp not in self._copied:
                uncopied[tp] = (url, target)
            else:
                match _limited(tp, target, url, self._copied[tp]):
                    case Held() as reasons:
                        held[tp] = reasons
                    case limited:
                        ready[tp] = limited
        if self.archiver is not None:
            self.archiver.keys = fresh.archive_keys
        if self.archiver is not None and (copies := [tp for tp in ready if tp in self._copied]):
            for tp, reason in self.archiver.differing(copies, fresh.observation.leaders).items():
                del ready[tp]
                held[tp] = Held((reason,))
        return Sorted(ready, uncopied, held)

    def copy(self, wanted: Mapping[TopicPartition, tuple[str, Target]], progress: Progress) -> None:
        """Copy the targets that :meth:`sort` returned as uncopied; remember the results, and record them.

        Raises:
            StateError: the audit log can't be written.
            BrokerError, PolicyError: the consumers' positions could not be asked for.
        """
        if self.archiver is None:
            return
        failures = self._keep_positions(self.archiver, {tp: url for tp, (url, _target) in wanted.items()})
        fit = {tp: one for tp, one in wanted.items() if (one[0], tp.topic) not in failures}
        done = self.archiver.copy(fit, progress) if fit else {}
        done |= {tp: failed(tp, wanted[tp][0], failures[wanted[tp][0], tp.topic]) for tp in wanted.keys() - fit.keys()}
        missing = Reason("archive", "was not archived: the archiver left it out")
        copies = {tp: done.get(tp, missing) for tp in wanted}
        self._copied |= copies
        self.on_copied(copies)

    def keep_again(self, waiting: Collection[TopicPartition]) -> None:
        """Keep consumers' positions on copied partitions once more: a group that came since may lose records, too.

        Call it before the recheck: what is trimmed by that is further.

        Raises:
            BrokerError, PolicyError: the consumers' positions could not be asked for.
        """
        urls = {tp: one.url for tp in waiting if isinstance(one := self._copied.get(tp), Archived)}
        if self.archiver is not None and urls:
            failures = self._keep_positions(self.archiver, urls)
            why = ((tp, url, failures.get((url, tp.topic))) for tp, url in urls.items())
            self._copied |= {tp: failed(tp, url, error) for tp, url, error in why if error is not None}

    def _keep_positions(
        self, archiver: Archiver, urls: Mapping[TopicPartition, str]
    ) -> dict[tuple[str, str], Exception]:
        """Keep consumers' positions before the copy begins: later is further. Return URLs and topics that failed."""
        failures: dict[tuple[str, str], Exception] = {}
        positions = self.positions(frozenset(tp.topic for tp in urls))
        for url, topic in sorted({(url, tp.topic) for tp, url in urls.items()}):
            try:
                if topic in positions:
                    archiver.keep(url, positions[topic])
            except (ArchiveError, MissingPartError) as error:
                failures[url, topic] = error
        return failures


def rehearsed(tp: TopicPartition, target: Target, fresh: Recheck) -> tuple[Reason, ...]:
    """Return the reasons that a dry run reports for a partition: a trim would archive it first; else none."""
    if (url := fresh.archives.get(tp.topic)) is None:
        return ()
    span = f"{target.decision.log_start:,} to {target.offset:,}"
    return (Reason("archive", f"a trim would first archive offsets {span} to {url}; a dry run archives nothing"),)


def _limited(tp: TopicPartition, target: Target, url: str, copied: Archived | Reason) -> Target | Held:
    """Return the target limited to the copy's end; Held if the copy is at another URL or does not cover this log."""
    if isinstance(copied, Reason):
        return Held((copied,))
    start = target.decision.log_start
    if copied.url != url:
        text = f"{tp} was archived to {copied.url}, and the policy now names {url}: run again"
    elif target.decision.topic_id != copied.source.topic_id:
        text = (
            f"{tp} was archived to {url} as topic id {copied.source.topic_id}, and the topic was recreated since: run "
            f"kretain plan again"
        )
    elif start is None or start < copied.start:
        text = (
            f"{tp} was archived to {url} from {copied.start:,} on, and its log starts at "
            f"{'an unknown offset' if start is None else format(start, ',')} now: run again to archive the rest"
        )
    elif copied.end <= start:
        text = f"{tp} is archived to {url} only up to {copied.end:,}, and its log starts at {start:,}: run again"
    else:
        return target if target.offset <= copied.end else replace(target, offset=copied.end)
    return Held((Reason("archive", text),))
