"""Client files and what the connection settings make of them; certificates and Java stores, made on the spot."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import ssl
import struct
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.security.client_files import (
    Setting,
    translate,
)
from retention_cli.brokers.security.settings import ConnectionSettings
from tests.support.says import refusal
from tests.support.world import written


def properties(tmp_path: Path, **settings: object) -> Path:
    lines = (f"{key.replace('_', '.')}={value}\n" for key, value in settings.items())
    return written(tmp_path / "client.properties", "".join(lines))


SECRET = "s3cret!"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def of(keys: dict[str, str]) -> ConnectionSettings:
    return translate(
        {key: Setting(value, "client.properties") for key, value in {"bootstrap.servers": "h:9092", **keys}.items()}
    )


def refused(keys: dict[str, str]) -> str:
    text = refusal(SettingsError, of, keys)
    assert "\n" not in text
    return text


DER, PEM = ser.Encoding.DER, ser.Encoding.PEM
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@cache
def pair(number: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and its self-signed certificate, which is for 127.0.0.1; another one for each number."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kretain-test")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + dt.timedelta(days=9000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(address, critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def self_signed(number: int = 0) -> str:
    return pair(number)[1].public_bytes(PEM).decode()


def key_pem(password: bytes | None = None) -> str:
    return pair(0)[0].private_bytes(PEM, ser.PrivateFormat.PKCS8, _sealed(password)).decode()


def _sealed(password: bytes | None) -> ser.KeySerializationEncryption:
    return ser.NoEncryption() if password is None else ser.BestAvailableEncryption(password)


def serving(certificate: Path) -> ssl.SSLContext:
    """Return a server's side of TLS, with a certificate that it writes to a file."""
    certificate.write_text(self_signed() + key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def key_der() -> bytes:
    return pair(0)[0].private_bytes(DER, ser.PrivateFormat.PKCS8, ser.NoEncryption())


def pkcs12_store(password: str | None, *, key: bool) -> bytes:
    sealed = _sealed(None if password is None else password.encode())
    if key:
        return pkcs12.serialize_key_and_certificates(b"mine", pair(0)[0], pair(0)[1], None, sealed)
    return pkcs12.serialize_key_and_certificates(None, None, None, [pair(0)[1]], sealed)


def jks_store(password: str, *, key: bool, key_password: str | None = None) -> bytes:
    """A JKS file as keytool writes it: magic, version 2, entries, and a digest over it all."""
    certificate = pair(0)[1].public_bytes(DER)
    x509_entry = struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
    alias = struct.pack(">H", 4) + b"mine" + struct.pack(">Q", 0)
    if key:
        protected = _protect(key_der(), key_password or password)
        entry = (
            struct.pack(">I", 1)
            + alias
            + struct.pack(">I", len(protected))
            + protected
            + struct.pack(">I", 1)
            + x509_entry
        )
    else:
        entry = struct.pack(">I", 2) + alias + x509_entry
    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, 1) + entry
    seal = password.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(seal + body, usedforsecurity=False).digest()


def _protect(plain: bytes, password: str) -> bytes:
    """sun.security.provider.KeyProtector, the other way round than the product has it."""
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    stream, block = b"", salt
    while len(stream) < len(plain):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    digest = hashlib.sha1(secret + plain, usedforsecurity=False).digest()
    octets = salt + bytes(a ^ b for a, b in zip(plain, stream, strict=False)) + digest
    return _der(0x30, bytes.fromhex("300e060a2b060104012a021101010500") + _der(0x04, octets))


def _der(tag: int, content: bytes) -> bytes:
    length = bytes([len(content)]) if len(content) < 128 else b"\x82" + struct.pack(">H", len(content))
    return bytes([tag]) + length + content
