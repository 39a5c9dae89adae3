"""One HTTP request under one deadline and one limit: connecting, headers, redirects and body together.

A server may send headers, "100 Continue" or chunks a byte at a time, and each byte renews a socket's time-out. So the
connection itself is shut down at the deadline.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from functools import partial
from typing import Any, Final, NamedTuple, Self

OTHER_HOST: Final = "its certificate is for another host"
NOT_TRUSTED: Final = "its certificate is not trusted"


class HttpError(Exception):
    """There is no answer, or not a complete one. The text says why, without the URL."""


class Answer(NamedTuple):
    """An answer: the status code, the headers and the body."""

    status: int
    headers: Message
    body: bytes


def ask(
    url: str,
    *,
    timeout_s: float,
    most_bytes: int,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    direct: bool = False,
) -> Answer:
    """Send a GET, or a POST with a ``body``, and return the answer with any status.

    A GET follows redirects and uses the proxies that the environment names. A POST does neither, nor does a GET that is
    ``direct``: what it sends is for that address alone, and a redirect is its answer.

    The connection is closed when this returns, and at the deadline. Looking up a name is not interrupted: the system's
    own limits end it.

    Args:
        url: http or https.
        timeout_s: the time for all of it.
        most_bytes: the longest body that is read.
        body: what to send.
        headers: what to send with it.
        tls: how an https address is checked; by default with the system's certificates.
        direct: send it to that address alone, as credentials must be.

    Raises:
        HttpError: it was not reached, was too slow, or sent too much or too little.
    """
    request = urllib.request.Request(url, body, dict(headers or {}))  # noqa: S310  (http or https, as it was checked)
    with _Watch(timeout_s) as watch:
        try:
            answer = _opener(watch, tls, follows=body is None and not direct).open(request)
            with contextlib.closing(answer):
                content = answer.read(most_bytes + 1)
                watch.check()
                if len(content) > most_bytes:
                    raise HttpError(f"its answer is longer than {most_bytes >> 10:,} KiB")
                length = answer.headers.get("Content-Length")
                if length is not None and length.strip() != str(len(content)):
                    raise HttpError("its answer was cut short")
                return Answer(answer.status, answer.headers, content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):  # a redirect that is refused: the error holds the connection
                error.close()
            watch.check()
            raise HttpError(_why(error, timeout_s)) from None


def late(timeout_s: float) -> str:
    """Return the text of an error after the deadline."""
    return f"not read within {timeout_s:g} s (timeout)"


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, urllib.error.HTTPError):  # its own text has the new address, which may hold a token
        return f"its redirect (HTTP {error.code}) can't be followed: it has no http address, or is circular"
    match error.reason if isinstance(error, urllib.error.URLError) else error:
        case TimeoutError():
            return late(timeout_s)
        case str(text):
            return text
        case ssl.SSLCertVerificationError() as refused:
            is_other = refused.verify_code in (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
            return OTHER_HOST if is_other else NOT_TRUSTED
        case ssl.SSLError():
            return "no TLS connection could be made: is it an https address?"
        case socket.gaierror():
            return "cannot resolve its host name"
        case other:
            return getattr(other, "strerror", None) or f"no HTTP answer ({type(other).__name__})"


class _Watch:
    """Shuts the connection down when the time is over."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._sockets: list[socket.socket] = []
        self._late = False
        self._timer = threading.Timer(timeout_s, self._hang_up)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for one in self._sockets:
            one.close()

    def check(self) -> None:
        """Raise an error if the time is over: what was read may be incomplete."""
        if self._late or time.monotonic() > self._deadline:
            raise HttpError(late(self._timeout_s))

    def connect(self, address: tuple[str, int], _timeout: Any = None, _source: Any = None) -> socket.socket:
        """Connect to one of a name's addresses, as :func:`socket.create_connection` does."""
        failed: OSError | None = None
        for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            self.check()
            one = socket.socket(family, kind, protocol)
            self._sockets.append(one.dup())  # for TLS takes a socket over
            try:
                one.settimeout(max(0.001, self._deadline - time.monotonic()))
                one.connect(place)
            except OSError as error:
                failed = error
                one.close()
            else:
                self.check()  # what was not connected yet could not be shut down
                return one
        raise failed or OSError("cannot resolve its host name")

    def _hang_up(self) -> None:
        self._late = True
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without reading their bodies."""

    max_redirections = 5

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.read = lambda *_: b""
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _OnlyRedirects(urllib.request.HTTPErrorProcessor):
    """Follows redirects; any other status is an answer."""

    def http_response(self, request: Any, response: Any) -> Any:
        redirects = response.status in (301, 302, 303, 307, 308)
        return super().http_response(request, response) if redirects else response

    https_response = http_response


def _opener(watch: _Watch, tls: ssl.SSLContext | None, *, follows: bool) -> urllib.request.OpenerDirector:
    def connection(kind: Any, *args: Any, **more: Any) -> Any:
        made = kind(*args, **more)
        made._create_connection = watch.connect  # noqa: SLF001  (what it connects by)
        return made

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, req: Any) -> Any:
            return self.do_open(partial(connection, http.client.HTTPConnection), req)

    class Tls(urllib.request.HTTPSHandler):
        def https_open(self, req: Any) -> Any:
            return self.do_open(partial(connection, http.client.HTTPSConnection), req, context=tls)

    opener = urllib.request.OpenerDirector()
    for one in (
        urllib.request.ProxyHandler(None if follows else {}),
        urllib.request.UnknownHandler(),
        Plain(),
        Tls(),
        *((urllib.request.HTTPDefaultErrorHandler(), _Redirects(), _OnlyRedirects()) if follows else ()),
    ):
        opener.add_handler(one)
    return opener


def tls_context(pem: str | None, *, besides_the_system: bool = False) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later that trusts these certificates; without any, those of the system.

    Raises:
        ssl.SSLError, ValueError: the TLS library does not accept them.
    """
    # Bundles may have comments in any language, but the ssl module accepts only ASCII.
    trusted = None if pem is None else pem.encode("ascii", "replace").decode()
    context = ssl.create_default_context(cadata=None if besides_the_system else trusted)
    if besides_the_system and trusted is not None:
        context.load_verify_locations(cadata=trusted)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
