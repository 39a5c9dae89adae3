"""Which settings the election connects with, in a watch that runs for months."""

from __future__ import annotations

from retention_cli.brokers.election import Candidate
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.watch.leader import Leadership


def test_election_connects_next_with_the_certificates_of_the_latest_pass() -> None:
    old, new = (ConnectionSettings("127.0.0.1:1", ca_pem=pem) for pem in ("old", "new"))
    leadership = Leadership("kretain-watch", lambda _text, _event="note", /, **_facts: None)
    leadership.candidate = Candidate(old, "kretain-watch", "cluster")
    leadership.look(ClusterReader(new, 1), "local")
    assert leadership.candidate.settings is new
