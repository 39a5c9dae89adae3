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


def public_keys(named: Iterable[str], folder: Path) -> dict[str, Ed25519PublicKey]:
    """Return public keys by id. A file's path is relative to ``folder``.

    Raises:
        KeyRefusedError: one of them can't be used: it might be the one that matters.
    """
    found = (public_key_of(one, folder) for one in named)
    return {key_id(key): key for key in found}


def public_key_of(named: str, folder: Path = Path()) -> Ed25519PublicKey:
    """Return the public key in a file, or the one that the text itself is: PEM, base64 in one line, ``ssh-ed25519``.

    Raises:
        KeyRefusedError: it can't be used.
    """
    in_place = named.lstrip().startswith(("-----BEGIN", "MCowBQYDK2Vw", "ssh-ed25519 "))
    try:
        return public_key(named.encode() if in_place else read_file(beside(folder, named)))
    except OSError as error:
        raise KeyRefusedError(f"the key {beside(folder, named)} cannot be read: {error.strerror}") from None
    except KeyProblemError as error:
        raise KeyRefusedError(f"{'the key' if in_place else beside(folder, named)} {error}") from None
