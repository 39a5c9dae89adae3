"""Amazon MSK's IAM: whose AWS credentials a client's file means, and what proves them to a broker.

Brokers verify a request to ``kafka-cluster:Connect`` that is signed (Signature Version 4) and never sent. AWS_MSK_IAM
carries it as JSON, signed for the broker's own name; OAUTHBEARER as a URL in base64, signed for the region.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from retention_cli.brokers.errors import BrokerError, SettingsError, UnauthorizedError, UnreachableError
from retention_cli.core import extras

MECHANISM: Final = "AWS_MSK_IAM"
HANDLERS: Final = ((MECHANISM, "IAMClientCallbackHandler"), ("OAUTHBEARER", "IAMOAuthBearerLoginCallbackHandler"))
"""The Java client's classes for AWS credentials, each with its mechanism."""

_OPTIONS: Final = ("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion")
_WITHOUT_EFFECT: Final = frozenset({"awsAddDefaultProviders", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})
_REGION: Final = re.compile(
    r"\.([a-z]{2,4}(?:-[a-z]+)+-\d{1,2})(?:\.vpce)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)\.?:", re.IGNORECASE
)
_CODE: Final = re.compile(r"[A-Za-z.]{1,64}")
_LIFE_S: Final = 900
"""How long a signed request is valid. Brokers end the session with it."""
_PAYLOAD: Final = (
    *("x-amz-date", "x-amz-signedheaders", "x-amz-signature", "host", "action", "x-amz-expires"),
    *("x-amz-security-token", "version", "x-amz-algorithm", "x-amz-credential", "user-agent"),
)
_QUERY: Final = (
    *("Action", "X-Amz-Security-Token", "X-Amz-Algorithm", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"),
    *("X-Amz-Credential", "X-Amz-Signature"),
)
"""The fields, in the order in which the Java library writes them."""


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """Whose credentials to use: a profile's, a role's that is assumed, or (with neither) AWS's default chain's.

    ``region`` is the one in the brokers' names, if they have one.
    """

    region: str | None = None
    profile: str | None = None
    role: str | None = None
    session: str = "kretain"
    external_id: str | None = field(default=None, repr=False)
    sts_region: str | None = None

    @property
    def shown(self) -> str:
        """What to call it in messages."""
        if self.profile is not None:
            return f"AWS credentials (profile {self.profile})"
        return "AWS credentials" if self.role is None else f"AWS credentials (role {self.role})"


@dataclass(frozen=True, slots=True)
class Signer:
    """AWS credentials and a region, which sign for a broker."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    region: str
    user_agent: str = "kretain"

    def payload(self, host: str, now: dt.datetime) -> bytes:
        """Return AWS_MSK_IAM's message to a broker, by its name without the port; ``now`` is UTC."""
        fields = self._signed(host, now)
        return json.dumps({key: fields[key] for key in _PAYLOAD if key in fields}, separators=(",", ":")).encode()

    def bearer(self, now: dt.datetime) -> str:
        """Return the token for MSK's OAUTHBEARER."""
        host = f"kafka.{self.region}.amazonaws.com"
        fields = self._signed(host, now)
        query = [f"{key}={quote(fields[key.lower()], safe='')}" for key in _QUERY if key.lower() in fields]
        url = f"https://{host}?{'&'.join(query)}&User-Agent={quote(self.user_agent, safe='')}"
        return base64.urlsafe_b64encode(url.encode()).rstrip(b"=").decode()

    def _signed(self, host: str, now: dt.datetime) -> dict[str, str]:
        from kafka.net.sasl.msk import AwsMskIamClient

        client = AwsMskIamClient(host, self.access_key, self.secret_key, self.region, self.session_token)
        client.datestamp, client.timestamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
        return {**json.loads(client.first_message()), "user-agent": self.user_agent}


def read_aws(bootstrap: str, options: Mapping[str, str]) -> AwsIdentity:
    """Return the identity that the options of a Java client's login module name.

    Raises:
        SettingsError: an option is not supported.
        MissingPartError: botocore is not installed.
    """
    extras.part("aws", "botocore.session")
    if not set(options) <= {*_OPTIONS, *_WITHOUT_EFFECT}:  # not named: in a damaged line it may be a secret
        raise SettingsError(
            f"sasl.jaas.config: of AWS's options, {', '.join(_OPTIONS)} can be used: write keys into an AWS profile"
        )
    found = _REGION.search(bootstrap)
    return AwsIdentity(
        region=None if found is None else found[1].lower(),
        profile=options.get("awsProfileName"),
        role=options.get("awsRoleArn"),
        session=options.get("awsRoleSessionName") or "kretain",
        external_id=options.get("awsRoleExternalId"),
        sts_region=options.get("awsStsRegion"),
    )


def sign_in(identity: AwsIdentity) -> tuple[Signer, float]:
    """Return a signer, and how long (s) its signatures are valid. Credentials may come over the network.

    Raises:
        SettingsError: there are no credentials, or no region.
        UnauthorizedError: AWS refused the credentials.
        UnreachableError: AWS did not answer.
        BrokerError: the source of the credentials fails.
    """
    try:
        return _signed_in(identity)
    except BrokerError:
        raise
    except extras.MissingPartError as error:
        raise SettingsError(str(error)) from None
    except Exception as error:  # noqa: BLE001  (sources raise all kinds, and their texts may quote secrets)
        raise _failure(error, identity.shown) from None


def _signed_in(identity: AwsIdentity) -> tuple[Signer, float]:
    session = extras.part("aws", "botocore.session").Session(profile=identity.profile)
    if not (region := identity.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")):
        raise SettingsError("no AWS region in the brokers' names: set AWS_REGION, or region in the AWS profile")
    if session.get_scoped_config().get("mfa_serial"):  # botocore would ask for the code, in the midst of a run
        raise SettingsError(f"{identity.shown}: the profile asks for an MFA code: use aws sso login, or another role")
    session.set_config_variable("region", region)  # for AWS's own services, on the way to credentials
    if (found := session.get_credentials()) is None:
        raise SettingsError(
            f"{identity.shown}: none found: set AWS_PROFILE, or run where a role is attached; aws sts "
            f"get-caller-identity shows what there is"
        )
    if identity.role is not None and identity.profile is None:  # with both, a Java client uses the profile
        sts = session.create_client("sts", region_name=identity.sts_region or region)
        more = {} if identity.external_id is None else {"ExternalId": identity.external_id}
        keys = sts.assume_role(RoleArn=identity.role, RoleSessionName=identity.session, **more)["Credentials"]
        return Signer(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], region), _LIFE_S
    keys = found.get_frozen_credentials()
    expires_within = getattr(found, "refresh_needed", lambda _seconds: False)
    signer = Signer(keys.access_key, keys.secret_key, keys.token, region)
    return signer, 60 if expires_within(_LIFE_S) else _LIFE_S  # credentials that expire before it serve a short while


def _failure(error: Exception, shown: str) -> BrokerError:
    """Return botocore's error in our words, never in its own: those may quote what a credential process printed."""
    from botocore import exceptions as aws

    if isinstance(error, aws.ProfileNotFound):
        return SettingsError(
            f"AWS profile {error.kwargs.get('profile')} is in neither ~/.aws/config nor ~/.aws/credentials"
        )
    if isinstance(error, aws.ClientError):
        code = str(error.response.get("Error", {}).get("Code"))
        return UnauthorizedError(f"{shown}: AWS refused them ({code if _CODE.fullmatch(code) else 'error'})")
    if isinstance(error, aws.SSOError | aws.TokenRetrievalError | aws.LoginError):
        return UnauthorizedError(f"{shown}: the session has ended: run aws sso login, or aws login")
    if isinstance(error, aws.HTTPClientError | aws.ConnectionError | aws.MetadataRetrievalError):
        return UnreachableError(f"{shown}: AWS did not answer")
    return SettingsError(
        f"{shown}: they can't be read ({type(error).__name__}): run aws sts get-caller-identity to see why"
    )
