"""Connection settings as people have them: what can't be carried over is said with its substitute, secrets never."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import kafka.errors as kafka_errors
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError, SettingsError
from retention_cli.brokers.records import Range, Search, read_ranges, search_records
from retention_cli.brokers.security.client_files import (
    _LEFT_OUT,
    _SUBSTITUTES,
    _UNDERSTOOD,
    Setting,
    _in_lines,
    masked,
    read_properties,
    translate,
)
from retention_cli.brokers.security.java_store import JavaStore, read_java_store
from retention_cli.brokers.security.sasl_settings import KerberosSettings
from retention_cli.brokers.security.settings import MASK, ConnectionSettings, is_secret
from retention_cli.brokers.wire.problems import connection_problem
from retention_cli.core.model import TopicPartition
from tests.support.client_files import (
    PLAIN,
    SASL,
    SCRAM,
    SECRET,
    jks_store,
    key_der,
    key_pem,
    of,
    pkcs12_store,
    refused,
    self_signed,
)
from tests.support.facts import known
from tests.support.says import refusal, says
from tests.support.world import written


@pytest.mark.parametrize("key", sorted(_SUBSTITUTES))
def test_unsupported_client_key_is_named_with_file_and_substitute(key: str) -> None:
    said = refused({key: "anything"})
    assert said.startswith(f"client.properties: {key}: ")
    assert any(word in said for word in ("use ", "write ", "remove it", "run kretain where"))


JAVA_SECURITY_KEYS = """
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type config.providers config.providers.file.class
""".split()  # noqa: SIM905
"""Every security key of Kafka 4.3's AdminClientConfig, and where secrets come from files."""
MERELY_TUNE = (
    "sasl.kerberos.kinit.",
    "sasl.kerberos.min.",
    "sasl.kerberos.ticket.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.login.connect.",
    "sasl.login.read.",
)


@pytest.mark.parametrize("key", JAVA_SECURITY_KEYS)
def test_every_java_security_key_is_used_or_refused(key: str) -> None:
    if key not in _UNDERSTOOD and not key.startswith(MERELY_TUNE):
        assert _LEFT_OUT.fullmatch(key) is None
        assert f"client.properties: {key}: " in refused({key: "TLSv1" if "protocol" in key else "x"})


TUNING = """
acks auto.commit.interval.ms auto.offset.reset batch.size buffer.memory check.crcs client.dns.lookup client.rack
compression.type connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit
enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.min.bytes group.id
group.instance.id group.protocol heartbeat.interval.ms interceptor.classes isolation.level key.deserializer
key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection max.poll.records metadata.max.age.ms
metadata.recovery.strategy metric.reporters metrics.num.samples partition.assignment.strategy partitioner.class
receive.buffer.bytes reconnect.backoff.ms request.timeout.ms retries retry.backoff.ms send.buffer.bytes
session.timeout.ms socket.connection.setup.timeout.ms transaction.timeout.ms transactional.id value.deserializer
value.serializer api.version.request broker.address.family debug log.connection.close message.max.bytes
queue.buffering.max.ms queued.min.messages socket.keepalive.enable socket.timeout.ms statistics.interval.ms
topic.metadata.refresh.interval.ms
acceptable.recovery.lag allow.os.group.write.access application.id application.server auto.include.jmx.reporter
bootstrap.resolve.timeout.ms buffer.memory.allocation.strategy buffered.records.per.partition built.in.metrics.version
cache.max.bytes.buffering commit.interval.ms default.client.supplier default.dsl.store
default.list.key.serde.inner default.timestamp.extractor deserialization.exception.handler dsl.store.format
dsl.store.suppliers.class enable.transactional.statestores ensure.explicit.internal.resource.naming
errors.dead.letter.queue.topic.name metadata.cluster.check.enable num.standby.replicas num.stream.threads poll.ms
probing.rebalance.interval.ms processing.exception.handler processing.guarantee processor.wrapper.class
production.exception.handler rack.aware.assignment.tags repartition.purge.interval.ms replication.factor
rocksdb.config.setter share.acknowledgement.mode share.acquire.mode state.cleanup.delay.ms state.dir
statestore.cache.max.bytes task.assignor.class task.timeout.ms topology.optimization upgrade.from window.size.ms
windowed.inner.class.serde windowstore.changelog.additional.retention.ms
auto.register.schemas bearer.auth.token schema.registry.auth
use.latest.version confluent.monitoring.interceptor.bootstrap.servers consumer.sasl.jaas.config
main.consumer.max.poll.records specific.avro.reader
""".split()  # noqa: SIM905


def test_tuning_keys_are_ignored_and_listed() -> None:
    settings = of(dict.fromkeys(TUNING, "1"))
    assert settings.left_out == tuple(sorted(TUNING))
    assert settings == of({}) or settings.for_librdkafka() == of({}).for_librdkafka()


def parsed(folder: Path, text: str, encoding: str = "utf-8") -> dict[str, Setting]:
    """Return the settings of a client's file with this text."""
    path = folder / "client.properties"
    path.write_text(text, encoding=encoding)
    return read_properties(path)


@pytest.mark.parametrize("key", ["ssl.truststore.certificates", "ssl.ca.pem", "ssl.ca.location"])
@pytest.mark.parametrize(
    "between", [" ", " \\\n", "\\n", "", "\\r\\n"], ids=["blanks", "continued", "\\n", "none", "\\r\\n"]
)
def test_single_line_pem_is_read_as_in_java(tmp_path: Path, key: str, between: str) -> None:
    pem = self_signed(0) + self_signed(1)
    value = pem.strip().replace("\n", between)
    if key == "ssl.ca.location":
        (tmp_path / "ca.pem").write_text("\ufeff" + value.replace("\\r", "\r").replace("\\n", "\n").replace("\\", ""))
        value = str(tmp_path / "ca.pem")
    settings = parsed(tmp_path, f"bootstrap.servers=a:1\nsecurity.protocol=SSL\n{key}={value}\n")
    found = known(translate(settings).ca_pem)
    assert len(ssl.create_default_context(cadata=found).get_ca_certs()) == 2
    assert x509.load_pem_x509_certificates(found.encode()) == x509.load_pem_x509_certificates(pem.encode())


def test_single_line_key_with_its_chain_keeps_its_headers(tmp_path: Path) -> None:
    one_line = key_pem(b"secret").strip().replace("\n", " ")
    settings = parsed(
        tmp_path,
        "bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.keystore.type=PEM\nssl.key.password=secret\n"
        f"ssl.keystore.certificate.chain={self_signed().strip().replace(chr(10), ' ')}\nssl.keystore.key={one_line}\n",
    )
    assert load_pem_private_key(known(translate(settings).key_pem).encode(), b"secret") is not None
    old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
    assert _in_lines(old) == old


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"sasl.jaas.conf": "x"}, "did you mean sasl.jaas.config?"),
        ({"security.protocols": "x"}, "did you mean security.protocol?"),
        ({"bootstrap.server": "x"}, "did you mean bootstrap.servers?"),
        ({"nonsense": "x"}, "neither a librdkafka nor a Java client setting"),
        ({"bootstrap.servers": ""}, "no cluster given"),
        ({"bootstrap.servers": " , "}, "no cluster given"),
        ({"bootstrap.servers": "host"}, "bootstrap.servers: 'host' is not HOST:PORT, such as host:9092"),
        ({"bootstrap.servers": "a:1,b:0"}, "'b:0' is not HOST:PORT"),
        ({"bootstrap.servers": "a:65536"}, "is not HOST:PORT"),
        ({"bootstrap.servers": f"a:{'9' * 10_404}"}, "…' is not HOST:PORT"),
        ({"security.protocol": "TLS"}, "'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({**SASL, "sasl.mechanism": "NTLM"}, "NTLM is not supported; use one of PLAIN, SCRAM-SHA-256"),
        (SASL, "sasl.username and sasl.password are needed"),
        ({**SASL, "sasl.username": "alice"}, "sasl.username and sasl.password are needed"),
        ({"ssl.endpoint.identification.algorithm": "http"}, "neither https nor empty"),
        ({"ssl.protocol": "SSLv3"}, "SSLv3 is not supported; use"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"}, "TLSv1.1 is not supported; use"),
        ({"sasl.password": "${file:/run/secret:key}"}, "write the values themselves"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"},
            "ssl.ca.location: /nowhere.pem cannot be read",
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/no.jks"},
            "ssl.truststore.location: /no.jks cannot be read: No such file",
        ),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "-----BEGIN"}, "needs both"),
        ({"security.protocol": "SSL", "ssl.key.pem": "-----BEGIN"}, "needs both"),
    ],
)
def test_client_file_error_is_reported_in_one_line(keys: dict[str, str], said: str) -> None:
    assert said in refused(keys)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "user", "password"),
    [
        ("PLAIN", f'{PLAIN} required username="alice" password="{SECRET}";', "alice", SECRET),
        ("SCRAM-SHA-512", f'{SCRAM} required username="alice" password="{SECRET}";', "alice", SECRET),
        ("scram-sha-256", f'{SCRAM} required username="alice" password="{SECRET}" tokenauth="false";', "alice", SECRET),
        ("PLAIN", f'{PLAIN}\trequired\tusername="alice"\tpassword="{SECRET}";', "alice", SECRET),
        ("PLAIN", f"{PLAIN} required\n username=alice\n password={SECRET};", "alice", SECRET),
        ("PLAIN", f"{PLAIN} required username='alice' password='a b;\tc';", "alice", "a b;\tc"),
        ("PLAIN", f'{PLAIN} required password="a\\"b\\\\c" username="al ice" ;', "al ice", 'a"b\\c'),
        ("PLAIN", f'{PLAIN} required username="a=b" password="username=x";', "a=b", "username=x"),
        ("PLAIN", f'PlainLoginModule required username="alice" password="{SECRET}"', "alice", SECRET),
    ],
)
def test_jaas_line_is_read_as_in_java(mechanism: str, jaas: str, user: str, password: str) -> None:
    settings = of({**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    assert (settings.mechanism, settings.username, settings.password) == (mechanism.upper(), user, password)
    passwords = settings.for_kafka_python()["sasl_plain_password"], settings.for_librdkafka()["sasl.password"]
    assert passwords == (password, password)


@pytest.mark.parametrize(
    ("keys", "checks_name", "checks_certificate"),
    [
        ({}, True, True),
        ({"ssl.endpoint.identification.algorithm": ""}, False, True),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, True, True),
        ({"enable.ssl.certificate.verification": "false"}, False, False),
        ({"enable.ssl.certificate.verification": "no"}, True, True),  # only the one word turns it off
    ],
)
def test_certificates_and_host_names_are_checked_by_default(
    keys: dict[str, str], *, checks_name: bool, checks_certificate: bool
) -> None:
    settings = of({"security.protocol": "SSL", **keys})
    context = settings.for_kafka_python()["ssl_context"]
    mode = ssl.CERT_REQUIRED if checks_certificate else ssl.CERT_NONE
    assert (context.check_hostname, context.verify_mode) == (checks_name, mode)
    rd = settings.for_librdkafka()
    assert rd["enable.ssl.certificate.verification"] is checks_certificate
    assert (rd["ssl.endpoint.identification.algorithm"] == "https") is (checks_name or not checks_certificate)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_properties_file_is_read_as_in_java_and_without_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    found = parsed(
        tmp_path,
        "security.protocol=SSL\n# a comment\n! another\nbootstrap.servers = a:1,\\\n    b:2  \n"
        "sasl.username:alice\n\nclient.id=\\u00fc=x\n",
        encoding,
    )
    values = {
        "security.protocol": "SSL",
        "bootstrap.servers": "a:1,b:2",
        "sasl.username": "alice",
        "client.id": "ü=x",
    }
    origin = str(tmp_path / "client.properties")
    assert found == {key: Setting(value, origin) for key, value in values.items()}


# -- Java stores: read as they are, and what is wrong with one is said without its password --

STORE, OTHER = "st0re-s3cret", "k3y-s3cret"
SETTING = "ssl.keystore.location"


def opened(tmp_path: Path, content: bytes, password: str | None, key_password: str | None = None) -> JavaStore:
    return read_java_store(written(tmp_path / "store", content), password, key_password, SETTING)


def body(pem: str | None) -> str:
    return "".join((pem or "").split("-----")[2::4]).replace("\n", "")


@pytest.mark.parametrize(
    ("content", "password"),
    [
        pytest.param(pkcs12_store(STORE, key=False), STORE, id="PKCS12"),
        pytest.param(jks_store(STORE, key=False), STORE, id="JKS"),
        pytest.param(jks_store(STORE, key=False), None, id="JKS without its password"),
    ],
)
def test_trusted_certificates_are_read_from_a_store(tmp_path: Path, content: bytes, password: str | None) -> None:
    store = opened(tmp_path, content, password)
    assert (body(store.certificates), store.key) == (body(self_signed()), None)


@pytest.mark.parametrize(
    ("content", "key_password"),
    [
        (pkcs12_store(STORE, key=True), None),
        *((jks_store(STORE, key=True, key_password=one), one) for one in (None, STORE, OTHER)),
    ],
    ids=["PKCS12", "JKS", "JKS, the same password", "JKS, a password of its own"],
)
def test_key_is_read_with_chain_and_own_password(tmp_path: Path, content: bytes, key_password: str | None) -> None:
    store = opened(tmp_path, content, STORE, key_password)
    assert (base64.b64decode(body(store.key)), body(store.chain)) == (key_der(), body(self_signed()))
    assert store.certificates == "", "our own certificate must not be trusted as a CA"
    settings = ConnectionSettings("h:1", "SSL", certificate_pem=store.chain, key_pem=store.key, ca_pem=self_signed())
    settings.for_kafka_python()  # the TLS library takes them


@pytest.mark.parametrize(
    ("content", "password", "key_password", "said"),
    [
        (pkcs12_store(STORE, key=True), OTHER, None, "wrong password"),
        (jks_store(STORE, key=True), OTHER, None, "wrong password"),
        (jks_store(STORE, key=False), OTHER, None, "wrong password"),
        (jks_store(STORE, key=True, key_password=OTHER), STORE, None, "the private key's password is wrong"),
        (jks_store(STORE, key=True, key_password=OTHER), STORE, STORE, "the private key's password is wrong"),
        (b"", STORE, None, "neither JKS nor PKCS12"),
        (b"-----BEGIN CERTIFICATE-----", STORE, None, "neither JKS nor PKCS12"),
        (b"\xce\xce\xce\xce\x00\x00", STORE, None, "keytool -importkeystore"),
        (b"\xfe\xed\xfe\xed", STORE, None, "cannot be opened"),
        (jks_store(STORE, key=False)[:-1], STORE, None, "cannot be opened"),
        (jks_store(STORE, key=False) + b"x", STORE, None, "cannot be opened"),
        (pkcs12_store(STORE, key=False)[:-9], STORE, None, "cannot be opened"),
    ],
)
def test_store_that_is_none_or_has_another_password_is_named(
    tmp_path: Path, content: bytes, password: str, key_password: str | None, said: str
) -> None:
    text = refusal(SettingsError, opened, tmp_path, content, password, key_password)
    assert text.startswith(f"{SETTING}: {tmp_path}/store ")
    says(text, said, never=["\n", STORE, OTHER])


WHOLE = [pkcs12_store(STORE, key=True), jks_store(STORE, key=True), jks_store(STORE, key=False)]


@given(st.sampled_from(WHOLE), st.data(), st.sampled_from([STORE, None, ""]))
def test_damaged_store_is_an_error_or_unchanged(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject, password: str | None
) -> None:
    """Cut short or with some bytes changed: one clear error, or, where no seal is asked for, what can be read of it."""
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        store = opened(tmp_path_factory.mktemp("stores"), bytes(damaged), password)
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
    store = {f"ssl.{kind}store.location": str(path), f"ssl.{kind}store.password": STORE}
    assert f"ssl.{kind}store.location: {path} {said}" in refused({"security.protocol": "SSL", **store})


# -- passwords and keys: masked where settings are shown, and never quoted in what is said of them --


GSSAPI = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
US = "kretain@EXAMPLE.COM"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
BAD_JAAS = [
    f'{SCRAM} required username="a" password="{SECRET}";',  # not for PLAIN
    f'com.example.Login required password="{SECRET}";',
    f'{PLAIN} required password="{SECRET}";',
    f'{PLAIN} required username="a" passwort="{SECRET}";',
    f'password="x.{SECRET}"',
    f'username="a"\tpassword="{SECRET}";',
    f".{SECRET}",
    SECRET,
    "",
]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        *(({**SASL, "sasl.jaas.config": jaas}, "sasl.") for jaas in BAD_JAAS),
        ({**SASL, "sasl.jaas.config": f"{KRB5};"}, "Krb5LoginModule does not fit sasl.mechanism=PLAIN"),
        (
            {**GSSAPI, "sasl.jaas.config": f'{KRB5} principal="{US}";'},
            "Krb5LoginModule has neither useKeyTab=true",
        ),
        ({**GSSAPI, "sasl.jaas.config": f"{KRB5} useKeyTab=true;"}, "Krb5LoginModule has neither useKeyTab=true"),
        (
            {**GSSAPI, "sasl.jaas.config": f'{PLAIN} required username="a" password="b";'},
            "PlainLoginModule does not fit sasl.mechanism=GSSAPI",
        ),
        (
            {**GSSAPI, "sasl.jaas.config": "x"},
            "it names no login module; write sasl.kerberos.keytab and sasl.kerberos.principal instead",
        ),
        ({"bootstrap.servers": f"alice:{SECRET}@h:9"}, "HOST:PORT"),
        ({"bootstrap.servers": f"SASL_SSL://alice:{SECRET}@h:9"}, "HOST:PORT"),
        ({"bootstrap.servers": f"h:9,alice:{SECRET},x@h:9"}, "HOST:PORT"),
        ({"bootstrap.servers": f"SASL_SSL://{SECRET}:9"}, "HOST:PORT"),
    ],
)
def test_unusable_jaas_line_or_address_is_refused_and_never_quoted(keys: dict[str, str], named: str) -> None:
    says(refused(keys), named, never=[SECRET, "alice"])


CHOICES: dict[str, list[str]] = {
    "security.protocol": ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "sasl_ssl", "x"],
    "sasl.mechanism": ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"],
    "sasl.jaas.config": [*BAD_JAAS, f'{PLAIN} required username="a" password="{SECRET}";'],
    "sasl.oauthbearer.token.endpoint.url": [f"https://a:{SECRET}@h/", "https://h/", f"https://h/?k={SECRET}"],
    "sasl.oauthbearer.client.id": ["alice"],
    "sasl.oauthbearer.client.secret": [SECRET],
    "sasl.username": ["alice"],
    "sasl.password": [SECRET, "${" + SECRET],
    "ssl.key.password": [SECRET],
    "ssl.keystore.password": [SECRET],
    "ssl.truststore.password": [SECRET],
    "ssl.key.pem": [SECRET, f"-----BEGIN PRIVATE KEY-----\n{SECRET}"],
    "ssl.keystore.key": [SECRET],
    "ssl.certificate.pem": ["-----BEGIN CERTIFICATE-----\nAA"],
    "ssl.ca.pem": ["x"],
    "ssl.truststore.location": ["/nowhere", __file__],
    "ssl.truststore.type": ["PEM", "JKS"],
    "ssl.keystore.location": ["/nowhere", __file__],
    "ssl.keystore.type": ["PEM", "PKCS12"],
    "enable.ssl.certificate.verification": ["true", "false"],
}


@given(st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in CHOICES.items()}))
def test_no_key_combination_shows_a_secret(keys: dict[str, str]) -> None:
    try:
        settings = of(keys)
        assert SECRET not in repr(settings)
        settings.for_kafka_python()
    except SettingsError as error:
        assert SECRET not in str(error)


@pytest.mark.parametrize(
    "key",
    [
        *("sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password"),
        *("ssl.key.pem", "ssl.keystore.key", "sasl.oauthbearer.client.secret", "basic.auth.user.info"),
        *("schema.registry.basic.auth.user.info", "sasl.oauthbearer.config", "bearer.auth.token"),
    ],
)
def test_secrets_are_masked(key: str) -> None:
    assert (is_secret(key), masked(key, SECRET)) == (True, MASK)


def test_store_of_pem_shows_no_key_in_its_repr() -> None:
    assert SECRET not in repr(JavaStore(certificates=SECRET, key=SECRET, chain=SECRET))


def test_every_secret_key_is_known_as_secret() -> None:
    assert {key for key in _UNDERSTOOD if is_secret(key)} == {
        *("sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem", "ssl.keystore.key"),
        *("ssl.keystore.password", "ssl.truststore.password"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
        "sasl.oauthbearer.token.command",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"sasl.password=\\u12x{SECRET}".encode(), " is not a properties file"),
        (b"sasl.password=\xff" + SECRET.encode(), " is not a properties file"),
        (f'sasl.jaas.config={PLAIN} required\nusername="a"\npassword="{SECRET}";\n'.encode(), ":2: not a setting"),
        (f"# of the vault\n\n{SECRET}\n".encode(), ":3: not a setting"),
        (f"client.id=a\\\n  b\n{SECRET}=\n".encode(), ":3: not a setting"),
        (f"bootstrap.servers=a:1\n{SECRET} x\n".encode(), ":2: not a setting"),
        (f"{SECRET}.dotted\n".encode(), ":1: not a setting"),
        *(
            (f"# ours\n{line}\nbootstrap.servers=a:1\n".encode(), f":2: {line.strip()} begins a section")
            for line in ("[default]", " [ prod.eu ] ", "[]")
        ),
    ],
)
def test_line_that_is_no_setting_is_named_and_not_quoted(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "client.properties").write_bytes(content)
    text = refusal(SettingsError, read_properties, tmp_path / "client.properties")
    says(text, f"client.properties{said}", never=["12x", SECRET])


@pytest.mark.parametrize("key", ["sasl.pasword", "sasl_passwort", "my.pass.word"])
def test_value_of_an_unknown_key_is_never_shown(key: str, tmp_path: Path) -> None:
    settings = parsed(tmp_path, f"bootstrap.servers=a:1\n{key}={SECRET}\n")
    assert masked(key, SECRET) == MASK
    says(refusal(SettingsError, translate, settings), f"{key}: unknown setting", never=[SECRET])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"https://bob:{SECRET}@registry/", f"{MASK}@registry/"),
        (f"broker:9092,alice:{SECRET}@other:9092", f"{MASK}@other:9092"),
        (f"alice:p@{SECRET}@other:9092", f"{MASK}@other:9092"),
        ("broker:9092,other:9092", "broker:9092,other:9092"),
        ("me@work", "me@work"),
        ("value", "value"),
    ],
)
@pytest.mark.parametrize("key", ["sasl.username", "bootstrap.servers", "ssl.ca.location", "client.id"])
def test_value_that_is_no_secret_is_shown_without_a_user_in_its_url(key: str, value: str, shown: str) -> None:
    assert masked(key, value) == shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            f'contexts:\n  a:\n    settings:\n      sasl.password: "{SECRET}\n',
            ":5: not YAML: a quote is not closed",
        ),
        (f"contexts:\n  a:\n    settings: {{sasl.password: {SECRET}{{et: x]\n", ":3: not YAML: a { is not closed by }"),
        (f"contexts: *{SECRET.strip('!')}\n", ":1: not YAML: "),
    ],
)
def test_broken_configuration_file_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    from kretain.config import ConfigError, contexts

    path = written(tmp_path / "config.yaml", content)
    monkeypatch.setenv("KRETAIN_CONFIG", str(path))
    says(refusal(ConfigError, contexts), f"{path}{said}", never=[SECRET])


# -- what client files say about Kerberos, and what is said where tickets are refused --


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, KerberosSettings()),
        (
            {
                "sasl.kerberos.keytab": "/k",
                "sasl.kerberos.principal": US,
                "sasl.kerberos.service.name": "broker",
                "sasl.kerberos.kinit.cmd": "kinit -R",
            },
            KerberosSettings("broker", US, "/k"),
        ),
        (
            {"sasl.jaas.config": f'{KRB5}\n useKeyTab=true\n storeKey=true keyTab="/k" principal="{US}";'},
            KerberosSettings("kafka", US, "/k"),
        ),
        (
            {"sasl.jaas.config": f'{KRB5} useTicketCache=TRUE renewTGT=true serviceName="broker";'},
            KerberosSettings("broker"),
        ),
        (
            {"sasl.jaas.config": f'{KRB5} useTicketCache=true ticketCache="/tmp/c" keyTab="/not-used";'},
            KerberosSettings(cache="/tmp/c"),
        ),
        (
            {"sasl.jaas.config": f'{KRB5} useKeyTab=true keyTab="/k" useTicketCache=true ticketCache="/tmp/c";'},
            KerberosSettings(keytab="/k"),
        ),
    ],
)
def test_client_file_says_where_tickets_come_from(keys: dict[str, str], expected: KerberosSettings) -> None:
    settings = of({**GSSAPI, **keys})
    assert (settings.mechanism, settings.kerberos, settings.secrets()) == ("GSSAPI", expected, [])


def test_broker_refusing_a_ticket_is_told_from_a_missing_ticket() -> None:
    texts = (
        "SaslAuthenticationFailedError: invalid credentials",
        "Kerberos: the ticket has expired: renew it with kinit",
    )
    of_broker, ours = (connection_problem(kafka_errors.SaslAuthenticationFailedError(text), "GSSAPI") for text in texts)
    assert of_broker.startswith("it did not accept the Kerberos ticket: ")
    assert ours == texts[1]


def test_records_are_an_error_for_each_partition_and_nothing_connects() -> None:
    """What needs records holds, partition by partition; nothing is taken for read."""
    settings = of(GSSAPI)
    tps = [TopicPartition("a", 0), TopicPartition("a", 1)]
    found = search_records(settings, dict.fromkeys(tps, Search(0, 9, 5, 100)), deadline=1e12)
    read = read_ranges(settings, dict.fromkeys(tps, Range(0, 9)), None, lambda *_: pytest.fail("a record"))
    for answers in (found, read):
        errors = [one for one in answers.values() if isinstance(one, RequestFailedError)]
        assert (list(answers), [one.retriable for one in errors]) == (tps, [False, False])
    assert "over Kerberos" in refusal(RequestFailedError, settings.for_librdkafka)
