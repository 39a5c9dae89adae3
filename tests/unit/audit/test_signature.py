"""A run's signature in the audit log: over the chain before it."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from retention_cli.audit.chain import is_signed
from retention_cli.audit.log import AuditLog
from retention_cli.trim.journal import AuditJournal
from tests.support.audit_logs import BEGUN

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


def test_signature_covers_the_chain_before_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "c1")
    log.append(BEGUN)
    AuditJournal(log, "r1", lambda: 1_795_000_000_000, KEY).end(None, 1, "failed")
    assert log.verify().breaks == []
    assert list(log.runs()) == ["r1"]
    line = json.loads(log.path.read_text().splitlines()[-1])
    assert (line["event"], line["run"]) == ("signature", "r1")
    assert is_signed(line, KEY.public_key())
    assert not is_signed(line, OTHER.public_key())
    assert not is_signed({**line, "event": "end"}, KEY.public_key())
    for name, value in {"run": "r2", "prev": "0" * 64, "seq": 4, "key": "", "signature": 7}.items():
        assert not is_signed({**line, name: value}, KEY.public_key()), name
