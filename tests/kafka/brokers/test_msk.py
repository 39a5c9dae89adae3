"""MSK's IAM against a broker that verifies each signature, and against what AWS's Java library signs."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.aws import Signer
from retention_cli.brokers.security.client_files import read_properties, translate
from tests.conftest import QUICK
from tests.support.client_files import properties
from tests.support.clusters import EmbeddedKafka
from tests.support.msk.brokers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    SESSION_MS,
    SESSION_TOKEN,
    MskKafka,
    sent_by_java,
    signer_classes,
)
from tests.support.secured import ask, said_of_a_trim, show_none
from tests.support.world import HOUR, World

OLD = [30 * HOUR] * 10
MODULE = "software.amazon.msk.auth.iam"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


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
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def topic(msk: EmbeddedKafka, tmp_path: Path) -> str:
    """A topic of which a group has read all but one record."""
    return World(msk.bootstrap, tmp_path / "unused").filled(OLD, {"all-but-one": 9})


def client_file(tmp_path: Path, msk: MskKafka, style: str, profile: str = "trimmer") -> Path:
    given = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(msk.ca), "sasl_mechanism": "AWS_MSK_IAM"}
    if style == "iam":
        given["sasl_jaas_config"] = f'{MODULE}.IAMLoginModule required awsProfileName="{profile}";'
        given["sasl_client_callback_handler_class"] = f"{MODULE}.IAMClientCallbackHandler"
    elif style == "oauth":
        given["sasl_mechanism"] = "OAUTHBEARER"
        given["sasl_jaas_config"] = f'{BEARER} required awsProfileName="{profile}";'
        for side in ("login", "client"):
            given[f"sasl_{side}_callback_handler_class"] = f"{MODULE}.IAMOAuthBearerLoginCallbackHandler"
    return properties(tmp_path, **given)


@pytest.mark.parametrize("style", ["iam", "oauth", "plain"])
def test_aws_credentials_doctor_plan_trim_and_profile_work_without_showing_a_secret(
    msk: MskKafka, topic: str, tmp_path: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = client_file(tmp_path, msk, style)
    if style == "plain":
        monkeypatch.setenv("AWS_PROFILE", "trimmer")
    said = said_of_a_trim(tmp_path, msk.secure_bootstrap, config, topic)
    assert f"SASL_SSL, {'OAUTHBEARER' if style == 'oauth' else 'AWS_MSK_IAM'} (AWS credentials" in said[0]
    show_none(said, SECRET_KEY, SESSION_TOKEN, "X-Amz-Signature", "x-amz-signature", "aHR0cHM6Ly9rYWZrYS5")


@pytest.mark.parametrize("style", ["iam", "oauth"])
def test_wrong_aws_key_trims_nothing_and_is_reported_in_one_line(
    msk: MskKafka, topic: str, tmp_path: Path, style: str
) -> None:
    done = ask(msk, client_file(tmp_path, msk, style, "stranger"), "trim", topic, "--consumed-after", "1h", "--yes")
    assert (done.code, done.out) == (1, ""), done.err
    assert done.err.count("\n") == 1, done.err
    # The broker may hang up before its last word.
    assert "it did not accept the AWS credentials" in done.err or "may the AWS credentials connect?" in done.err
    assert "another-s3cret" not in done.err
    assert World(msk.bootstrap, tmp_path / "unused").ends(topic)[0] == 0


@pytest.mark.parametrize("style", ["iam", "oauth"])
def test_session_is_reauthenticated_with_a_new_signature(msk: MskKafka, topic: str, tmp_path: Path, style: str) -> None:
    keys = read_properties(client_file(tmp_path, msk, style))
    keys["bootstrap.servers"] = type(keys["sasl.mechanism"])(msk.secure_bootstrap, "test")
    with ClusterReader(translate(keys), 10.0) as reader:
        end = time.monotonic() + 2.2 * SESSION_MS / 1000
        while time.monotonic() < end:
            assert [one.name for one in reader.metadata((topic,)).topics.values()] == [topic]
            time.sleep(0.2)  # a lull: requests go out before and after each session's end
        assert reader.wire._heard.last in (None, "connection refused"), "a connection was lost"  # noqa: SLF001


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
