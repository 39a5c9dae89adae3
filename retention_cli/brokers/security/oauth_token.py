"""Tokens for SASL/OAUTHBEARER and AWS_MSK_IAM: one provider per client, shared by every connection of this process.

A token is renewed when four fifths of its life have passed. Each request runs in a thread of its own, so that not even
a name server can hold the caller for longer than the deadline; callers that come meanwhile wait for the same request.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from retention_cli.brokers.errors import BrokerError, UnreachableError
from retention_cli.brokers.security.oauth_settings import OAuthSettings
from retention_cli.brokers.security.token_request import DEADLINE_S, Token, fetch_token

RENEW_AT: Final = 0.8
_PATIENCE_S: Final = 2.0
"""How long a caller waits for a new token while the old one is valid: its event loop stands still meanwhile."""
_AGAIN_S: Final = 1.0
"""How long a failure counts, so that a cluster's every connection does not ask anew."""

Callback = Callable[[str | None], tuple[str, float, str, dict[str, str]]]


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
            if known is not None and now < self._renew_s(known):
                return known
            valid = known is not None and now < known.expires_s
            if now < self._again_s:
                return self._known()
            if (flight := self._flight) is None:
                flight = self._flight = threading.Event()
                threading.Thread(target=self._request, args=(flight,), name="kretain-token", daemon=True).start()
        waits_s = min(patience_s, _PATIENCE_S if valid else DEADLINE_S)
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

    def _renew_s(self, token: Token) -> float:
        return token.obtained_s + RENEW_AT * (token.expires_s - token.obtained_s)

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
                    self._failure, self._again_s = result, time.monotonic() + _AGAIN_S
            flight.set()


_providers: dict[OAuthSettings, TokenProvider] = {}
_providers_lock = threading.Lock()


def provider_of(settings: OAuthSettings) -> TokenProvider:
    """Return this process's provider for these settings."""
    with _providers_lock:
        return _providers.setdefault(settings, TokenProvider(settings))


def _forget() -> None:
    """A forked child has none of the threads that its parent's locks may be held by."""
    global _providers_lock  # noqa: PLW0603
    _providers_lock = threading.Lock()
    _providers.clear()


os.register_at_fork(after_in_child=_forget)


def librdkafka_callback(provider: TokenProvider) -> Callback:
    """Return confluent-kafka's ``oauth_cb``: it is called in a thread of the client's, even without polls."""

    def callback(_config: str | None) -> tuple[str, float, str, dict[str, str]]:
        # An exception here would surface in whatever Python code the client calls next. What is returned instead no
        # broker accepts, so that the connection fails as with a wrong password; the client asks again soon.
        try:
            token = provider.token()
            value, left_s = token.value, token.expires_s - time.monotonic()
        except BrokerError:
            value, left_s = "none", 0.0
        return value, time.time() + max(left_s, 2.0), "", dict(provider.settings.extensions)

    return callback


def kafka_python_provider(provider: TokenProvider) -> Any:
    """Return kafka-python's ``sasl_oauth_token_provider``, for AWS_MSK_IAM too; a refused token fails at once."""
    from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
    from kafka.net.sasl import register_sasl_mechanism
    from kafka.net.sasl.msk import SaslMechanismAwsMskIam
    from kafka.net.sasl.oauth import AbstractTokenProvider, SaslMechanismOAuth

    class Bearer(SaslMechanismOAuth):  # type: ignore[misc]
        def receive(self, auth_bytes: bytes) -> None:
            # What a broker says after a token is why it refuses it (RFC 7628, 3.2.2). It would say so once more and
            # hang up; where the second message gets lost, the client connects anew until its time is up.
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
