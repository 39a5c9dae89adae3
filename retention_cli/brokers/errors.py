"""Errors of connections and requests to a cluster, each with a one-line text (docs/scripts.md, exit 1)."""

from __future__ import annotations


class BrokerError(Exception):
    """A request to the cluster could not be sent, or failed."""


class UnreachableError(BrokerError):
    """No broker answered within the time-out."""


class UnauthorizedError(BrokerError):
    """The cluster refused the user's credentials, or the operation."""


class SettingsError(BrokerError):
    """A connection setting can't be used; the text names the key and what to write instead."""


class NoClusterError(SettingsError):
    """No setting names a cluster."""


class RequestFailedError(BrokerError):
    """One request failed. ``retriable``: sending it again may succeed.

    ``answered``: a broker returned the error. Otherwise it is unknown whether the request was executed. ``code`` is
    the protocol's name for what a broker returned; by default it is the text's first word.
    """

    def __init__(self, text: str, *, retriable: bool, answered: bool = False, code: str | None = None) -> None:
        super().__init__(text)
        self.retriable = retriable
        self.answered = answered
        self.code = text.partition(" ")[0] if code is None else code


class SchemaError(RequestFailedError):
    """A schema can't be fetched from the registry, or can't be used: records written with it are unknown.

    The text continues a sentence about a record: it names the schema, the registry and the reason.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, retriable=True)

    def of_record(self, offset: int) -> SchemaError:
        """Return the error of the first record that could not be read."""
        return SchemaError(f"the record at offset {offset:,} is of {self}")


class NotSentError(RequestFailedError):
    """A request whose time ran out before all of it was written: no broker can execute it."""

    def __init__(self, text: str, *, retriable: bool = True) -> None:
        super().__init__(text, retriable=retriable)


class MissingApiError(NotSentError):
    """A broker does not offer an API, or no version of it that kretain knows: nothing was sent to it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, retriable=False)
