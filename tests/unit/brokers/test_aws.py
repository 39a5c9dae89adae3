"""AWS credentials for MSK: what a client's file means, where keys come from, and what is said when there are none."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_cli.brokers.errors import BrokerError, SettingsError, UnauthorizedError, UnreachableError
from retention_cli.brokers.security.aws import AwsIdentity, Signer, sign_in
from retention_cli.brokers.security.sasl_settings import OAuthSettings
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.brokers.security.tokens import TokenProvider
from tests.support.client_files import of, refused
from tests.support.facts import known
from tests.support.http_server import Answer, LocalServer
from tests.support.says import refusal, says

AWS_SECRET = "aws-s3cret"
MODULE = "software.amazon.msk.auth.iam"
IAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{MODULE}.IAMLoginModule required;",
    "sasl.client.callback.handler.class": f"{MODULE}.IAMClientCallbackHandler",
}
BEARER = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "sasl.login.callback.handler.class": f"{MODULE}.IAMOAuthBearerLoginCallbackHandler",
    "sasl.client.callback.handler.class": f"{MODULE}.IAMOAuthBearerLoginCallbackHandler",
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
def test_unusable_msk_client_file_is_refused_in_one_line(keys: dict[str, str], said: str) -> None:
    says(refused(keys), said, never=[AWS_SECRET])


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
    with pytest.raises(BrokerError) as failed:
        sign_in(whose)
    assert (type(failed.value), failed.value.__cause__) == (kind, None)
    says(str(failed.value), said, never=["\n", AWS_SECRET])


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
