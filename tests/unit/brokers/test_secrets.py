"""Passwords and keys: masked where settings are shown, and never quoted in what is said of them."""

from __future__ import annotations

from pathlib import Path

import kafka.errors as kafka_errors
import pytest
from hypothesis import given, strategies as st

from retention_cli.brokers.errors import RequestFailedError, SettingsError
from retention_cli.brokers.records import Range, Search, read_ranges, search_records
from retention_cli.brokers.security.client_files import _UNDERSTOOD, masked, read_properties, translate
from retention_cli.brokers.security.java_store import JavaStore
from retention_cli.brokers.security.sasl_settings import KerberosSettings
from retention_cli.brokers.security.settings import MASK, is_secret
from retention_cli.brokers.wire.problems import connection_problem
from retention_cli.core.model import TopicPartition
from tests.support.client_files import PLAIN, SASL, SCRAM, SECRET, of, refused
from tests.support.says import refusal, says

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
    ],
)
def test_line_that_is_no_setting_is_named_and_not_quoted(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "client.properties").write_bytes(content)
    text = refusal(SettingsError, read_properties, tmp_path / "client.properties")
    says(text, f"client.properties{said}", never=["12x", SECRET])


@pytest.mark.parametrize("key", ["sasl.pasword", "sasl_passwort", "my.pass.word"])
def test_value_of_an_unknown_key_is_never_shown(key: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=a:1\n{key}={SECRET}\n")
    assert masked(key, SECRET) == MASK
    says(refusal(SettingsError, translate, read_properties(path)), f"{key}: unknown setting", never=[SECRET])


def test_unknown_key_of_a_registrys_client_is_left_out() -> None:
    assert of({"schema.registry.auth": SECRET}).left_out == ("schema.registry.auth",)


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

    path = tmp_path / "config.yaml"
    path.write_text(content)
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
