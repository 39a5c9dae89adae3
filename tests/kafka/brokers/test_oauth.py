"""OAUTHBEARER against a broker that checks every token with the endpoint's own keys, and ends sessions after seconds.

And MSK's IAM, against one that verifies each signature, and against what AWS's Java library signs.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retention_cli.brokers.errors import BrokerError, UnauthorizedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.aws import Signer
from retention_cli.brokers.security.client_files import read_properties, translate
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.writer import ClusterWriter
from tests.conftest import QUICK
from tests.support.client_files import properties
from tests.support.clusters import EmbeddedKafka
from tests.support.http_server import AUDIENCE, CLIENT, CLIENT_SECRET, TokenServer
from tests.support.msk.brokers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    MskKafka,
    sent_by_java,
    signer_classes,
)
from tests.support.says import refuses
from tests.support.secured import ask, said_of_a_trim, show_none
from tests.support.world import OLD, World, wait_until, written

SESSION_MS = 3000
OAUTH = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def idp() -> Iterator[TokenServer]:
    with TokenServer() as one:
        yield one


@pytest.fixture(scope="module")
def oauth(idp: TokenServer, archived_classes: None) -> Iterator[EmbeddedKafka]:
    jwks = idp.url.replace("/token", "/jwks")
    listener = "listener.name.secure.oauthbearer"
    settings = QUICK | {
        "listener.name.secure.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        f"{listener}.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": jwks,
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.sasl.oauthbearer.allow.unverified.issuer": "true",
        f"{listener}.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{CLIENT}",
    }
    with pytest.MonkeyPatch.context() as patched:  # since Kafka 4.0 a broker asks only addresses that it is allowed to
        patched.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}")
        with EmbeddedKafka(1, settings=settings, secure_protocol="SASL_PLAINTEXT") as cluster:
            yield cluster


@pytest.fixture
def topic(oauth: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    return World(oauth.bootstrap, tmp_path / "unused").filled(OLD, {"all-but-one": 9})


def librdkafka_file(tmp_path: Path, idp: TokenServer, **more: object) -> Path:
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_token_endpoint_url": idp.url,
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret": CLIENT_SECRET,
        "sasl_oauthbearer_scope": "kafka",
    }
    return properties(tmp_path, **{**given, **more})


def foreign(idp: TokenServer) -> tuple[int, dict[str, str], bytes]:
    """Return an endpoint's answer with a token for another audience than the broker."""
    return 200, {}, json.dumps({"access_token": idp.jwt(aud="elsewhere"), "expires_in": 300}).encode()


@pytest.mark.parametrize("style", ["java", "command"])
def test_oauth_plan_trim_and_doctor_work_without_showing_a_secret(
    oauth: EmbeddedKafka, idp: TokenServer, topic: str, tmp_path: Path, style: str
) -> None:
    """Tokens of the endpoint, or of a command that prints one. librdkafka's own keys are in the other tests."""
    if style == "command":
        token = written(tmp_path / "token", f"{idp.jwt()}\n")
        more = {"sasl_oauthbearer_token_command": f"cat '{token}'"}
        tokens, shown = [token.read_text().strip()], "sasl.oauthbearer.token.command = "
    else:
        login = f'clientId="{CLIENT}" clientSecret="{CLIENT_SECRET}" scope="kafka"'
        more = {
            "sasl_oauthbearer_token_endpoint_url": idp.url,
            "sasl_login_callback_handler_class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl_jaas_config": f"{OAUTH}.OAuthBearerLoginModule required {login};",
        }
        tokens, shown = idp.issued, f"sasl.oauthbearer.token.endpoint.url = {idp.url}"
    config = properties(tmp_path, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", **more)
    said = said_of_a_trim(tmp_path, oauth.secure_bootstrap, config, topic)
    assert ["SASL_PLAINTEXT, OAUTHBEARER" in said[0], shown in said[1], bool(tokens)] == [True] * 3, said[:2]
    show_none(said, CLIENT_SECRET, *tokens, *(token.rpartition(".")[2] for token in tokens))


@pytest.mark.parametrize(
    ("answer", "secret", "text"),
    [
        (None, "wr0ng-s3cret", "refused the client (HTTP 401, invalid_client)"),
        ("slow", CLIENT_SECRET, "no answer within 3 s"),
        ("foreign", CLIENT_SECRET, "refused the connection"),
    ],
    ids=["wrong secret", "slow", "not for this broker"],
)
def test_missing_or_rejected_token_trims_nothing_and_is_reported_in_one_line(
    oauth: EmbeddedKafka,
    idp: TokenServer,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    secret: str,
    text: str,
) -> None:
    config = librdkafka_file(tmp_path, idp, sasl_oauthbearer_client_secret=secret)
    given = foreign(idp)
    if answer == "slow":
        idp.hold.clear()
    elif answer is not None:
        monkeypatch.setattr(idp, "answer", lambda: given)
    rule = ("--consumed-after", "1h", "--yes")
    try:
        done = ask(oauth, config, "trim", topic, *rule, timeout="3s" if answer == "slow" else "10s")
    finally:
        idp.hold.set()
    refuses(done, text, never=(secret, json.loads(given[2])["access_token"]))
    assert World(oauth.bootstrap, tmp_path / "unused").ends(topic)[0] == 0


def connection(tmp_path: Path, idp: TokenServer, oauth: EmbeddedKafka, **more: object) -> ConnectionSettings:
    more["bootstrap_servers"] = oauth.secure_bootstrap
    return translate(read_properties(librdkafka_file(tmp_path, idp, **more)))


def test_token_rejected_by_the_broker_fails_at_once(
    oauth: EmbeddedKafka, idp: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The broker may hang up before its last word: three times in ten a client that waits for it needs longer than this.
    given = foreign(idp)
    monkeypatch.setattr(idp, "answer", lambda: given)
    # A process keeps a token by its settings.
    settings = connection(tmp_path, idp, oauth, sasl_oauthbearer_scope="elsewhere")
    for _ in range(10):
        with pytest.raises(UnauthorizedError, match="it did not accept the token"), ClusterReader(settings, 2.0):
            pass


def stays_connected(settings: ConnectionSettings, topic: str, is_over: Callable[[], bool]) -> None:
    """Read metadata until it is over, on connections that stay open."""
    with ClusterReader(settings, 10.0) as reader:
        while not is_over():
            assert [one.name for one in reader.metadata((topic,)).topics.values()] == [topic]
            time.sleep(0.2)  # a lull: requests go out before and after each session's end
        # Clients of other tests that look for brokers that are gone are heard in this process, too.
        assert reader.wire._heard.last in (None, "connection refused"), "a connection was lost"  # noqa: SLF001


def test_expiring_token_is_renewed_and_the_session_reauthenticated(
    oauth: EmbeddedKafka, idp: TokenServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lifetimes of a token, each two of the broker's sessions, on connections that stay open."""
    monkeypatch.setattr(idp, "lifetime_s", 6)
    before = len(idp.issued)
    stays_connected(connection(tmp_path, idp, oauth), topic, lambda: len(idp.issued) >= before + 3)


def test_endpoint_outage_during_a_run_is_named_and_the_run_recovers(
    oauth: EmbeddedKafka, idp: TokenServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idp, "lifetime_s", 3)
    said: list[str] = []

    def answered() -> bool:
        try:
            reader.metadata((topic,))
        except BrokerError as error:
            said.append(str(error))
            return False
        return True

    with ClusterReader(connection(tmp_path, idp, oauth), 2.0) as reader:
        assert answered()
        with monkeypatch.context() as outage:
            outage.setattr(idp, "answer", lambda: (503, {}, b""))
            wait_until(lambda: not answered(), "the end of the session")
        assert f"token endpoint {idp.url}: it is failing (HTTP 503)" in said[-1]
        wait_until(answered, "the next token")


def test_unpolled_librdkafka_clients_get_tokens(
    oauth: EmbeddedKafka, idp: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is made by an AdminClient, which is never polled; messages are appended after a token's end."""
    monkeypatch.setattr(idp, "lifetime_s", 5)
    name, before = f"made-with-a-token-{os.getpid()}", len(idp.issued)
    with ClusterWriter(connection(tmp_path, idp, oauth), [name], 10.0) as writer:
        assert writer.create(name, 1, {})
        assert writer.append(name, b"k", b"v").offset == 0
        while len(idp.issued) < before + 2:
            time.sleep(0.1)  # the producer's own thread asks for the next one
        assert writer.append(name, b"k", b"v").offset == 1


@pytest.mark.long
def test_spark_executors_get_tokens_of_their_own(
    oauth: EmbeddedKafka, idp: TokenServer, topic: str, tmp_path: Path
) -> None:
    plan = ("plan", topic, "--consumed-after", "1h", "-o", "json", "-vv")
    said = [
        ask(oauth, librdkafka_file(tmp_path, idp), *plan, *spark, check=0)
        for spark in ((), ("--spark", "--master", "local[2]"))
    ]
    assert [one.json()["totals"]["trim"] for one in said] == [1, 1]
    show_none([said[1].out, said[1].err], CLIENT_SECRET, *idp.issued)


MODULE = "software.amazon.msk.auth.iam"


@pytest.fixture(scope="module")
def msk(archived_classes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MskKafka]:
    with MskKafka(tmp_path_factory.mktemp("msk"), QUICK) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two AWS profiles; brokers on 127.0.0.1 don't name the region."""
    keys = f"aws_access_key_id={ACCESS_KEY}\naws_session_token={SESSION_TOKEN}\naws_secret_access_key="
    (tmp_path / "credentials").write_text(f"[trimmer]\n{keys}{SECRET_KEY}\n[stranger]\n{keys}another-s3cret\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    files = {"SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "CONFIG_FILE": str(tmp_path / "config")}
    for name, value in {**files, "REGION": REGION, "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def readable(msk: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    return World(msk.bootstrap, tmp_path / "unused").filled(OLD, {"all-but-one": 9})


def client_file(tmp_path: Path, msk: MskKafka, style: str, profile: str = "trimmer") -> Path:
    given = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(msk.ca), "sasl_mechanism": "AWS_MSK_IAM"}
    if style == "iam":
        given["sasl_jaas_config"] = f'{MODULE}.IAMLoginModule required awsProfileName="{profile}";'
        given["sasl_client_callback_handler_class"] = f"{MODULE}.IAMClientCallbackHandler"
    elif style == "oauth":
        given["sasl_mechanism"] = "OAUTHBEARER"
        given["sasl_jaas_config"] = f'{OAUTH}.OAuthBearerLoginModule required awsProfileName="{profile}";'
        for side in ("login", "client"):
            given[f"sasl_{side}_callback_handler_class"] = f"{MODULE}.IAMOAuthBearerLoginCallbackHandler"
    return properties(tmp_path, **given)


@pytest.mark.parametrize("style", ["iam", "oauth"])
def test_aws_credentials_doctor_plan_trim_and_profile_work_without_showing_a_secret(
    msk: MskKafka, readable: str, tmp_path: Path, style: str
) -> None:
    said = said_of_a_trim(tmp_path, msk.secure_bootstrap, client_file(tmp_path, msk, style), readable)
    assert f"SASL_SSL, {'OAUTHBEARER' if style == 'oauth' else 'AWS_MSK_IAM'} (AWS credentials" in said[0]
    show_none(said, SECRET_KEY, SESSION_TOKEN, "X-Amz-Signature", "x-amz-signature", "aHR0cHM6Ly9rYWZrYS5")


@pytest.mark.parametrize("style", ["iam", "oauth"])
def test_wrong_aws_key_trims_nothing_and_is_reported_in_one_line(
    msk: MskKafka, readable: str, tmp_path: Path, style: str
) -> None:
    done = ask(msk, client_file(tmp_path, msk, style, "stranger"), "trim", readable, "--consumed-after", "1h", "--yes")
    refuses(done, never=["another-s3cret"])
    # The broker may hang up before its last word.
    assert (
        "it did not accept the AWS credentials" in done.err or "are the AWS credentials allowed to connect?" in done.err
    )
    assert World(msk.bootstrap, tmp_path / "unused").ends(readable)[0] == 0


@pytest.mark.parametrize("style", ["iam", "oauth"])
def test_session_is_reauthenticated_with_a_new_signature(
    msk: MskKafka, readable: str, tmp_path: Path, style: str
) -> None:
    keys = read_properties(client_file(tmp_path, msk, style))
    keys["bootstrap.servers"] = type(keys["sasl.mechanism"])(msk.secure_bootstrap, "test")
    end = time.monotonic() + 2.2 * SESSION_MS / 1000
    stays_connected(translate(keys), readable, lambda: time.monotonic() > end)


@pytest.fixture(scope="module")
def java_signer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return signer_classes(tmp_path_factory.mktemp("signer"))


@pytest.mark.parametrize(
    ("host", "keys", "now"),
    [
        (
            "b-1.demo-1.abc123.c2.kafka.eu-central-1.amazonaws.com",
            ("AKIDEXAMPLE", "se/cr+et", ""),
            dt.datetime(2026, 11, 27, 10, 11, 12, tzinfo=dt.UTC),
        ),
        (
            "boot-x.c2.kafka-serverless.us-gov-west-1.amazonaws.com",
            ("AKID", "s3cret", "tok/en+with=chars&x ~*"),
            dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=dt.UTC),
        ),
    ],
    ids=["keys", "session token"],
)
def test_payload_and_token_are_byte_for_byte_those_of_the_java_library(
    java_signer: str, host: str, keys: tuple[str, str, str], now: dt.datetime
) -> None:
    region = host.split(".")[-3]
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    agent, payload, _ = sent_by_java(java_signer, host, keys, at)
    ours = Signer(keys[0], keys[1], keys[2] or None, region, agent)
    assert ours.payload(host, now) == payload.encode()
    assert ours.bearer(now) == sent_by_java(java_signer, f"kafka.{region}.amazonaws.com", keys, at)[2]
