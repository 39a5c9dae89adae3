"""Connection settings as one value, and in the form of each of the two Kafka clients."""

from __future__ import annotations

import logging
import re
import ssl
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from retention_cli.brokers.errors import RequestFailedError, SettingsError
from retention_cli.brokers.security import sasl_settings
from retention_cli.brokers.security.sasl_settings import KerberosSettings, OAuthSettings

if TYPE_CHECKING:  # an HTTP client is read only where a token is needed
    from retention_cli.brokers.security.tokens import TokenProvider
from collections.abc import Callable
from urllib.parse import unquote

MASK: Final = "********"
NO_KERBEROS: Final = (
    "records can't be read or written over Kerberos (confluent-kafka lacks it): use a listener for SCRAM or TLS"
)
_QUIET: Final = logging.getLogger("retention_cli.brokers.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_SECRET = re.compile(
    r"password|secret|jaas|token|\.key$|key\.pem|credential|user\.info|oauthbearer\.config", re.IGNORECASE
)
_NO_SECRET: Final = frozenset(
    {sasl_settings.ENDPOINT, sasl_settings.FILE, "sasl.oauthbearer.client.credentials.client.id"}
)
"""Keys that are named like a secret, and hold none."""


URL: Final = "schema.registry.url"
USER_INFO: Final = ("schema.registry.basic.auth.user.info", "basic.auth.user.info")
CA: Final = "schema.registry.ssl."
"""The prefix of the keys that name the trusted certificates; without ``schema.registry.`` they are the brokers'."""
UNDERSTOOD: Final = frozenset(
    {
        URL,
        *USER_INFO,
        *(f"{CA}{one}" for one in ("ca.location", "ca.pem")),
        *(f"{CA}truststore.{one}" for one in ("location", "password", "type", "certificates")),
    }
)

_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~%/-]*)?")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """A registry's URL without a user in it, the user and password (``user:password``), and the trusted certificates.

    It is plain data, as it goes to Spark's executors. ``problem`` says why it can't be used: files that clients share
    may name a registry that kretain never needs.
    """

    url: str = ""
    user_info: str = field(default="", repr=False)
    ca_pem: str | None = field(default=None, repr=False)
    problem: str = ""


def read_registry(text: Callable[..., str | None], trusted: Callable[[], str | None]) -> RegistrySettings:
    """Return the settings for the registry. Nothing is an error: what is wrong is its ``problem``.

    Args:
        text: returns the value of the first of some keys that has one.
        trusted: returns the trusted certificates, None for the system's; raises a :class:`SettingsError`.
    """
    if (given := text(URL)) is None:
        return RegistrySettings(problem=f"{URL} is not set: write it into the client's file (-c FILE)")
    scheme, _, rest = given.strip().partition("://")
    place, slash, path = rest.partition("/")
    in_url, _, host = place.rpartition("@")
    url = f"{scheme}://{host}{slash}{path}".rstrip("/")
    if _ADDRESS.fullmatch(url) is None:  # not quoted: it may contain a password
        return RegistrySettings(problem=f"{URL} is not the address of one registry, such as https://registry:8081")
    if (user_info := text(*USER_INFO) or unquote(in_url)) and (":" not in user_info or "${" in user_info):
        return RegistrySettings(url, problem=f"{USER_INFO[1]} is not USER:PASSWORD")
    try:
        return RegistrySettings(url, user_info, trusted())
    except SettingsError as error:
        return RegistrySettings(url, problem=f"{CA}…: {error}")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """A cluster's addresses, and the protocol and credentials to connect with.

    It is plain data, as it goes to Spark's executors. ``left_out`` are the given keys that have no effect on kretain.
    ``cluster_id`` is that of the cluster whose records are read and written, None if it is not known yet.
    """

    bootstrap: str
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    oauth: OAuthSettings | None = None
    kerberos: KerberosSettings | None = None
    ca_pem: str | None = field(default=None, repr=False)
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    verify_certificate: bool = True
    verify_hostname: bool = True
    client_id: str = "kretain"
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    left_out: tuple[str, ...] = ()
    cluster_id: str | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_aws(self) -> bool:
        """Whether AWS credentials are used."""
        return self.oauth is not None and self.oauth.aws is not None

    @property
    def tokens(self) -> TokenProvider | None:
        """This process's provider of tokens, None unless the mechanism is OAUTHBEARER or AWS_MSK_IAM."""
        if self.oauth is None:
            return None
        from retention_cli.brokers.security.tokens import provider_of

        return provider_of(self.oauth)

    def secrets(self) -> list[str]:
        """Return what must not be in any message: passwords, keys, the client secret and the latest token."""
        user_info = self.registry.user_info
        found = [self.password, self.key_pem, self.key_password, user_info, user_info.partition(":")[2]]
        if (tokens := self.tokens) is not None:
            found += [tokens.settings.client_secret, tokens.latest()]
        return [one for one in found if one]

    def without_secrets(self, error: object) -> str:
        """Return an error's text in one line, without what :meth:`secrets` returns."""
        text = " ".join(str(error).split())
        for secret in self.secrets():
            text = text.replace(" ".join(secret.split()), MASK)
        return text

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings of a client of confluent-kafka that prints nothing: callers report its errors.

        Raises:
            RequestFailedError: the connection is by Kerberos.
        """
        if self.kerberos is not None:
            raise RequestFailedError(NO_KERBEROS, retriable=False)
        conf: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.client_id,
            "security.protocol": self.protocol,
            "log_level": 0,
            "logger": _QUIET,
        }
        if (tokens := self.tokens) is not None:
            # It has no AWS_MSK_IAM, but MSK's listener for that takes a token too.
            conf |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens.for_librdkafka}
        elif self.mechanism is not None:
            conf |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.username or "",
                "sasl.password": self.password or "",
            }
        if self.uses_tls:
            tls = {
                "enable.ssl.certificate.verification": self.verify_certificate,
                "ssl.endpoint.identification.algorithm": "https" if self.verify_hostname else "none",
                "ssl.ca.pem": self.ca_pem,
                "ssl.certificate.pem": self.certificate_pem,
                "ssl.key.pem": self.key_pem,
                "ssl.key.password": self.key_password,
            }
            conf |= {key: value for key, value in tls.items() if value is not None}
        return conf

    def for_kafka_python(self) -> dict[str, Any]:
        """Return the settings for kafka-python.

        Raises:
            SettingsError: the TLS library does not accept a certificate or key.
        """
        conf: dict[str, Any] = {
            "bootstrap_servers": [one.strip() for one in self.bootstrap.split(",") if one.strip()],
            "client_id": self.client_id,
            "security_protocol": self.protocol,
        }
        if (tokens := self.tokens) is not None:
            from retention_cli.brokers.security.tokens import kafka_python_provider

            conf |= {
                "sasl_mechanism": self.mechanism,
                "sasl_oauth_token_provider": kafka_python_provider(tokens),
            }
        elif self.kerberos is not None:
            from retention_cli.brokers.security.kerberos import kafka_python_settings

            conf |= kafka_python_settings(self.kerberos)
        elif self.mechanism is not None:
            conf |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        if self.uses_tls:
            conf |= {
                "ssl_context": self._ssl_context(),
                "ssl_check_hostname": self.verify_certificate and self.verify_hostname,
            }
        return conf

    def _ssl_context(self) -> ssl.SSLContext:
        from retention_cli.core.http import tls_context

        try:
            context = tls_context(self.ca_pem)
            context.check_hostname = self.verify_certificate and self.verify_hostname
            if not self.verify_certificate:
                context.verify_mode = ssl.CERT_NONE
            if self.certificate_pem is not None:
                # The ssl module loads a key only from a file; this one is private and exists only meanwhile.
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
                    pem.write(self.certificate_pem + "\n" + (self.key_pem or ""))
                    pem.flush()
                    context.load_cert_chain(pem.name, password=self.key_password or "")
        except (ssl.SSLError, ValueError, OSError) as error:
            raise SettingsError(self._why_not(error)) from None
        return context

    def _why_not(self, error: Exception) -> str:
        """Return why the TLS library does not accept the certificates and the key: it says so in words of its own."""
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            return "the client certificate is not that of the key: see ssl.certificate.location and ssl.key.location"
        if "ENCRYPTED" in (self.key_pem or ""):
            wrong = "is missing" if not self.key_password else "is wrong, or the key is damaged"
            return f"the client certificate's key can't be opened: ssl.key.password {wrong}"
        return (
            "the certificates or the key of the connection can't be used: is each complete, and PEM "
            "(-----BEGIN …)? See ssl.ca.location, ssl.certificate.location and ssl.key.location, or their stores"
        )


def is_secret(key: str) -> bool:
    """Return whether a setting's value must never be shown."""
    return key not in _NO_SECRET and _SECRET.search(key) is not None
