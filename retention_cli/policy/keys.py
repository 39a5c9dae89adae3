"""Keys that a policy or an option names: files, or public keys in place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from retention_cli.core.errors import Refusal
from retention_cli.core.files import beside, read_file
from retention_cli.core.signing import PASSPHRASE, KeyProblemError, key_id, private_key, public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class KeyRefusedError(Refusal):
    """A key can't be used; the text names it. Nothing was trimmed."""


def read_keys(value: object) -> list[str]:
    """Read a public key or a list of them; each is a file or the key's own text."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one.strip() for one in found):
        raise ValueError("give public keys: files such as keys/alice.pem, or a list of these")
    return [one.strip() for one in found]


def private_key_at(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file; its passphrase, if it has one, is in a variable.

    Raises:
        KeyRefusedError: it can't be used.
    """
    try:
        given = os.environ.get(PASSPHRASE)
        return private_key(read_file(path, pipes=True), None if given is None else given.encode())
    except OSError as error:
        raise KeyRefusedError(f"the key {path} cannot be read: {error.strerror}") from None
    except KeyProblemError as error:
        raise KeyRefusedError(f"{path} {error}") from None


def public_keys(named: Iterable[str], folder: Path = Path()) -> dict[str, Ed25519PublicKey]:
    """Return public keys by id: of files, and those that a text itself is (PEM, base64 in one line, ``ssh-ed25519``).

    Raises:
        KeyRefusedError: one of them can't be used: it might be the one that matters.
    """
    found: dict[str, Ed25519PublicKey] = {}
    for one in named:
        in_place = one.startswith(("-----BEGIN", "MCowBQYDK2Vw", "ssh-ed25519 "))
        path = beside(folder, one)
        try:
            key = public_key(one.encode() if in_place else read_file(path))
        except OSError as error:
            raise KeyRefusedError(f"the key {path} cannot be read: {error.strerror}") from None
        except KeyProblemError as error:
            raise KeyRefusedError(f"{'a key of the policy' if in_place else path} {error}") from None
        found[key_id(key)] = key
    return found
