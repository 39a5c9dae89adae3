"""What a client's file says about Kerberos (GSSAPI): a Java client's Krb5LoginModule, or librdkafka's keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from retention_cli.brokers.errors import SettingsError

KEYTAB: Final = "sasl.kerberos.keytab"
PRINCIPAL: Final = "sasl.kerberos.principal"
SERVICE: Final = "sasl.kerberos.service.name"
UNDERSTOOD: Final = frozenset({KEYTAB, PRINCIPAL, SERVICE})
WHAT: Final = "Kerberos: "
"""How errors of tickets begin."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """Who we are to the brokers' service: tickets come from a keytab, or from a ticket cache where there is none.

    ``cache`` None is the user's own cache (``KRB5CCNAME``), ``principal`` None whoever the keytab or the cache is of.
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
    service = text(SERVICE) or options.get("serviceName") or "kafka"
    return KerberosSettings(service, options.get("principal"), keytab, None if keytab else options.get("ticketCache"))


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"
