"""Ed25519: keys in files or in place, their ids, signatures."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from retention_cli.core.errors import Refusal
from retention_cli.core.files import beside, read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PASSPHRASE: Final = "KRETAIN_KEY_PASSPHRASE"  # noqa: S105  (its name)
"""The variable with the passphrase of an encrypted private key."""


class KeyProblemError(Exception):
    """A key is not usable. The text quotes no part of it."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature: the id of the key that made it, and the signature in base64."""

    key: str
    signature: str


def key_id(key: Ed25519PublicKey) -> str:
    """Return the first 16 hex digits of the SHA-256 of the raw public key."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def private_key(content: bytes, passphrase: bytes = b"") -> Ed25519PrivateKey:
    """Return the private key in a PEM file, of OpenSSL or OpenSSH.

    Raises:
        KeyProblemError: it is not one, or the passphrase is missing or wrong.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    load = ser.load_ssh_private_key if b"OPENSSH PRIVATE KEY" in content else ser.load_pem_private_key
    try:
        try:
            key = load(content, None)
        except TypeError:  # it is encrypted
            if not passphrase:
                raise KeyProblemError(f"is encrypted: put its passphrase into {PASSPHRASE}") from None
            key = load(content, passphrase)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyProblemError(f"is not a private key in PEM, or {PASSPHRASE} is not its passphrase") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyProblemError("is not an ed25519 key: make one with openssl genpkey -algorithm ed25519")
    return key


def public_key(content: bytes) -> Ed25519PublicKey:
    """Return a public key: PEM, its base64 in one line, or OpenSSH's line.

    Raises:
        KeyProblemError: it is not one.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if b"PRIVATE KEY" in content:
        raise KeyProblemError("is a private key: give its public half (openssl pkey -in KEY -pubout)")
    content = content.strip()
    try:
        if content.startswith(b"ssh-ed25519 "):
            key: object = ser.load_ssh_public_key(content)
        elif content.startswith(b"-----"):
            key = ser.load_pem_public_key(content)
        else:
            key = ser.load_der_public_key(base64.b64decode(content, validate=True))
    except (ValueError, UnsupportedAlgorithm):
        raise KeyProblemError("is not a public key: PEM, its base64 in one line, or ssh-ed25519 …") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyProblemError("is not an ed25519 key")
    return key


def statement(content: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed for a JSON object: the same for each order of its keys."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def sign(message: bytes, key: Ed25519PrivateKey) -> Signed:
    """Return the signature of a message, with the id of its key."""
    return Signed(key_id(key.public_key()), base64.b64encode(key.sign(message)).decode())


def check(message: bytes, signed: Signed, key: Ed25519PublicKey) -> bool:
    """Return whether this key has signed this message."""
    from cryptography.exceptions import InvalidSignature

    if signed.key != key_id(key):
        return False
    try:
        key.verify(base64.b64decode(signed.signature, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True


class KeyRefusedError(Refusal):
    """A key can't be used; the text names it. Nothing was trimmed."""


def private_key_at(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file; its passphrase, if it has one, is in a variable.

    Raises:
        KeyRefusedError: it can't be used.
    """
    try:
        return private_key(read_file(path, pipes=True), os.environ.get(PASSPHRASE, "").encode())
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
