"""What a client's file says about OAUTHBEARER: the token endpoint, and the client credentials to get tokens with.

Of SASL's ways to get a token, one is supported: the client credentials grant (RFC 6749, 4.4), as librdkafka's
``sasl.oauthbearer.method=oidc`` and the Java client's ``OAuthBearerLoginCallbackHandler`` use it (KIP-768, KIP-1139).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from retention_cli.brokers.errors import SettingsError

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
HANDLER: Final = "sasl.login.callback.handler.class"
_ID: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_SECRET: Final = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")

UNDERSTOOD: Final = frozenset(
    {
        ENDPOINT,
        *_ID,
        *_SECRET,
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "https.ca.location",
        "https.ca.pem",
    }
)
SUBSTITUTE: Final = (
    "not supported: brokers check tokens, and tokens come from an endpoint: take it out, and write "
    "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
)
"""For every other key that starts with ``sasl.oauthbearer.``."""

_CHOICES: Final = {
    "sasl.oauthbearer.method": ("oidc",),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.header.urlencode": ("true", "false"),
    "sasl.oauthbearer.jwt.retriever.class": ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever"),
}
_EXTENSION: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]+")
_PATH: Final = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where tokens come from, and as whom.

    ``ca_pem`` are certificates that the endpoint's may be signed by, besides the system's if ``system_trust``.
    ``extensions`` are SASL extensions (RFC 7628), names and values. ``urlencode``: id and secret are URL-encoded before
    they go into the header, as the RFC has it and few servers want.
    """

    endpoint: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    urlencode: bool = False
    ca_pem: str | None = field(default=None, repr=False)
    system_trust: bool = True

    @property
    def shown(self) -> str:
        """The endpoint for messages: without a query, which may contain a key."""
        return self.endpoint.partition("?")[0]


def read_oauth(
    text: Callable[..., str | None], jaas: Mapping[str, str], ca_pem: str | None, brokers_ca: str | None
) -> OAuthSettings:
    """Return the settings for getting tokens.

    Args:
        text: returns the value of the first of some keys that has one.
        jaas: the options of the Java client's login module; a key of its own counts more.
        ca_pem: the certificates of ``https.ca.location`` or ``https.ca.pem``; then only these are trusted.
        brokers_ca: those that the brokers' certificates are checked with; trusted besides the system's.

    Raises:
        SettingsError: a key is missing, or has a value that is not supported.
    """
    for key, choices in _CHOICES.items():
        value = text(key)
        if value is not None and value.rpartition(".")[2].lower() not in [one.lower() for one in choices]:
            raise SettingsError(f"{key}: only {' and '.join(choices)} can be used: write that, or take it out")
    handler = text(HANDLER)
    if handler is not None and handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        raise SettingsError(f"{HANDLER}: no Java runs here: write {ENDPOINT}, {_ID[0]} and {_SECRET[0]}")
    if [one for one in jaas if one not in ("clientId", "clientSecret", "scope") and not one.startswith("extension_")]:
        raise SettingsError(  # not named: in a damaged line it may be the secret
            "sasl.jaas.config: it has an option besides clientId, clientSecret, scope and extension_NAME: write "
            f"{_ID[0]} and {_SECRET[0]} instead, and https.ca.location for the endpoint's certificate"
        )
    client_id, secret = text(*_ID) or jaas.get("clientId"), text(*_SECRET) or jaas.get("clientSecret")
    endpoint = text(ENDPOINT)
    if endpoint is None:
        raise SettingsError(f"OAUTHBEARER needs {ENDPOINT}: write the address that issues tokens")
    if not client_id or not secret:
        raise SettingsError(f"OAUTHBEARER needs {_ID[0]} and {_SECRET[0]} (or both in a jaas line)")
    _check_endpoint(endpoint)
    return OAuthSettings(
        endpoint=endpoint,
        client_id=client_id,
        client_secret=secret,
        scope=text("sasl.oauthbearer.scope") or jaas.get("scope") or None,
        extensions=_extensions(text("sasl.oauthbearer.extensions"), jaas),
        urlencode=(text("sasl.oauthbearer.header.urlencode") or "false").lower() == "true",
        ca_pem=ca_pem or brokers_ca,
        system_trust=ca_pem is None,
    )


def _check_endpoint(endpoint: str) -> None:
    """Refuse an address that would send the secret in clear, or that has one in it. The address is not quoted."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsError(f"{ENDPOINT}: it is not an address: write https://HOST/PATH") from None
    if "@" in parts.netloc:
        raise SettingsError(f"{ENDPOINT}: write it without a user: that is {_ID[0]} and {_SECRET[0]}")
    if parts.scheme not in ("https", "http") or _HOST.fullmatch(host) is None or port == 0 or parts.fragment:
        raise SettingsError(f"{ENDPOINT}: it is not an address: write https://HOST/PATH")
    if _PATH.fullmatch(parts.path + parts.query) is None:
        raise SettingsError(f"{ENDPOINT}: it has a space or another character that must be percent-encoded: write %20")
    if parts.scheme == "http" and not _is_loopback(host):
        raise SettingsError(f"{ENDPOINT}: http would send the client secret unencrypted: write https://…")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _extensions(text: str | None, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name.removeprefix("extension_"): value for name, value in jaas.items() if name.startswith("extension_")}
    for one in filter(None, (part.strip() for part in (text or "").split(","))):
        name, _, value = one.partition("=")
        found[name.strip()] = value.strip()
    for name, value in found.items():
        if _EXTENSION.fullmatch(name) is None or name == "auth" or _EXTENSION_VALUE.fullmatch(value) is None:
            raise SettingsError("sasl.oauthbearer.extensions: write NAME=VALUE,…; names have letters only")
    return tuple(sorted(found.items()))
