"""What a client's file says about who we are: a Java client's ``sasl.jaas.config``, Kerberos, and OAUTHBEARER.

OAUTHBEARER needs to know where tokens come from. That is a token endpoint with the client credentials grant (RFC 6749,
4.4), as librdkafka's ``sasl.oauthbearer.method=oidc`` and the Java client's ``OAuthBearerLoginCallbackHandler`` use it
(KIP-768, KIP-1139); a file that something else keeps up to date, as Kubernetes mounts one; or a command that prints a
token. Tokens that AWS credentials sign are in :mod:`retention_cli.brokers.security.aws`.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from retention_cli.brokers.errors import SettingsError
from retention_cli.brokers.security.aws import AwsIdentity

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
_INSTEAD = {
    "OAUTHBEARER": "write sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret instead",
    "AWS_MSK_IAM": "remove it: AWS's default credentials are used",
    "GSSAPI": "write sasl.kerberos.keytab and sasl.kerberos.principal instead",
}


def jaas_options(text: str, mechanism: str, origin: str) -> dict[str, str]:
    """Return the options of ``…PlainLoginModule required username="…" password="…";``, for a SASL mechanism.

    Raises:
        SettingsError: it names no login module, or not that of the mechanism.
    """
    module, rest = (*text.split(None, 1), "", "")[:2]
    where = f"{origin}: sasl.jaas.config"
    instead = _INSTEAD.get(mechanism, "write sasl.username and sasl.password instead")
    if re.fullmatch(r"[\w.$]*LoginModule", module) is None:  # not quoted: it may be the password
        raise SettingsError(f"{where}: it names no login module; {instead}")
    if (name := module.rpartition(".")[2]) not in _MODULES.values():
        raise SettingsError(f"{where}: {name} is not supported; {instead}")
    if name != (wanted := _MODULES[mechanism]):
        raise SettingsError(f"{where}: {name} does not fit sasl.mechanism={mechanism}, which wants {wanted}")
    return {
        match[1]: next(
            match[n] if n == 4 else re.sub(r"\\(.)", r"\1", match[n]) for n in (2, 3, 4) if match[n] is not None
        )
        for match in re.finditer(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", rest)
    }


KEYTAB: Final = "sasl.kerberos.keytab"
PRINCIPAL: Final = "sasl.kerberos.principal"
SERVICE: Final = "sasl.kerberos.service.name"
WHAT: Final = "Kerberos: "
"""How errors of tickets begin."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """Who we are to the brokers' service: tickets come from a keytab, or from a ticket cache where there is none.

    ``cache`` None is the user's own cache (``KRB5CCNAME``), ``principal`` None the keytab's or the cache's own.
    """

    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None


def read_kerberos(
    text: Callable[..., str | None], options: Mapping[str, str] | None, origin: str | None
) -> KerberosSettings:
    """Return the settings. A keytab wins over a ticket cache.

    Args:
        text: returns the value of a client file's key, None if it has none.
        options: those of ``sasl.jaas.config``, None without one.
        origin: where that stands.

    Raises:
        SettingsError: the jaas line would have Java ask for a password.
    """
    if options is None:
        return KerberosSettings(text(SERVICE) or "kafka", text(PRINCIPAL), text(KEYTAB))
    keytab = options.get("keyTab") if _is_on(options, "useKeyTab") else None
    if keytab is None and not _is_on(options, "useTicketCache"):
        raise SettingsError(
            f'{origin}: sasl.jaas.config: Krb5LoginModule has neither useKeyTab=true keyTab="…" nor '
            "useTicketCache=true: write one of them"
        )
    return KerberosSettings(
        service=text(SERVICE) or options.get("serviceName") or "kafka",
        principal=options.get("principal"),
        keytab=keytab,
        cache=None if keytab else options.get("ticketCache"),
    )


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
FILE: Final = "sasl.oauthbearer.token.file"
COMMAND: Final = "sasl.oauthbearer.token.command"
HANDLER: Final = "sasl.login.callback.handler.class"
_ID: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
_SECRET: Final = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")

UNDERSTOOD: Final = frozenset(
    {
        *(KEYTAB, PRINCIPAL, SERVICE),
        ENDPOINT,
        FILE,
        COMMAND,
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
    "not supported: remove it, and write sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
    "sasl.oauthbearer.client.secret, or sasl.oauthbearer.token.file, or sasl.oauthbearer.token.command"
)
"""For every other key that starts with ``sasl.oauthbearer.``."""

_CHOICES: Final = {
    "sasl.oauthbearer.method": ("oidc",),
    "sasl.oauthbearer.grant.type": ("client_credentials",),
    "sasl.oauthbearer.header.urlencode": ("true", "false"),
    "sasl.oauthbearer.jwt.retriever.class": (
        "ClientCredentialsJwtRetriever",
        "DefaultJwtRetriever",
        "FileJwtRetriever",
    ),
}


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Where tokens come from: an endpoint, for a client; a file; a command; or AWS. The others are empty.

    ``ca_pem`` are certificates that the endpoint's may be signed by, besides the system's if ``system_trust``.
    ``extensions`` are SASL extensions (RFC 7628), names and values. ``urlencode``: id and secret are URL-encoded before
    they go into the header, as the RFC says and few servers want.
    """

    endpoint: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    urlencode: bool = False
    ca_pem: str | None = field(default=None, repr=False)
    system_trust: bool = True
    file: str = ""
    command: tuple[str, ...] = field(default=(), repr=False)
    aws: AwsIdentity | None = None

    @property
    def shown(self) -> str:
        """Where tokens come from, for messages. An endpoint's query and a command's arguments may hold a secret."""
        if self.aws is not None:
            return self.aws.shown
        if self.file:
            return f"token file {self.file}"
        if self.command:
            return f"token command {self.command[0]}"
        return f"token endpoint {self.endpoint.partition('?')[0]}"


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
    _check_oauth(text, jaas)
    client_id, secret = text(*_ID) or jaas.get("clientId"), text(*_SECRET) or jaas.get("clientSecret")
    extensions = _extensions(text("sasl.oauthbearer.extensions"), jaas)
    endpoint, file, command = _one_place(text, has_client=bool(client_id or secret))
    if file is not None:
        return OAuthSettings(file=file, extensions=extensions)
    if command is not None:
        return OAuthSettings(command=_argv(command), extensions=extensions)
    if endpoint is None:
        raise SettingsError(f"OAUTHBEARER needs {ENDPOINT}, {FILE} or {COMMAND}: write where tokens come from")
    if not client_id or not secret:
        raise SettingsError(f"OAUTHBEARER needs {_ID[0]} and {_SECRET[0]} (or both in a jaas line)")
    _check_endpoint(endpoint)
    return OAuthSettings(
        endpoint=endpoint,
        client_id=client_id,
        client_secret=secret,
        scope=text("sasl.oauthbearer.scope") or jaas.get("scope") or None,
        extensions=extensions,
        urlencode=(text("sasl.oauthbearer.header.urlencode") or "false").lower() == "true",
        ca_pem=ca_pem or brokers_ca,
        system_trust=ca_pem is None,
    )


def _one_place(text: Callable[..., str | None], *, has_client: bool) -> tuple[str | None, str | None, str | None]:
    """Return the endpoint, the file or the command that tokens come from, of which only an endpoint has a client."""
    endpoint, file, command = text(ENDPOINT), text(FILE), text(COMMAND)
    if endpoint is not None and endpoint.lower().startswith("file:"):  # as a Java client names a file (KIP-768)
        file, endpoint = file or _path_of(endpoint), None
    if sum(one is not None for one in (endpoint, file, command)) > 1 or ((file or command) and has_client):
        raise SettingsError(f"tokens come from one place: write {FILE}, or {COMMAND}, or {ENDPOINT} with its client")
    return endpoint, file, command


def _check_oauth(text: Callable[..., str | None], jaas: Mapping[str, str]) -> None:
    """Refuse what a Java client can do and kretain can't."""
    for key, choices in _CHOICES.items():
        value = text(key)
        if value is not None and value.rpartition(".")[2].lower() not in [one.lower() for one in choices]:
            raise SettingsError(f"{key}: only {' and '.join(choices)} can be used: write that, or remove it")
    if (handler := text(HANDLER)) is not None and handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
        raise SettingsError(f"{HANDLER}: kretain runs no Java: write {ENDPOINT}, {_ID[0]} and {_SECRET[0]}")
    if [one for one in jaas if one not in ("clientId", "clientSecret", "scope") and not one.startswith("extension_")]:
        raise SettingsError(  # not named: in a damaged line it may be the secret
            "sasl.jaas.config: it has an option besides clientId, clientSecret, scope and extension_NAME: write "
            f"{_ID[0]} and {_SECRET[0]} instead, and https.ca.location for the endpoint's certificate"
        )


def _path_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SettingsError(f"{ENDPOINT}: write a file as file:///PATH, or as {FILE}")
    return unquote(parts.path)


def _argv(command: str) -> tuple[str, ...]:
    """Return a command's program and arguments. The line is not quoted in errors: it may have a secret in it."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError:
        argv = ()
    if not argv or not argv[0]:
        raise SettingsError(f"{COMMAND}: it is not a command line: write PROGRAM ARGUMENT …, quoted as in a shell")
    return argv


def _check_endpoint(endpoint: str) -> None:
    """Refuse an address that would send the secret in clear, or that has one in it. The address is not quoted."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsError(f"{ENDPOINT}: it is not an address: write https://HOST/PATH") from None
    if "@" in parts.netloc:
        raise SettingsError(f"{ENDPOINT}: write it without a user: that is {_ID[0]} and {_SECRET[0]}")
    is_host = re.fullmatch(r"[A-Za-z0-9._:-]+", host) is not None
    if parts.scheme not in ("https", "http") or not is_host or port == 0 or parts.fragment:
        raise SettingsError(f"{ENDPOINT}: it is not an address: write https://HOST/PATH")
    if re.fullmatch(r"[\x21-\x7e]*", parts.path + parts.query) is None:
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
    if "auth" in found or not all(
        re.fullmatch(r"[A-Za-z]+", name) and re.fullmatch(r"[\x20-\x7e]*", value) for name, value in found.items()
    ):
        raise SettingsError("sasl.oauthbearer.extensions: write NAME=VALUE,…; names have letters only")
    return tuple(sorted(found.items()))
