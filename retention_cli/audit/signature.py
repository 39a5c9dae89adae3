"""A run's signature: a line of the audit log after its end, over the chain so far and what it names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from retention_cli.audit.chain import Link, link_of
from retention_cli.core.signing import Signed, check, sign, statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE: Final = "signature"
"""The line's event."""
_FORMAT: Final = "kretain.signature/v1"


def signature_line(run: str, end: Link, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return what the line has, without its time.

    Args:
        run: the run's name.
        end: the run's last line, which the chain ties to all lines before it, and so to the checksums in them.
        key: who signs.
    """
    signed = sign(_message(run, end), key)
    return {"event": SIGNATURE, "run": run, "key": signed.key, "signature": signed.signature}


def is_signed(line: Mapping[str, Any], key: Ed25519PublicKey) -> bool:
    """Return whether a line of the log is a signature by this key over the line before it."""
    link = link_of(line)
    if link is None or line.get("event") != SIGNATURE:
        return False
    signed = Signed(str(line.get("key")), str(line.get("signature")))
    return check(_message(line.get("run"), Link(link.seq - 1, link.hash)), signed, key)


def _message(run: object, end: Link) -> bytes:
    return statement({"format": _FORMAT, "run": run, "seq": end.seq, "hash": end.hash})
