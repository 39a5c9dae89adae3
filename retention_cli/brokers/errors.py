"""What can go wrong between us and a cluster, each said in one line (README.md, exit 1)."""

from __future__ import annotations


class BrokerError(Exception):
    """The cluster could not be asked, or would not answer."""


class UnreachableError(BrokerError):
    """No broker answered within the time-out."""


class UnauthorizedError(BrokerError):
    """The cluster refused who we are, or what we asked for."""


class SettingsError(BrokerError):
    """A connection setting that can't be used; the text names the key and what to write instead."""


class RequestFailedError(BrokerError):
    """One request failed. ``retriable`` says whether asking again may help.

    ``answered`` says that it was a broker that refused it. Else nobody knows whether it was carried out.
    """

    def __init__(self, text: str, *, retriable: bool, answered: bool = False) -> None:
        super().__init__(text)
        self.retriable = retriable
        self.answered = answered
