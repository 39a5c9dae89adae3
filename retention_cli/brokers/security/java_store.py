"""Java trust and key stores (JKS, PKCS12) as PEM text, for clients that are not Java.

PKCS12 is read by the cryptography library. For JKS, the older default of keytool, there is no maintained reader that
installs without a compiler. Its format has been frozen since Java 1.2, so it is read here: certificates are stored
plainly, private keys are encrypted by Sun's key protector (SHA-1 keystream).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import textwrap
from dataclasses import dataclass
from pathlib import Path

from retention_cli.brokers.errors import SettingsError
from retention_cli.core.files import read_file

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DIGEST_BYTES = 20


class _StoreError(ValueError):
    """What is wrong with a store, as kretain found."""


@dataclass(frozen=True, slots=True, repr=False)
class JavaStore:
    """A store's content as PEM text: trusted certificates, and the first private key with its chain.

    Of a PEM store each is the complete file, key included, so none is in its repr.
    """

    certificates: str
    key: str | None
    chain: str | None


def read_java_store(path: Path, password: str | None, key_password: str | None, setting: str) -> JavaStore:
    """Read a JKS or PKCS12 file; the first bytes determine which.

    Args:
        path: the store.
        password: the store's password; None: try without a password.
        key_password: the private key's password, if it has one of its own.
        setting: the setting that names the store, for error texts.

    Raises:
        SettingsError: the file can't be read, the password is wrong, or it is another kind of store.
    """
    try:
        raw = read_file(path, pipes=True)
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read: {error.strerror}") from None
    if raw.startswith(_JCEKS_MAGIC):
        raise SettingsError(
            f"{setting}: {path} is a JCEKS store, which kretain does not read; convert it: keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype JCEKS -destkeystore store.p12 -deststoretype PKCS12"
        )
    try:
        if raw.startswith(_JKS_MAGIC):
            return _read_jks(raw, password or "", password if key_password is None else key_password)
        return _read_pkcs12(raw, password)
    except (ValueError, struct.error, IndexError) as error:
        why = f" ({error})" if isinstance(error, _StoreError) else ""
        raise SettingsError(
            f"{setting}: {path} cannot be opened: wrong password, or neither JKS nor PKCS12{why}"
        ) from None


def _read_pkcs12(raw: bytes, password: str | None) -> JavaStore:
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.load_pkcs12(raw, None if password is None else password.encode())
    others = [one.certificate for one in store.additional_certs]
    own = [store.cert.certificate] if store.cert is not None else []
    pem = ser.Encoding.PEM
    plain = (pem, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    key = None if store.key is None else store.key.private_bytes(*plain).decode()
    trusted = "".join(cert.public_bytes(pem).decode() for cert in ([] if key else own) + others)
    return JavaStore(trusted, key, "".join(cert.public_bytes(pem).decode() for cert in own + others) if key else None)


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.raw):
            raise _StoreError("the file is cut short")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # its type, X.509
        return self.take(self.number())


def _read_jks(raw: bytes, password: str, key_password: str | None) -> JavaStore:
    body, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
    sealed = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
    if password and not hmac.compare_digest(sealed, digest):
        raise _StoreError("the store's seal does not match the password")
    reader = _Reader(body)
    reader.take(4)
    version = reader.number()
    trusted: list[bytes] = []
    key: bytes | None = None
    chain: list[bytes] = []
    for _ in range(reader.number()):
        kind = reader.number()
        reader.text()  # the alias
        reader.take(8)  # the creation date
        match kind:
            case 2:
                trusted.append(reader.certificate(version))
            case 1:
                sealed_key = reader.take(reader.number())
                certificates = [reader.certificate(version) for _ in range(reader.number())]
                if key is None:
                    key, chain = _unseal(sealed_key, key_password or ""), certificates
            case _:
                raise _StoreError(f"an entry of kind {kind}")
    return JavaStore(
        "".join(_pem("CERTIFICATE", one) for one in trusted),
        None if key is None else _pem("PRIVATE KEY", key),
        "".join(_pem("CERTIFICATE", one) for one in chain) if key is not None else None,
    )


def _unseal(sealed: bytes, password: str) -> bytes:
    """Decrypt the format of sun.security.provider.KeyProtector: 20 bytes of salt, key XOR SHA-1 keystream, digest."""
    protected = _der_octets(sealed)
    secret = password.encode("utf-16-be")
    salt, body, digest = protected[:20], protected[20:-20], protected[-20:]
    stream, block = b"", salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), digest):
        raise _StoreError("the private key's password is wrong")
    return plain


def _der_octets(der: bytes) -> bytes:
    """Return the OCTET STRING of an EncryptedPrivateKeyInfo (SEQUENCE {algorithm, OCTET STRING})."""
    sequence, _ = _der_value(der, 0, 0x30)
    _algorithm, after = _der_value(sequence, 0, 0x30)
    octets, _ = _der_value(sequence, after, 0x04)
    return octets


def _der_value(der: bytes, at: int, tag: int) -> tuple[bytes, int]:
    if der[at] != tag:
        raise _StoreError("not a private key")
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count], "big"), start + count
    return der[start : start + length], start + length


def _pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{textwrap.fill(base64.b64encode(der).decode(), 64)}\n-----END {label}-----\n"
