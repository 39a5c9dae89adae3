"""What client files say about Kerberos, and what is said where tickets are refused."""

from __future__ import annotations

import kafka.errors as kafka_errors
import pytest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.records import Range, Search, read_ranges, search_records
from retention_cli.brokers.security.sasl_settings import KerberosSettings
from retention_cli.brokers.wire.problems import connection_problem
from retention_cli.core.model import TopicPartition
from tests.support.client_files import PLAIN, of, refused

GSSAPI = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
US = "kretain@EXAMPLE.COM"


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
    assert (settings.mechanism, settings.kerberos) == ("GSSAPI", expected)
    assert settings.secrets() == []


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        (f'{KRB5} principal="{US}";', "Krb5LoginModule has neither useKeyTab=true"),
        (f"{KRB5} useKeyTab=true;", "Krb5LoginModule has neither useKeyTab=true"),
        (f'{PLAIN} required username="a" password="b";', "PlainLoginModule does not fit sasl.mechanism=GSSAPI"),
        ("x", "it names no login module; write sasl.kerberos.keytab and sasl.kerberos.principal instead"),
    ],
)
def test_jaas_line_that_cannot_log_in_is_refused(jaas: str, said: str) -> None:
    assert said in refused({**GSSAPI, "sasl.jaas.config": jaas})


def test_krb5_login_module_does_not_fit_other_mechanisms() -> None:
    said = refused({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{KRB5};"})
    assert "Krb5LoginModule does not fit sasl.mechanism=PLAIN" in said


def test_broker_refusing_a_ticket_is_told_from_a_missing_ticket() -> None:
    of_broker = kafka_errors.SaslAuthenticationFailedError("SaslAuthenticationFailedError: invalid credentials")
    assert connection_problem(of_broker, "GSSAPI").startswith("it did not accept the Kerberos ticket: ")
    our_own = kafka_errors.SaslAuthenticationFailedError("Kerberos: the ticket has expired: renew it with kinit")
    assert connection_problem(our_own, "GSSAPI") == "Kerberos: the ticket has expired: renew it with kinit"


def test_records_are_an_error_for_each_partition_and_nothing_connects() -> None:
    """What needs records holds, partition by partition; nothing is taken for read."""
    settings = of(GSSAPI)
    tp, other = TopicPartition("a", 0), TopicPartition("a", 1)
    found = search_records(settings, {tp: Search(0, 9, 5, 100), other: Search(3, 9, 5, 100)}, deadline=1e12)
    read = read_ranges(settings, {tp: Range(0, 9)}, None, lambda *_: pytest.fail("a record"))
    for one in (*found.values(), *read.values()):
        assert isinstance(one, RequestFailedError)
        assert not one.retriable
    assert set(found) == {tp, other}
    with pytest.raises(RequestFailedError, match="over Kerberos"):
        settings.for_librdkafka()
