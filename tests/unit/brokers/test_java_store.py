"""Java stores: read as they are, and what is wrong with one is said without its password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.security.client_files import Setting, translate
from retention_cli.brokers.security.java_store import JavaStore, read_java_store
from retention_cli.brokers.security.settings import ConnectionSettings
from tests.support.java_stores import jks_store, key_der, pkcs12_store, self_signed

STORE, OTHER = "st0re-s3cret", "k3y-s3cret"
SETTING = "ssl.keystore.location"


def opened(tmp_path: Path, content: bytes, password: str | None, key_password: str | None = None) -> JavaStore:
    path = tmp_path / "store"
    path.write_bytes(content)
    return read_java_store(path, password, key_password, SETTING)


def refused(tmp_path: Path, content: bytes, password: str | None, key_password: str | None = None) -> str:
    with pytest.raises(SettingsError) as error:
        opened(tmp_path, content, password, key_password)
    said = str(error.value)
    assert said.startswith(f"{SETTING}: {tmp_path}/store ")
    assert "\n" not in said
    assert not any(secret in said for secret in (STORE, OTHER))
    return said


def body(pem: str | None) -> str:
    return "".join((pem or "").split("-----")[2::4]).replace("\n", "")


def test_trusted_certificates_are_read_from_jks_and_pkcs12(tmp_path: Path) -> None:
    for content in (pkcs12_store(STORE, key=False), jks_store(STORE, key=False)):
        store = opened(tmp_path, content, STORE)
        assert body(store.certificates) == body(self_signed())
        assert store.key is None


@pytest.mark.parametrize("key_password", [None, STORE, OTHER])
def test_jks_key_is_read_with_chain_and_own_password(tmp_path: Path, key_password: str | None) -> None:
    import base64

    store = opened(tmp_path, jks_store(STORE, key=True, key_password=key_password), STORE, key_password)
    assert base64.b64decode(body(store.key)) == key_der()
    assert body(store.chain) == body(self_signed())
    settings = ConnectionSettings("h:1", "SSL", certificate_pem=store.chain, key_pem=store.key, ca_pem=self_signed())
    settings.for_kafka_python()  # the TLS library takes them


def test_pkcs12_key_is_read_with_its_chain(tmp_path: Path) -> None:
    store = opened(tmp_path, pkcs12_store(STORE, key=True), STORE)
    assert "PRIVATE KEY" in (store.key or "")
    assert body(store.chain) == body(self_signed())
    assert store.certificates == "", "one's own certificate is nobody's authority"


def test_jks_trust_store_opens_without_its_password(tmp_path: Path) -> None:
    assert opened(tmp_path, jks_store(STORE, key=False), None).certificates


def test_wrong_key_password_is_named(tmp_path: Path) -> None:
    content = jks_store(STORE, key=True, key_password=OTHER)
    assert "the private key's password is wrong" in refused(tmp_path, content, STORE)
    assert "the private key's password is wrong" in refused(tmp_path, content, STORE, STORE)


@pytest.mark.parametrize(
    ("content", "password", "said"),
    [
        (pkcs12_store(STORE, key=True), OTHER, "wrong password"),
        (jks_store(STORE, key=True), OTHER, "wrong password"),
        (jks_store(STORE, key=False), OTHER, "wrong password"),
        (b"", STORE, "neither JKS nor PKCS12"),
        (b"-----BEGIN CERTIFICATE-----", STORE, "neither JKS nor PKCS12"),
        (b"\xce\xce\xce\xce\x00\x00", STORE, "keytool -importkeystore"),
        (b"\xfe\xed\xfe\xed", STORE, "cannot be opened"),
        (jks_store(STORE, key=False)[:-1], STORE, "cannot be opened"),
        (jks_store(STORE, key=False) + b"x", STORE, "cannot be opened"),
        (pkcs12_store(STORE, key=False)[:-9], STORE, "cannot be opened"),
    ],
)
def test_store_that_is_none_or_has_another_password_is_named(
    tmp_path: Path, content: bytes, password: str, said: str
) -> None:
    assert said in refused(tmp_path, content, password)


def test_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_java_store(tmp_path / "none", STORE, None, SETTING)


WHOLE = [pkcs12_store(STORE, key=True), jks_store(STORE, key=True), jks_store(STORE, key=False)]


@given(st.sampled_from(WHOLE), st.data(), st.sampled_from([STORE, None, ""]))
def test_damaged_store_is_an_error_or_unchanged(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject, password: str | None
) -> None:
    """Cut short or with some bytes changed: one clear error, or, where no seal is asked for, what can be read of it."""
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("stores") / "store"
    path.write_bytes(damaged)
    try:
        store = read_java_store(path, password, None, SETTING)
    except SettingsError as error:
        assert STORE not in str(error)
    else:
        assert password != STORE or damaged == content or not damaged.startswith(b"\xfe\xed"), "its seal is broken"
        assert isinstance(store, JavaStore)


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("trust", jks_store(STORE, key=True), "holds no trusted certificate"),
        ("key", jks_store(STORE, key=False), "holds no private key"),
    ],
)
def test_store_of_the_wrong_type_names_the_type_key(tmp_path: Path, kind: str, content: bytes, said: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    keys = {
        "bootstrap.servers": "h:1",
        "security.protocol": "SSL",
        f"ssl.{kind}store.location": str(path),
        f"ssl.{kind}store.password": STORE,
    }
    with pytest.raises(SettingsError, match=f"ssl.{kind}store.location: {path} {said}"):
        translate({key: Setting(value, "f") for key, value in keys.items()})
