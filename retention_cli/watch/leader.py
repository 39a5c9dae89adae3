"""Which of several instances acts: one elected through a Kafka group, or this one without an election."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.election import Candidate
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.errors import Refusal
from retention_cli.core.model import Reason
from retention_cli.policy.live import POLICY_TOPIC
from retention_cli.state.memories import Kind
from retention_cli.trim.batches import StopError
from retention_cli.watch.board import Say

ALONE: Final = 0
"""The term of an instance that is not elected."""
_SETTLES_S: Final = 6.0
"""How long the first pass waits to learn who leads: a new group waits three seconds for more members."""


class GroupTakenError(Refusal):
    """The group meant for the election is a consumer's, which could not join it any more."""


@dataclass(slots=True)
class Leadership:
    """Whether this instance may trim.

    A cluster that has the policy topic is one that several operators share, so instances are elected there. Without it
    the lock in the state directory is all that keeps two apart. Once elected, always elected: the topic's end must not
    let every instance act.

    Args:
        group: the group that instances are elected by.
        say: prints a line for the log.
    """

    group: str
    say: Say
    candidate: Candidate | None = field(default=None, init=False)
    _warned_alone: bool = field(default=False, init=False)

    def take_part(self, reader: ClusterReader, memory: Kind) -> None:
        """Take part in the election if this cluster has one. Called in each pass; ``memory`` is the policy's ``state``.

        The election's next connection uses the pass's settings, too, with the current certificates.

        Raises:
            BrokerError: kretain can't read whether the policy topic exists, or whether the group is a consumer's.
            GroupTakenError: the group is a consumer's.
        """
        if self.candidate is not None:
            self.candidate.settings = reader.settings
            return
        metadata = reader.metadata([POLICY_TOPIC])
        if POLICY_TOPIC in metadata.topics:
            _check_group(reader, self.group)
            self.candidate = Candidate(reader.settings, self.group, metadata.cluster_id)
            self.candidate.start()
            self.say(f"group {self.group} elects the instance that trims; the others stand by")
            if memory == "local":
                self.say("each instance has its own memory; state: cluster in the policy shares it")
            until = time.monotonic() + _SETTLES_S
            while not self.candidate.joined and time.monotonic() < until:
                time.sleep(0.05)
        elif not self._warned_alone:
            self._warned_alone = True
            self.say(
                f"no election: this cluster has no topic {POLICY_TOPIC} (kretain cluster init creates it). Run only "
                f"one instance"
            )

    def term(self) -> int | None:
        """Return the term in which this instance leads; None if it does not."""
        return ALONE if self.candidate is None else self.candidate.term()

    @property
    def problem(self) -> str | None:
        """Why this instance can't take part in the election; None if it does, or if there is none."""
        return None if self.candidate is None else self.candidate.problem

    @property
    def why_not(self) -> str:
        """Why this instance does not lead."""
        if self.problem is not None:
            return f"does not lead: {self.problem}"
        waits = self.candidate is not None and not self.candidate.joined
        return "is not elected yet" if waits else "stands by: another instance leads"

    def check(self, term: int) -> None:
        """Ask the brokers whether this instance still leads.

        Raises:
            StopError: it does not, or no broker says so.
        """
        if self.candidate is not None and (why := self.candidate.confirm(term)) is not None:
            raise StopError(Reason("leader", f"this instance may no longer lead: {why}"))

    def close(self) -> None:
        """Leave the group."""
        if self.candidate is not None:
            self.candidate.close()


def _check_group(reader: ClusterReader, group: str) -> None:
    """Check that a group has no committed offsets. To join it would turn a consumer's group into one of another type.

    Raises:
        GroupTakenError: it has.
        BrokerError: kretain can't read them.
    """
    answers: list[GroupCommits | CommitsUnknown] = []
    reader.read_commits([group], answers.append)
    for one in answers:
        if isinstance(one, CommitsUnknown):
            raise BrokerError(f"whether group {group} is a consumer's is unknown: {one.text}")
        if any(one.topics.values()) or one.no_position:
            raise GroupTakenError(
                f"group {group} has committed offsets, so it is a consumer's: choose another with --standby-group"
            )
