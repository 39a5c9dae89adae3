"""What a client's file says about the schema registry: its address, and the credentials for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from retention_cli.brokers.errors import SettingsError

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

    def secrets(self) -> list[str]:
        """Return what must not be in any message."""
        return [one for one in (self.user_info, self.user_info.partition(":")[2]) if one]


def read_registry(text: Callable[..., str | None], trusted: Callable[[], str | None]) -> RegistrySettings:
    """Return the settings for the registry. Nothing is an error: what is wrong is its ``problem``.

    Args:
        text: returns the value of the first of some keys that has one.
        trusted: returns the trusted certificates, None for the system's; raises a :class:`SettingsError`.
    """
    given = text(URL)
    if given is None:
        return RegistrySettings(problem=f"{URL} is not set: write it into the client's file (-c FILE)")
    scheme, _, rest = given.strip().partition("://")
    place, slash, path = rest.partition("/")
    in_url, _, host = place.rpartition("@")
    url = f"{scheme}://{host}{slash}{path}".rstrip("/")
    if _ADDRESS.fullmatch(url) is None:  # not quoted: it may contain a password
        return RegistrySettings(problem=f"{URL} is not the address of one registry, such as https://registry:8081")
    user_info = text(*USER_INFO) or unquote(in_url)
    if user_info and (":" not in user_info or "${" in user_info):
        return RegistrySettings(url, problem=f"{USER_INFO[1]} is not USER:PASSWORD")
    try:
        return RegistrySettings(url, user_info, trusted())
    except SettingsError as error:
        return RegistrySettings(url, problem=f"{CA}…: {error}")
