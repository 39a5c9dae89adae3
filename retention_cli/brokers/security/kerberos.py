"""Kerberos: tickets by ``gssapi``, and SASL/GSSAPI by kafka-python. Needs ``kretain[kerberos]``.

With a keytab, tickets are kept in this process's memory, and the user's ticket cache is neither read nor written. The
library renews them when half of their life has passed, whenever a connection asks for them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from retention_cli.brokers.errors import BrokerError, SettingsError, UnauthorizedError, UnreachableError
from retention_cli.brokers.security.sasl_settings import KEYTAB, PRINCIPAL, SERVICE, WHAT, KerberosSettings
from retention_cli.core.extras import how_to_add
from retention_cli.core.files import read_file

_TABLE: Final = 2_529_638_912
"""The first of MIT Kerberos' error codes (krb5.h, ERROR_TABLE_BASE_krb5, without its sign)."""
_EXPIRED: Final = "the ticket has expired: renew it with kinit"
_CLOCKS: Final = "the clocks of this machine and of the KDC differ too much: correct them"
_TEXTS: Final = {
    6: f"the KDC does not know this principal: is {PRINCIPAL} right?",
    7: f"the KDC does not know the brokers' service: is {SERVICE} right, and is that their name and realm?",
    18: "the KDC has locked this principal, or it has expired",
    24: f"the KDC does not accept the keytab's key: has it changed since? Export it again ({KEYTAB})",
    31: f"the KDC does not accept the keytab's key: has it changed since? Export it again ({KEYTAB})",
    32: _EXPIRED,
    37: _CLOCKS,
    68: f"it is another realm's: is the realm of {PRINCIPAL} right?",
    148: _CLOCKS,
    154: f"no KDC is known for this realm: is the realm of {PRINCIPAL} right, and is it in krb5.conf?",
    156: "no KDC answers: is the address in krb5.conf right, and can this machine reach it?",
    220: "cannot resolve the KDC's host name: is it right in krb5.conf?",
}


def log_in(settings: KerberosSettings, timeout_s: float) -> None:
    """Get a ticket, before any broker is asked. It takes a thread: a KDC that hangs holds nothing for longer.

    Raises:
        SettingsError: gssapi is missing, or the keytab can't be used.
        UnauthorizedError: there is no valid ticket.
        UnreachableError: no KDC answers.
    """
    failed: list[BrokerError] = []

    def try_it() -> None:
        try:
            _credentials(settings)
        except BrokerError as error:
            failed.append(error)

    thread = threading.Thread(target=try_it, name="kretain-kerberos", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise UnreachableError(f"{WHAT}the KDC gave no answer within {timeout_s:g} s")
    if failed:
        raise failed[0]


def _gssapi() -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise SettingsError(
            f"Kerberos needs gssapi: {how_to_add('kerberos')} ({' '.join(str(error).split())})"
        ) from None
    return gssapi


def _credentials(settings: KerberosSettings) -> Any:
    gssapi = _gssapi()
    store = {}
    if settings.keytab is not None:
        try:
            read_file(Path(settings.keytab.removeprefix("FILE:")))
        except OSError as error:
            raise SettingsError(f"{KEYTAB}: {settings.keytab} cannot be read: {error.strerror or error}") from None
        store = {
            "client_keytab": settings.keytab,
            "ccache": f"MEMORY:kretain {settings.keytab} {settings.principal or ''}",
        }
    elif settings.cache is not None:
        store = {"ccache": settings.cache}
    try:
        name = None if (who := settings.principal) is None else gssapi.Name(who, gssapi.NameType.kerberos_principal)
        found = gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store or None)
        if found.lifetime == 0:  # this is also what gets a ticket with the keytab
            raise UnauthorizedError(f"{WHAT}{_EXPIRED}")
    except gssapi.exceptions.GSSError as error:
        raise _problem(error, settings) from None
    return found


def _problem(error: Any, settings: KerberosSettings) -> BrokerError:
    number = error.min_code - _TABLE
    text = " ".join(" ".join(error.get_all_statuses(error.min_code, False)).split()) if error.min_code else str(error)
    # CC_NOTFOUND, FCC_NOFILE, KT_NOTFOUND; and the mechanism's own, of a cache that is another principal's
    if number in (141, 195, 203) or error.min_code == 39_756_032:
        whose = "" if settings.principal is None else f" of {settings.principal}"
        if settings.keytab is not None:
            return SettingsError(f"{KEYTAB}: {settings.keytab} has no key{whose}: see klist -k {settings.keytab}")
        where = f" in {settings.cache}" if settings.cache else ""
        return UnauthorizedError(f"{WHAT}there is no ticket{whose}{where}: run kinit, or name a keytab ({KEYTAB})")
    if (ours := _TEXTS.get(number)) is not None:
        is_away = number in (156, 220)  # KDC_UNREACH, REALM_CANT_RESOLVE
        return (UnreachableError if is_away else UnauthorizedError)(f"{WHAT}{ours} ({text})")
    if isinstance(error, _gssapi().exceptions.ExpiredCredentialsError):
        return UnauthorizedError(f"{WHAT}{_EXPIRED}")
    return UnauthorizedError(f"{WHAT}{text}")


def kafka_python_settings(settings: KerberosSettings) -> dict[str, Any]:
    """Return kafka-python's SASL settings; from here on its GSSAPI takes our credentials."""
    from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
    from kafka.net.sasl import register_sasl_mechanism
    from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

    def refused(error: BrokerError) -> Exception:
        # the client tries again where the KDC is away, as it does where a broker is
        kind = KafkaConnectionError if isinstance(error, UnreachableError) else SaslAuthenticationFailedError
        return kind(str(error))  # type: ignore[no-any-return]

    class Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
        def __init__(self, *, host: str, sasl_kerberos_name: KerberosSettings, **_: Any) -> None:
            self._settings = sasl_kerberos_name
            self._is_done = self._is_authenticated = False
            self.auth_id = ""  # we act as the ticket's principal
            gssapi = _gssapi()
            try:
                credentials = _credentials(self._settings)
                service = gssapi.Name(f"{self._settings.service}@{host}", gssapi.NameType.hostbased_service)
                self._client_ctx = gssapi.SecurityContext(
                    name=service, creds=credentials, mech=gssapi.MechType.kerberos, usage="initiate"
                )
                self._next_token = self._client_ctx.step(None)
            except BrokerError as error:
                raise refused(error) from None
            except gssapi.exceptions.GSSError as error:
                raise refused(_problem(error, self._settings)) from None

        def receive(self, auth_bytes: bytes) -> None:
            try:
                super().receive(auth_bytes)
            except _gssapi().exceptions.GSSError as error:
                raise refused(_problem(error, self._settings)) from None

    register_sasl_mechanism("GSSAPI", Kerberos, overwrite=True)
    # Of its settings the client passes only those that it knows on to the mechanism: this one it does not look at.
    return {"sasl_mechanism": "GSSAPI", "sasl_kerberos_name": settings}
