"""Tokens for SASL/OAUTHBEARER and AWS_MSK_IAM: one provider per client, shared by every connection of this process.

A token comes from an OAuth endpoint with the client credentials grant (RFC 6749, 4.4), a file, a command or AWS. No
redirect is followed and no proxy is used: a secret goes to the address that the settings name, or nowhere. Errors never
quote what the endpoint sends.

A token is renewed when four fifths of its life have passed. Each request runs in a thread of its own, so that not even
a name server can hold the caller for longer than the deadline; callers that come meanwhile wait for the same request.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
import ssl
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from retention_cli.brokers.errors import BrokerError, SettingsError, UnauthorizedError, UnreachableError
from retention_cli.brokers.security.aws import Signer, sign_in
from retention_cli.brokers.security.sasl_settings import ENDPOINT, OAuthSettings
from retention_cli.core.files import read_file
from retention_cli.core.http import NOT_TRUSTED, OTHER_HOST, HttpError, ask, late, tls_context
from retention_cli.core.subprocesses import CommandError, output_of

DEADLINE_S: Final = 8.0
"""The longest that a request may take, from looking up the name to the last byte. librdkafka waits 10 s for a token."""
MAX_ANSWER_BYTES: Final = 64 << 10

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What may stand after "Bearer" (RFC 6750): no character that ends SASL's first message."""
_LONGEST_S: Final = 10 * 365 * 86_400
_RENEW_AT: Final = 0.8
"""The part of a token's life after which another one is fetched."""
_CODES: Final = frozenset(
    {
        *("invalid_request", "invalid_client", "invalid_grant", "invalid_scope", "unauthorized_client"),
        "unsupported_grant_type",
    }
)
"""The error codes of RFC 6749, 5.2; a server's own are not shown."""
_ADVICE: Final = {
    OTHER_HOST: f"{OTHER_HOST}: see {ENDPOINT}",
    NOT_TRUSTED: f"{NOT_TRUSTED}: name its CA with https.ca.location",
}


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. ``obtained_s`` and ``expires_s`` are of ``time.monotonic``; ``signer`` is AWS's, if it is."""

    value: str = field(repr=False)
    obtained_s: float
    expires_s: float
    signer: Signer | None = field(default=None, repr=False)


def fetch_token(settings: OAuthSettings) -> Token:
    """Return a token from where they come from.

    Raises:
        SettingsError: the file can't be read, the command can't be run, or there are no AWS credentials.
        BrokerError: there is no token that can be used; see :func:`request_token`.
    """
    now = time.monotonic()
    if settings.aws is not None:
        signer, life_s = sign_in(settings.aws)
        signed = time.monotonic()
        return Token(signer.bearer(dt.datetime.now(dt.UTC)), signed, signed + life_s, signer)
    if settings.file:
        try:
            return _given(read_file(Path(settings.file), MAX_ANSWER_BYTES), now, settings.shown)
        except OSError as error:
            raise SettingsError(f"{settings.shown} can't be read: {error.strerror or error}") from None
    if settings.command:
        try:
            return _given(output_of(settings.command, DEADLINE_S, 16 * MAX_ANSWER_BYTES), now, settings.shown)
        except CommandError as error:
            raise SettingsError(f"{settings.shown} {error}") from None
    return request_token(settings)


def request_token(settings: OAuthSettings) -> Token:
    """Request a token from an endpoint, and return it.

    Raises:
        SettingsError: the TLS library does not accept the trusted certificates.
        UnauthorizedError: the endpoint refused the client.
        UnreachableError: it did not answer, or is out of order.
        BrokerError: its answer has no token that can be used.
    """
    where = settings.shown
    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    who = (settings.client_id, settings.client_secret)
    pair = ":".join(quote(one, safe="") for one in who) if settings.urlencode else ":".join(who)
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    requested_s = time.monotonic()
    try:
        answer = ask(
            settings.endpoint,
            timeout_s=DEADLINE_S,
            most_bytes=16 * MAX_ANSWER_BYTES,
            body=urlencode(form).encode(),
            headers=headers,
            tls=_trusting(settings),
        )
    except HttpError as error:
        problem = f"no answer within {DEADLINE_S:g} s" if (text := str(error)) == late(DEADLINE_S) else text
        raise UnreachableError(f"{where}: {_ADVICE.get(problem, problem[:1].lower() + problem[1:])}") from None
    if answer.status != HTTPStatus.OK:
        raise _refused(answer.status, answer.body, where)
    return _token(answer.body, requested_s, where)


def _trusting(settings: OAuthSettings) -> ssl.SSLContext:
    try:
        return tls_context(settings.ca_pem, besides_the_system=settings.system_trust)
    except (ssl.SSLError, ValueError):
        raise SettingsError("https.ca.location: its certificates can't be used: write a file of PEM ones") from None


def _refused(status: int, body: bytes, where: str) -> BrokerError:
    if 300 <= status < 400:
        return BrokerError(
            f"{where}: it redirects (HTTP {status}), and kretain does not follow it: write the final address"
        )
    if status in (400, 401, 403):
        code = _content(body).get("error")
        named = f"HTTP {status}, {code}" if isinstance(code, str) and code in _CODES else f"HTTP {status}"
        return UnauthorizedError(f"{where} refused the client ({named}): are client id, client secret and scope right?")
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return UnreachableError(f"{where}: it is failing (HTTP {status})")
    return BrokerError(f"{where}: it issues no token (HTTP {status}): is {ENDPOINT} right?")


def _content(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _token(body: bytes, requested_s: float, where: str) -> Token:
    if len(body) > MAX_ANSWER_BYTES:
        raise BrokerError(f"{where}: its answer is longer than {MAX_ANSWER_BYTES >> 10} KiB: is {ENDPOINT} right?")
    content = _content(body)
    value, kind = content.get("access_token"), content.get("token_type", "bearer")
    if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
        raise BrokerError(f"{where}: its answer has no access_token: is {ENDPOINT} right?")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise BrokerError(f"{where}: its token is not a bearer token, which OAUTHBEARER needs")
    if not (lives := [life for life in (_seconds(content.get("expires_in")), _until_exp(value)) if life is not None]):
        raise BrokerError(f"{where}: it does not say how long its token is valid (expires_in)")
    return _valid(
        value, requested_s, min(lives), f"{where}: its token has expired already: is this machine's clock right?"
    )


def _given(content: bytes, now: float, where: str) -> Token:
    """Return the token in a file's or a command's text: itself, or in JSON as endpoints answer or ``az`` prints it."""
    text = content.decode("utf-8", "replace").strip()
    fields = _content(content) if text.startswith("{") else {"access_token": text}
    value = next((fields[key] for key in ("access_token", "accessToken", "token") if key in fields), None)
    if not isinstance(value, str) or len(value) > MAX_ANSWER_BYTES or _TOKEN.fullmatch(value) is None:
        raise BrokerError(f"{where}: it gives no token: expected the token alone, or JSON with an access_token")
    until = _seconds(fields.get("expires_on"))  # Unix s
    lives = (_seconds(fields.get("expires_in")), None if until is None else until - time.time(), _until_exp(value))
    life = min((one for one in lives if one is not None), default=300.0)  # then it is fetched again
    return _valid(value, now, life, f"{where}: its token has expired: check the program that renews it")


def _valid(value: str, obtained_s: float, life_s: float, expired: str) -> Token:
    if life_s <= 0:
        raise BrokerError(expired)
    return Token(value, obtained_s, obtained_s + min(life_s, _LONGEST_S))


def _seconds(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return None if number is None or number != number else max(-1.0, min(number, 1e12))  # noqa: PLR0124  (NaN)


def _until_exp(value: str) -> float | None:
    """Return how long a JWT says that it is valid (s); None if it is another kind of token."""
    parts = value.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    until = _seconds(claims.get("exp")) if isinstance(claims, dict) else None
    return None if until is None else until - time.time()


class TokenProvider:
    """Returns a valid token. Safe for threads."""

    def __init__(self, settings: OAuthSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._failure: BrokerError | None = None
        self._again_s = 0.0
        self._flight: threading.Event | None = None

    def token(self, patience_s: float = DEADLINE_S) -> Token:
        """Return a token that has not expired, requesting one if need be.

        Raises:
            BrokerError: there is none, and its source gave none within :data:`DEADLINE_S`, or ``patience_s`` if that
                is shorter.
        """
        with self._lock:
            now, known = time.monotonic(), self._token
            if known is not None and now < known.obtained_s + _RENEW_AT * (known.expires_s - known.obtained_s):
                return known
            valid = known is not None and now < known.expires_s
            if now < self._again_s:
                return self._known()
            if (flight := self._flight) is None:
                flight = self._flight = threading.Event()
                threading.Thread(target=self._request, args=(flight,), name="kretain-token", daemon=True).start()
        waits_s = min(patience_s, 2.0 if valid else DEADLINE_S)  # it blocks the caller's event loop
        done = flight.wait(waits_s)
        with self._lock:
            return self._known(None if done else self._late(waits_s))

    def latest(self) -> str | None:
        """Return the latest token, valid or not, to mask it in a client's message; None if there is none."""
        token = self._token
        return None if token is None else token.value

    def _known(self, late: BrokerError | None = None) -> Token:
        if self._token is not None and time.monotonic() < self._token.expires_s:
            return self._token
        failure = late or self._failure or self._late(DEADLINE_S)
        raise type(failure)(str(failure))

    def _late(self, waited_s: float) -> UnreachableError:
        return UnreachableError(f"{self.settings.shown}: no answer within {waited_s:.2g} s")

    def _request(self, flight: threading.Event) -> None:
        result: Token | BrokerError = self._late(DEADLINE_S)
        try:
            result = fetch_token(self.settings)
        except BrokerError as error:
            result = error
        finally:
            with self._lock:
                self._flight = None
                if isinstance(result, Token):
                    self._token, self._failure = result, None
                else:
                    # For a second: a cluster's connections must not each ask again.
                    self._failure, self._again_s = result, time.monotonic() + 1.0
            flight.set()

    def for_librdkafka(self, _config: str | None) -> tuple[str, float, str, dict[str, str]]:
        """Be confluent-kafka's ``oauth_cb``: it is called in a thread of the client's, even without polls."""
        # An exception here would surface in the Python code that the client calls next. So return what no broker
        # accepts: the connection fails as with a wrong password, and the client soon asks again.
        try:
            token = self.token()
            value, left_s = token.value, token.expires_s - time.monotonic()
        except BrokerError:
            value, left_s = "none", 0.0
        return value, time.time() + max(left_s, 2.0), "", dict(self.settings.extensions)


_providers: dict[OAuthSettings, TokenProvider] = {}
os.register_at_fork(after_in_child=_providers.clear)  # none of the threads lives there that may hold a provider's lock


def provider_of(settings: OAuthSettings) -> TokenProvider:
    """Return this process's provider for these settings."""
    return _providers.setdefault(settings, TokenProvider(settings))  # one for all threads: setdefault is atomic


def kafka_python_provider(provider: TokenProvider) -> Any:
    """Return kafka-python's ``sasl_oauth_token_provider``, for AWS_MSK_IAM too; a refused token fails at once."""
    from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
    from kafka.net.sasl import register_sasl_mechanism
    from kafka.net.sasl.msk import SaslMechanismAwsMskIam
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

    class Bearer(SaslMechanismOAuth):  # type: ignore[misc]
        def receive(self, auth_bytes: bytes) -> None:
            # What a broker says after a token is why it refuses it (RFC 7628, 3.2.2). It would say so once more and
            # hang up; if the second message gets lost, the client reconnects until its time is up.
            if auth_bytes:
                raise SaslAuthenticationFailedError("the token was refused")
            super().receive(auth_bytes)

    class Iam(SaslMechanismAwsMskIam):  # type: ignore[misc]
        def __init__(self, **config: Any) -> None:
            super().__init__(**config)
            self._provider: Provider = config["sasl_oauth_token_provider"]

        def auth_bytes(self) -> bytes:
            signer = self._provider.valid().signer
            assert signer is not None  # noqa: S101  (this mechanism has AWS's credentials)
            return signer.payload(self.host, dt.datetime.now(dt.UTC))

    register_sasl_mechanism("OAUTHBEARER", Bearer, overwrite=True)
    register_sasl_mechanism("AWS_MSK_IAM", Iam, overwrite=True)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return self.valid().value

        def valid(self) -> Token:
            try:
                return provider.token()
            except BrokerError as error:  # the client tries again, as it does where a broker is away
                raise KafkaConnectionError(str(error)) from None

        def extensions(self) -> dict[str, str]:
            return dict(provider.settings.extensions)

    return Provider()
