"""Elect one of several instances through a Kafka group: the group's leader acts, the others stand by.

The group has a protocol type of its own, as those of Connect and of schema registries have, and commits nothing: it is
no consumer, and counts for no floor. The coordinator notices a member that died after :data:`SESSION_S`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

import kafka.errors as kafka_errors
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.groups import find_coordinators
from retention_cli.brokers.metadata import read_metadata
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.wire.connections import Wire, error_named
from retention_cli.core.commands import grant_line

SESSION_S: Final = 8.0
"""How long the coordinator waits for a member's heartbeat before it considers the member dead."""
HEARTBEAT_S: Final = 2.0
REBALANCE_S: Final = 6.0
"""How long the coordinator waits for members to join again, once one joined or left."""
CONFIRM_S: Final = 5.0
"""How long :meth:`Candidate.confirm` tries to learn whether this instance still leads."""
PROTOCOL_TYPE: Final = "kretain"

_REQUEST_S: Final = 4.0
_AGAIN_S: Final = 1.0
_NOT_A_MEMBER: Final = (kafka_errors.IllegalGenerationError.errno, kafka_errors.UnknownMemberIdError.errno)
_OTHER_COORDINATOR: Final = (
    kafka_errors.CoordinatorLoadInProgressError.errno,
    kafka_errors.CoordinatorNotAvailableError.errno,
    kafka_errors.NotCoordinatorError.errno,
)


class Candidate:
    """A member of the group, which joins and sends heartbeats in a thread of its own until it is closed.

    Args:
        settings: the connection settings, of the next connection if they are replaced; the connections are this
            candidate's own, as a broker answers a JoinGroup only once every member has joined, and any request
            after it waits that long.
        group: the group's id.
        cluster_id: the cluster that must hold the election: a name may lead to another one by the next connection.
    """

    def __init__(self, settings: ConnectionSettings, group: str, cluster_id: str) -> None:
        self.group = group
        self._cluster_id = cluster_id
        self._problem: str | None = None
        self.settings = settings
        self._wire: Wire | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._coordinator: int | None = None
        self._member, self._generation = "", -1
        self._is_leader = False
        self._term = 0
        self._heard = -SESSION_S
        self._thread = threading.Thread(target=self._serve, name="kretain-election", daemon=True)

    def start(self) -> None:
        """Begin to take part."""
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """Why it can't take part at the moment; None if it does."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._ended.is_set():
            return f"group {self.group}: its election thread has ended: start again"
        return self._problem

    @property
    def joined(self) -> bool:
        """Whether the coordinator knew this member within the last session time."""
        return self._generation >= 0 and time.monotonic() - self._heard < SESSION_S

    def term(self) -> int | None:
        """Return the number of this instance's term of leadership; None if it does not lead, as far as it knows.

        A term ends as soon as the coordinator considers this member dead, even if it is elected again.
        """
        return self._term if self._is_leader and self.joined else None

    def confirm(self, term: int) -> str | None:
        """Ask the coordinator whether this instance still leads, in the same term. Return why not, None if it does."""
        deadline = time.monotonic() + CONFIRM_S
        while True:
            sent_at = time.monotonic()
            if not self._lock.acquire(timeout=max(0.0, deadline - sent_at)):
                return "the group's coordinator did not answer in time"
            try:
                self._step_safely()
                if self._term != term or (self._generation >= 0 and not self._is_leader):
                    return "another instance may lead now"
                if self._heard >= sent_at:
                    return None
                problem = self._problem
            finally:
                self._lock.release()
            if time.monotonic() >= deadline:
                return problem or "the group's coordinator did not confirm it in time"
            time.sleep(0.1)

    def close(self) -> None:
        """Leave the group, so that another instance leads at once. May be called repeatedly."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(REBALANCE_S + 2 * _REQUEST_S)
        with self._lock:
            if self._wire is not None and self._generation >= 0 and self._coordinator is not None:
                member = LeaveGroupRequest.MemberIdentity(member_id=self._member, group_instance_id=None, reason=None)
                with contextlib.suppress(BrokerError):
                    self._ask(
                        self._wire,
                        LeaveGroupRequest(group_id=self.group, member_id=self._member, members=[member]),
                        _REQUEST_S,
                    )
            self._disconnect()
            self._drop_out()

    def _serve(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                pause = self._step_safely()
            self._ended.wait(pause)

    def _step_safely(self) -> float:
        """Join the group or send a heartbeat. Return how long to wait until the next time (s)."""
        try:
            self._step()
        except BrokerError as error:
            self._coordinator = None
            if isinstance(error, RequestFailedError) and error.answered and not error.retriable:
                self._drop_out()
            elsewhere = self._wire is not None and self._wire.led_elsewhere
            if elsewhere or time.monotonic() - self._heard > SESSION_S:  # start over: the brokers may be others by now
                self._drop_out()
                self._disconnect()
            self._problem = f"group {self.group}: {error}{_remedy(self.group, error)}"
            return _AGAIN_S
        return HEARTBEAT_S

    def _step(self) -> None:
        if self._wire is None:
            self._wire = self._connected()
        if self._coordinator is None:
            self._coordinator = self._found(self._wire)
        if self._generation < 0:
            self._join(self._wire)
        else:
            self._heartbeat(self._wire)
        self._problem = None

    def _connected(self) -> Wire:
        """Return connections to the cluster of this election.

        Raises:
            BrokerError: it can't be reached, or what answers is another cluster.
        """
        wire = Wire(self.settings, REBALANCE_S + _REQUEST_S)
        wire.open()
        try:
            found = wire.run(read_metadata, wire, (), time.monotonic() + _REQUEST_S).cluster_id
        except BaseException:
            wire.close()
            raise
        if found != self._cluster_id:
            wire.close()
            raise BrokerError(f"{self.settings.bootstrap} is now cluster {found}, not {self._cluster_id}")
        return wire

    def _heartbeat(self, wire: Wire) -> None:
        sent_at = time.monotonic()
        reply = self._ask(
            wire,
            HeartbeatRequest(
                group_id=self.group, generation_id=self._generation, member_id=self._member, group_instance_id=None
            ),
            _REQUEST_S,
        )
        if reply.error_code == kafka_errors.RebalanceInProgressError.errno:
            self._join(wire)
        elif reply.error_code in _NOT_A_MEMBER:  # start over: this address may lead to another cluster by now
            self._drop_out()
            self._disconnect()
            self._step()
        else:
            self._raise_if_failed(reply)
            self._heard = sent_at

    def _join(self, wire: Wire) -> None:
        """Join, or join again with the same member id, which keeps the leader where it is."""
        for _ in range(3):
            sent_at = time.monotonic()
            reply = self._ask(
                wire,
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=int(SESSION_S * 1000),
                    rebalance_timeout_ms=int(REBALANCE_S * 1000),
                    member_id=self._member,
                    group_instance_id=None,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="leader", metadata=b"")],
                    reason=None,
                ),
                REBALANCE_S + _REQUEST_S,
            )
            if reply.error_code == kafka_errors.MemberIdRequiredError.errno:
                self._member = reply.member_id
            elif reply.error_code in _NOT_A_MEMBER:
                self._drop_out()
            else:
                break
        self._raise_if_failed(reply)
        self._member, generation = reply.member_id, reply.generation_id
        leads = reply.leader == reply.member_id
        assigned = SyncGroupRequest.SyncGroupRequestAssignment
        synced = self._ask(
            wire,
            SyncGroupRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=self._member,
                group_instance_id=None,
                protocol_type=PROTOCOL_TYPE,
                protocol_name="leader",
                assignments=[
                    assigned(member_id=one.member_id, assignment=b"leads" if one.member_id == self._member else b"")
                    for one in (reply.members if leads else ())
                ],
            ),
            REBALANCE_S + _REQUEST_S,
        )
        if synced.error_code in _NOT_A_MEMBER:
            self._drop_out()
        # One more may have joined meanwhile: the next heartbeat says so.
        if synced.error_code != kafka_errors.RebalanceInProgressError.errno:
            self._raise_if_failed(synced)
        self._generation, self._heard = generation, sent_at
        if leads and not self._is_leader:
            self._term += 1
        self._is_leader = leads

    def _drop_out(self) -> None:
        """Forget the membership. The term has ended, even if this instance leads again."""
        self._member, self._generation = "", -1
        if self._is_leader:
            self._term += 1
        self._is_leader = False

    def _found(self, wire: Wire) -> int:
        found, errors = wire.run(find_coordinators, wire, [self.group], time.monotonic() + _REQUEST_S)
        if self.group not in found:
            raise errors.get(self.group) or RequestFailedError("its coordinator is not known", retriable=True)
        return found[self.group]

    def _ask(self, wire: Wire, request: Any, timeout_s: float) -> Any:
        return wire.run(wire.ask, request, self._coordinator, timeout_s, timeout_s=timeout_s + 1)

    def _raise_if_failed(self, reply: Any) -> None:
        if reply.error_code in _OTHER_COORDINATOR:
            self._coordinator = None
        if (failed := error_named(reply.error_code, needs="READ")) is not None:
            raise failed

    def _disconnect(self) -> None:
        self._coordinator = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _remedy(group: str, error: BrokerError) -> str:
    remedies = {
        "GROUP_AUTHORIZATION_FAILED": f"; grant READ on it: {grant_line('Read', 'group', group)}",
        "INCONSISTENT_GROUP_PROTOCOL": ": it is a consumer's group; choose another",
    }
    return remedies.get(error.code, "") if isinstance(error, RequestFailedError) else ""
