"""Signing in with tokens and AWS credentials: what client files mean, where they come from, and that nothing leaks."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import os
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from retention_cli.brokers.errors import BrokerError, SettingsError, UnauthorizedError, UnreachableError
from retention_cli.brokers.republisher import _error
from retention_cli.brokers.security.aws import AwsIdentity, Signer, sign_in
from retention_cli.brokers.security.client_files import masked
from retention_cli.brokers.security.sasl_settings import OAuthSettings
from retention_cli.brokers.security.settings import MASK, ConnectionSettings
from retention_cli.brokers.security.tokens import TokenProvider
from retention_cli.engines.spark.shipping import Sender
from tests.support.client_files import of, refused, serving
from tests.support.facts import known
from tests.support.http_server import CLIENT, CLIENT_SECRET, Answer, LocalServer, TokenServer
from tests.support.says import raised, refusal, says
from tests.support.world import wait_until, written

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "https://idp.example/oauth2/token"
LIBRDKAFKA = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.oauthbearer.client.id": CLIENT,
    "sasl.oauthbearer.client.secret": CLIENT_SECRET,
}
JAVA = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    ),
    "sasl.jaas.config": (
        f'{MODULE} required clientId="{CLIENT}" clientSecret="{CLIENT_SECRET}" scope="a b" extension_logicalCluster="lkc-1";'
    ),
}


def test_oauth_keys_of_both_clients_give_equal_settings() -> None:
    more = {"sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "logicalCluster=lkc-1"}
    credentials = {key.replace("r.client.", "r.client.credentials.client."): value for key, value in LIBRDKAFKA.items()}
    wanted = OAuthSettings(URL, CLIENT, CLIENT_SECRET, "a b", (("logicalCluster", "lkc-1"),))
    java = of(JAVA)
    assert [of({**LIBRDKAFKA, **more}).oauth, java.oauth, of({**credentials, **more}).oauth] == [wanted] * 3
    assert not [key for key in java.for_librdkafka() if "username" in key or "password" in key]
    assert not [key for key in java.for_kafka_python() if "plain" in key]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("endpoint.url", URL, URL),
        ("endpoint.url", f"https://bob:{CLIENT_SECRET}@idp/t?key={CLIENT_SECRET}", f"{MASK}@idp/t?{MASK}"),
        ("file", "/var/run/token", "/var/run/token"),
        ("command", f"t {CLIENT_SECRET}", MASK),
    ],
)
def test_token_source_is_shown_with_its_secret_masked(key: str, value: str, shown: str) -> None:
    assert masked(f"sasl.oauthbearer.token.{key}", value) == shown


def test_oauth_settings_survive_a_file_and_a_pickle(tmp_path: Path) -> None:
    settings = of({**JAVA, "https.ca.pem": "-----BEGIN CERTIFICATE-----"})
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301
    here = SimpleNamespace(_jsc="a JVM", sparkContext=SimpleNamespace(master="local[2]"))
    found = Sender(here, tmp_path).connection(settings)
    assert (found.load(), found.file.here().stat().st_mode & 0o077) == (settings, 0)


# -- the endpoint -----------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as one:
        yield one


def provider_of(server: TokenServer, **more: Any) -> TokenProvider:
    return TokenProvider(dataclasses.replace(OAuthSettings(server.url, CLIENT, CLIENT_SECRET), **more))


def test_concurrent_callers_share_one_token_request(server: TokenServer) -> None:
    provider = provider_of(server, scope="kafka read", urlencode=True)
    server.hold.clear()
    with ThreadPoolExecutor(8) as many:
        waiting = [many.submit(provider.token) for _ in range(8)]
        wait_until(lambda: bool(server.asked), "a request")
        server.hold.set()
        values = {one.result().value for one in waiting}
    assert values == {provider.token().value} == {server.issued[0]}
    [(_headers, asked)] = server.asked
    assert asked == "grant_type=client_credentials&scope=kafka+read"


def test_old_token_serves_until_it_expires_while_renewal_fails(server: TokenServer) -> None:
    provider = provider_of(server)
    first = provider.token()
    assert first.expires_s - first.obtained_s == pytest.approx(300, abs=2)
    aged = dataclasses.replace(first, obtained_s=first.obtained_s - 2000)  # more than four fifths are over
    provider._token = aged  # noqa: SLF001
    server.answer = lambda: (503, {}, b"")
    for _again in range(2):  # the second time it is not asked for again at once
        assert provider.token() is aged
        assert len(server.asked) == 2
    server.answer = None
    provider._again_s = 0.0  # noqa: SLF001
    assert provider.token().value == server.issued[-1] != aged.value
    server.answer = lambda: (503, {}, b"")
    provider._token = dataclasses.replace(first, expires_s=first.obtained_s - 1)  # noqa: SLF001
    refusal(UnreachableError, provider.token)  # an expired token is never handed out


def json_answer(**content: object) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {}, b'{"error":"invalid_client"}'), UnauthorizedError, "refused the client (HTTP 401, invalid_client)"),
        ((400, {}, b'{"error":"SECRET"}'), UnauthorizedError, "refused the client (HTTP 400):"),
        ((403, {}, b"<html>SECRET</html>"), UnauthorizedError, "refused the client (HTTP 403)"),
        ((302, {"Location": "http://elsewhere/SECRET"}, b""), BrokerError, "it redirects (HTTP 302)"),
        ((404, {}, b"SECRET"), BrokerError, "issues no token (HTTP 404)"),
        ((429, {}, b""), UnreachableError, "it is failing (HTTP 429)"),
        ((503, {}, b"SECRET"), UnreachableError, "it is failing (HTTP 503)"),
        ((200, {}, b"<html>SECRET</html>"), BrokerError, "has no access_token"),
        ((200, {}, b"[" * 60_000), BrokerError, "has no access_token"),
        ((200, {}, b" " * 70_000), BrokerError, "longer than 64 KiB"),
        (json_answer(access_token="SECRET\x01auth=x", expires_in=9), BrokerError, "has no access_token"),
        (json_answer(access_token=["SECRET"], expires_in=9), BrokerError, "has no access_token"),
        (json_answer(access_token="SECRET", token_type="mac", expires_in=9), BrokerError, "not a bearer token"),
        (json_answer(access_token="SECRET"), BrokerError, "how long its token is valid"),
        (json_answer(access_token="SECRET", expires_in="NaN"), BrokerError, "how long its token is valid"),
        (json_answer(access_token="SECRET", expires_in=0), BrokerError, "has expired already"),
        (json_answer(access_token="SECRET", expires_in=-5), BrokerError, "has expired already"),
    ],
)
def test_unusable_endpoint_answer_is_reported_in_one_line_without_the_secret(
    server: TokenServer, answer: Answer, kind: type[BrokerError], said: str
) -> None:
    server.answer = lambda: answer
    error = raised(BrokerError, provider_of(server).token)
    assert (type(error), len(server.asked)) == (kind, 1)
    assert str(error).startswith(f"token endpoint {server.url}")
    says(str(error), said, never=["\n", "SECRET", CLIENT_SECRET])


def test_token_expires_with_the_earlier_of_answer_and_jwt(server: TokenServer) -> None:
    server.answer = lambda: json_answer(access_token=server.jwt(-10), expires_in=3600)
    assert "has expired already" in refusal(BrokerError, provider_of(server).token)
    server.answer = lambda: json_answer(access_token=server.jwt(60))
    token = provider_of(server).token()
    assert 50 < token.expires_s - token.obtained_s <= 61


def test_silent_endpoint_fails_callers_at_the_deadline(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_cli.brokers.security.tokens.DEADLINE_S", 0.2)
    server.hold.clear()
    provider = provider_of(server)
    assert "no answer within 0.05 s" in refusal(UnreachableError, provider.token, 0.05)
    assert "no answer within" in refusal(UnreachableError, provider.token)
    wait_until(lambda: provider._flight is None, "the end of the request that was given up")  # noqa: SLF001
    server.hold.set()
    provider._again_s = 0.0  # noqa: SLF001
    monkeypatch.setattr("retention_cli.brokers.security.tokens.DEADLINE_S", 8.0)
    # Released only now, the server issues one for the request that was given up, too: before or after ours.
    assert provider.token().value in server.issued


def test_token_request_ignores_the_proxy_environment(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert provider_of(server).token().value == server.issued[-1]


def test_librdkafka_callback_without_a_token_returns_one_that_brokers_refuse(server: TokenServer) -> None:
    server.answer = lambda: (503, {}, b"")
    value, expires, _, extensions = provider_of(server, extensions=(("a", "b"),)).for_librdkafka(None)
    assert (value, extensions) == ("none", {"a": "b"})
    assert time.time() < expires < time.time() + 10


def test_client_error_is_reported_without_secret_and_token(server: TokenServer) -> None:
    settings = of({**LIBRDKAFKA, "sasl.oauthbearer.token.endpoint.url": server.url})
    token = known(settings.tokens).token().value
    assert settings.without_secrets(f"{CLIENT_SECRET}\n{token} .") == f"{MASK} {MASK} ."
    error = KafkaError(KafkaError._AUTHENTICATION, f"{CLIENT_SECRET} {token}")  # noqa: SLF001
    text = str(_error(error, "group g can't be read", settings))
    assert text.startswith("group g can't be read: ")
    says(text, never=[token, CLIENT_SECRET])


def test_endpoint_certificate_is_checked_with_the_configured_ca(tmp_path: Path) -> None:
    certificate = tmp_path / "idp.pem"
    trusted = {"https.ca.location": str(certificate)}
    none = {"https.ca.pem": "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----"}
    with TokenServer(serving(certificate)) as server:

        def token(more: dict[str, str], host: str = "127.0.0.1") -> str:
            url = server.url.replace("127.0.0.1", host)
            settings = of({**LIBRDKAFKA, "sasl.oauthbearer.token.endpoint.url": url, **more})
            return TokenProvider(known(settings.oauth)).token().value

        for more in (trusted, {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificate)}):
            assert token(more) == server.issued[-1]
        unchecked = {"enable.ssl.certificate.verification": "false", "security.protocol": "SASL_SSL"}
        assert "not trusted: name its CA with https" in refusal(UnreachableError, token, unchecked)
        assert "for another host" in refusal(UnreachableError, token, trusted, "localhost")
        assert "can't be used" in refusal(SettingsError, token, none)


# -- a file, or a command ----------------------------------------------------------------

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"sasl.oauthbearer.token.file": "/var/run/token"}, OAuthSettings(file="/var/run/token")),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///var/a%20b"}, OAuthSettings(file="/var/a b")),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "file:///var/run/token",
                "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
                "sasl.jaas.config": f'{MODULE} required extension_logicalCluster="lkc-1";',
            },
            OAuthSettings(file="/var/run/token", extensions=(("logicalCluster", "lkc-1"),)),
        ),
        (
            {"sasl.oauthbearer.token.command": "az account get-access-token --resource 'api://a b'"},
            OAuthSettings(command=("az", "account", "get-access-token", "--resource", "api://a b")),
        ),
    ],
)
def test_token_file_and_command_are_read_from_a_client_file(keys: dict[str, str], wanted: OAuthSettings) -> None:
    assert of({**SASL, **keys}).oauth == wanted


@pytest.mark.parametrize("keys", [LIBRDKAFKA, {**SASL, "sasl.oauthbearer.token.command": f"t {CLIENT_SECRET}"}])
def test_settings_show_no_client_secret_and_no_argument_of_a_command(keys: dict[str, str]) -> None:
    assert CLIENT_SECRET not in repr(of(keys))


def test_token_file_is_read_again_before_its_token_expires(server: TokenServer, tmp_path: Path) -> None:
    file = written(tmp_path / "token", server.jwt(3) + "\n")
    provider = TokenProvider(OAuthSettings(file=str(file)))
    first = provider.token()
    assert first.value == file.read_text().strip()
    file.write_text(server.jwt(300))
    wait_until(lambda: provider.token() != first, "another token")
    assert time.monotonic() < first.expires_s
    assert provider.token().value == file.read_text()


@pytest.mark.parametrize(
    ("printed", "left_s"),
    [
        ("opaque-token", 300),
        ('{"access_token": "opaque-token", "expires_in": 60}', 60),
        ('{"accessToken": "opaque-token", "expires_on": %d, "expiresOn": "some day"}', 120),
        ('{"token": "opaque-token"}', 300),
    ],
)
def test_command_prints_a_token_alone_or_in_json(printed: str, left_s: float) -> None:
    text = printed % (time.time() + 120) if "%" in printed else printed
    token = TokenProvider(OAuthSettings(command=("printf", "%s\n", text))).token()
    assert [token.value, token.expires_s - time.monotonic()] == ["opaque-token", pytest.approx(left_s, abs=3)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"file": "/nowhere/token"}, "token file /nowhere/token can't be read: No such file or directory"),
        ({"file": "/dev/zero"}, "token file /dev/zero can't be read: it is a pipe or a device"),
        ({"command": ("/nowhere/t", CLIENT_SECRET)}, "token command /nowhere/t can't be run: no such file"),
        ({"command": ("sh", "-c", f"echo {CLIENT_SECRET}; exit 3")}, "token command sh exited with 3: run it by hand"),
        ({"command": ("echo", "two words")}, "token command echo: it gives no token"),
        ({"command": ("echo", '{"access_token": 5}')}, "token command echo: it gives no token"),
        ({"command": ("cat", "/dev/zero")}, "token command cat prints more than 1 MiB"),
        ({"command": ("echo", '{"access_token": "t", "expires_in": 0}')}, "its token has expired: check the program"),
    ],
)
def test_token_source_without_a_usable_token_fails_in_one_line_without_its_output(
    source: dict[str, Any], said: str
) -> None:
    says(refusal(BrokerError, TokenProvider(OAuthSettings(**source)).token), said, never=[CLIENT_SECRET])


# -- AWS credentials for MSK: what a client's file means, where keys come from, and what is said when there are none --


AWS_SECRET = "aws-s3cret"
MSK_MODULE = "software.amazon.msk.auth.iam"
IAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{MSK_MODULE}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{MSK_MODULE}.IAMClientCallbackHandler",
}
BEARER = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "sasl.login.callback.handler.class": f"{MSK_MODULE}.IAMOAuthBearerLoginCallbackHandler",
    "sasl.client.callback.handler.class": f"{MSK_MODULE}.IAMOAuthBearerLoginCallbackHandler",
}
ROLE = "arn:aws:iam::123456789012:role/kretain"


def identity(settings: ConnectionSettings) -> AwsIdentity:
    return known(known(settings.oauth).aws)


# -- a client's file -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [IAM, BEARER, {"security.protocol": "SASL_SSL", "sasl.mechanisms": "AWS_MSK_IAM"}],
    ids=["iam", "oauth", "librdkafka"],
)
def test_msk_client_file_is_accepted_and_nothing_of_it_is_without_effect(keys: dict[str, str]) -> None:
    settings = of(keys)
    assert (identity(settings), settings.left_out) == (AwsIdentity(), ())
    assert settings.for_librdkafka()["sasl.mechanism"] == "OAUTHBEARER"  # librdkafka has no AWS_MSK_IAM
    assert settings.for_kafka_python()["sasl_mechanism"] == settings.mechanism


@pytest.mark.parametrize("keys", [IAM, BEARER], ids=["iam", "oauth"])
def test_options_of_the_java_login_module_name_the_identity(keys: dict[str, str]) -> None:
    options = (
        f'awsProfileName="prod" awsRoleArn="{ROLE}" awsRoleSessionName="s" awsRoleExternalId="e" '
        'awsStsRegion="eu-west-1" awsDebugCreds="true" awsMaxRetries="3";'
    )
    settings = of({**keys, "sasl.jaas.config": keys["sasl.jaas.config"].replace(";", f" {options}")})
    assert identity(settings) == AwsIdentity(None, "prod", ROLE, "s", "e", "eu-west-1")


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("b-1.my-cluster-1.abc123.c2.kafka.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1-public.demo.x.c2.kafka.eu-central-1.amazonaws.com:9198,b-2:1", "eu-central-1"),
        ("b-2:1,B-1.DEMO.X.C2.KAFKA.EU-CENTRAL-1.AMAZONAWS.COM.:9098", "eu-central-1"),
        ("boot-abc.c2.kafka-serverless.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
        ("b-1.demo.x.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("vpce-1.vpce-svc-2.ap-southeast-2.vpce.amazonaws.com:9098", "ap-southeast-2"),
        ("kafka-prod-1.example.com:9098", None),
        ("msk-eu-west-1.example.com:9098", None),
        ("b-1.us-east-1.amazonaws.com.example:9098", None),
        ("10.0.0.1:9098", None),
    ],
)
def test_region_is_that_of_the_brokers_names(address: str, region: str | None) -> None:
    assert identity(of({**IAM, "bootstrap.servers": address})).region == region


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        *(
            ({**LIBRDKAFKA, **change}, said)
            for change, said in [
                ({"sasl.oauthbearer.token.endpoint.url": ""}, "needs sasl.oauthbearer.token.endpoint.url"),
                ({"sasl.oauthbearer.client.secret": ""}, "needs sasl.oauthbearer.client.id and"),
                ({"sasl.oauthbearer.token.endpoint.url": "http://idp.example/t"}, "http would send the client secret"),
                (
                    {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1.example/t"},
                    "http would send the client secret",
                ),
                ({"sasl.oauthbearer.token.endpoint.url": f"https://a:{CLIENT_SECRET}@h/t"}, "without a user"),
                ({"sasl.oauthbearer.token.endpoint.url": "file:///tmp/token"}, "tokens come from one place"),
                ({"sasl.oauthbearer.token.file": "/tmp/token"}, "tokens come from one place"),
                ({"sasl.oauthbearer.token.command": "print-token"}, "tokens come from one place"),
                ({"sasl.oauthbearer.token.endpoint.url": "https://h:x/t"}, "not an address"),
                ({"sasl.oauthbearer.token.endpoint.url": "https://h/t#f"}, "not an address"),
                ({"sasl.oauthbearer.token.endpoint.url": "https://h/a b"}, "percent-encoded"),
                ({"sasl.oauthbearer.method": "default"}, "only oidc can be used"),
                (
                    {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
                    "only client_credentials",
                ),
                (
                    {"sasl.oauthbearer.jwt.retriever.class": "org.x.JwtBearerJwtRetriever"},
                    "only ClientCredentialsJwtRetriever",
                ),
                ({"sasl.oauthbearer.extensions": "auth=x"}, "write NAME=VALUE"),
                ({"sasl.oauthbearer.extensions": "a=x\x01auth=y"}, "write NAME=VALUE"),
                ({"sasl.oauthbearer.assertion.file": "/x"}, "sasl.oauthbearer.assertion.file: not supported"),
                ({"sasl.login.callback.handler.class": f"org.x.{CLIENT_SECRET}"}, "kretain runs no Java"),
                (
                    {"sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="a";'},
                    "an option besides clientId",
                ),
                (
                    {"sasl.jaas.config": f'{MODULE} required ssl.truststore.location="{CLIENT_SECRET}";'},
                    "https.ca.location",
                ),
                (
                    {"sasl.jaas.config": f'x.PlainLoginModule required password="{CLIENT_SECRET}";'},
                    "OAuthBearerLoginModule",
                ),
                ({"https.ca.location": "/nowhere.pem"}, "https.ca.location: /nowhere.pem cannot be read"),
            ]
        ),
        *(
            ({**SASL, **keys}, said)
            for keys, said in [
                (
                    {},
                    "needs sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.token.file or sasl.oauthbearer.token.command",
                ),
                ({"sasl.oauthbearer.token.file": "/t", "sasl.oauthbearer.token.command": "t"}, "come from one place"),
                (
                    {"sasl.oauthbearer.token.file": "/t", "sasl.oauthbearer.client.secret": CLIENT_SECRET},
                    "come from one place",
                ),
                ({"sasl.oauthbearer.token.command": f"t '{CLIENT_SECRET}"}, "it is not a command line"),
                ({"sasl.oauthbearer.token.endpoint.url": "file://elsewhere/t"}, "write a file as file:///PATH"),
                ({"sasl.oauthbearer.token.endpoint.url": "file://[elsewhere/t"}, "write a file as file:///PATH"),
            ]
        ),
        ({**IAM, "security.protocol": "SASL_PLAINTEXT"}, "AWS credentials are used with SASL_SSL only"),
        ({**BEARER, "security.protocol": "SASL_PLAINTEXT"}, "AWS credentials are used with SASL_SSL only"),
        (
            {**IAM, "sasl.jaas.config": f"IAMLoginModule required awsRoleSecretAccessKey={AWS_SECRET};"},
            "an AWS profile",
        ),
        (
            {**IAM, "sasl.jaas.config": f"PlainLoginModule required password={AWS_SECRET};"},
            "which wants IAMLoginModule",
        ),
        ({**IAM, "sasl.jaas.config": AWS_SECRET}, "names no login module; remove it"),
        ({**IAM, "sasl.client.callback.handler.class": "com.example.Own"}, "kretain runs no Java"),
        ({**BEARER, "sasl.mechanism": "AWS_MSK_IAM"}, "kretain runs no Java"),
    ],
)
def test_unusable_client_file_is_refused_in_one_line_without_a_secret(keys: dict[str, str], said: str) -> None:
    says(refused(keys), said, never=[CLIENT_SECRET, AWS_SECRET])


# -- signatures ------------------------------------------------------------------------------


def test_signature_is_the_java_librarys() -> None:
    """As aws-msk-iam-auth 2.3.5 signed it; test_oauth.py compares all bytes with the library itself."""
    signer = Signer("AKIDEXAMPLE", "se/cr+et", "tok/en+with=chars&x", "eu-central-1")
    host = "b-1.c.x.c2.kafka.eu-central-1.amazonaws.com"
    now = dt.datetime(2026, 11, 27, 10, 11, 12, tzinfo=dt.UTC)
    payload = json.loads(signer.payload(host, now))
    names = ("x-amz-signature", "host", "x-amz-expires", "user-agent")
    signature = "28d0ffc44f86f6becbd1cb27b7b73c6089b5005510ded244cace37b176061fcb"
    assert [payload[name] for name in names] == [signature, host, "900", "kretain"]
    token = signer.bearer(now)
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com?Action=kafka-cluster%3AConnect&")
    says(repr(signer), never=["se/cr+et", "tok/en"])
    says(url, never=["se/cr+et"])


# -- where credentials come from ------------------------------------------------------------


class Sts(LocalServer):
    """AWS's token service on this machine: it gives out keys, or refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.refuses = False

    def reply(self, _path: str, _headers: object, content: bytes) -> Answer:
        self.asked.append(content.decode())
        if self.refuses:
            error = f"<Type>Sender</Type><Code>AccessDenied</Code><Message>{AWS_SECRET}</Message>"
            return 403, {}, f"<ErrorResponse><Error>{error}</Error></ErrorResponse>".encode()
        keys = (
            f"<AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>{AWS_SECRET}</SecretAccessKey>"
            "<SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
        )
        found = f"<AssumeRoleResult><Credentials>{keys}</Credentials></AssumeRoleResult>"
        return 200, {}, f"<AssumeRoleResponse>{found}</AssumeRoleResponse>".encode()


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    with Sts() as one:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", one.address)
        yield one


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine outside AWS, without variables; the file is its AWS configuration."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    files = {"SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "CONFIG_FILE": str(tmp_path / "config")}
    variables(monkeypatch, EC2_METADATA_DISABLED="true", **files)
    (tmp_path / "config").write_text(
        "[profile prod]\nregion = eu-west-3\n"
        f"aws_access_key_id = AKIDPROD\naws_secret_access_key = {AWS_SECRET}\n"
        f"[profile half]\naws_access_key_id = AKIDPROD\n"
        f"[profile failing]\ncredential_process = sh -c 'echo {AWS_SECRET} >&2; exit 1'\n"
        f"[profile babbling]\ncredential_process = echo {AWS_SECRET}\n"
        f"[profile mfa]\nrole_arn = {ROLE}\nsource_profile = prod\nmfa_serial = arn:aws:iam::1:mfa/a\n"
        "[profile sso]\nsso_start_url = https://x.awsapps.com/start\nsso_region = eu-west-1\n"
        "sso_account_id = 1\nsso_role_name = r\n"
    )
    return tmp_path / "config"


def variables(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)


def test_without_a_profile_the_default_chain_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, PROFILE="prod")
    assert sign_in(AwsIdentity())[0].access_key == "AKIDPROD"
    monkeypatch.delenv("AWS_PROFILE")
    variables(monkeypatch, ACCESS_KEY_ID="AKIDENV", SECRET_ACCESS_KEY=AWS_SECRET, REGION="eu-north-1")
    assert sign_in(AwsIdentity())[0] == Signer("AKIDENV", AWS_SECRET, None, "eu-north-1")


def test_role_is_assumed_with_its_session_name_and_external_id(sts: Sts, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, PROFILE="prod")
    wanted = AwsIdentity("eu-west-1", role=ROLE, session="trims", external_id="e-1")
    assert sign_in(wanted) == (Signer("AKIDROLE", AWS_SECRET, "t", "eu-west-1"), 900)
    (asked,) = sts.asked
    says(asked, "RoleSessionName=trims", "ExternalId=e-1", never=[AWS_SECRET])


def test_where_a_file_names_profile_and_role_the_profile_counts_as_in_java(sts: Sts) -> None:
    assert (sign_in(AwsIdentity(profile="prod", role=ROLE))[0].access_key, sts.asked) == ("AKIDPROD", [])


@pytest.mark.parametrize(
    ("whose", "kind", "said"),
    [
        (AwsIdentity(profile="nobody"), SettingsError, "AWS profile nobody is in neither ~/.aws/config nor"),
        (AwsIdentity(), SettingsError, "no AWS region in the brokers' names: set AWS_REGION"),
        (AwsIdentity("eu-west-1"), SettingsError, "AWS credentials: none found: set AWS_PROFILE"),
        (
            AwsIdentity("eu-west-1", "half"),
            SettingsError,
            "(profile half): they can't be read (PartialCredentialsError)",
        ),
        (AwsIdentity("eu-west-1", "failing"), SettingsError, "can't be read (CredentialRetrievalError): run aws sts"),
        (AwsIdentity("eu-west-1", "babbling"), SettingsError, "(profile babbling): they can't be read"),
        (AwsIdentity("eu-west-1", "mfa"), SettingsError, "(profile mfa): the profile asks for an MFA code"),
        (AwsIdentity("eu-west-1", "sso"), UnauthorizedError, "the session has ended: run aws sso login"),
    ],
)
def test_missing_credentials_are_named_in_one_line_without_a_secret(
    whose: AwsIdentity, kind: type[BrokerError], said: str
) -> None:
    failed = raised(BrokerError, sign_in, whose)
    assert (type(failed), failed.__cause__) == (kind, None)
    says(str(failed), said, never=["\n", AWS_SECRET])


def test_broken_aws_configuration_is_named_without_its_text(machine: Path) -> None:
    machine.write_text(f"[profile prod\n{AWS_SECRET}")
    said = refusal(SettingsError, sign_in, AwsIdentity("eu-west-1", "prod"))
    says(said, "can't be read (ConfigParseError)", never=[AWS_SECRET])


def test_refused_role_and_silent_sts_are_named(sts: Sts, monkeypatch: pytest.MonkeyPatch) -> None:
    variables(monkeypatch, PROFILE="prod", MAX_ATTEMPTS="1")
    sts.refuses = True
    whose = AwsIdentity("eu-west-1", role=ROLE)
    assert refusal(UnauthorizedError, sign_in, whose).endswith("role/kretain): AWS refused them (AccessDenied)")
    variables(monkeypatch, ENDPOINT_URL_STS="http://127.0.0.1:9")
    assert "AWS did not answer" in refusal(UnreachableError, sign_in, whose)


def profile(folder: Path, key: str, life_s: float) -> None:
    """Have a profile, ``temp``, whose keys are of a process and expire so soon."""
    until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=life_s)
    keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": AWS_SECRET, "SessionToken": "t"}
    (folder / "keys.json").write_text(json.dumps({**keys, "Expiration": until.isoformat()}))
    (folder / "config").write_text(f"[profile temp]\ncredential_process = cat {folder}/keys.json\n")


@pytest.mark.parametrize(("life_s", "signs_s"), [(3600, 900), (800, 60)])
def test_credentials_that_expire_soon_sign_for_a_short_while_only(tmp_path: Path, life_s: float, signs_s: int) -> None:
    profile(tmp_path, "AKIDTEMP", life_s)
    assert sign_in(AwsIdentity("eu-west-1", "temp"))[1] == signs_s


def test_credentials_are_read_again_before_their_signature_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile(tmp_path, "AKIDTEMP", 3600)
    provider = TokenProvider(OAuthSettings(aws=AwsIdentity("eu-west-1", "temp")))
    first = provider.token()
    assert first.expires_s - first.obtained_s == pytest.approx(900)
    assert provider.token() is first
    profile(tmp_path, "AKIDLATER", 3600)
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 730)  # past four fifths
    later = provider.token()
    assert known(later.signer).access_key == "AKIDLATER"
    for one in (first, later):
        says(repr(one), never=[AWS_SECRET, one.value])
