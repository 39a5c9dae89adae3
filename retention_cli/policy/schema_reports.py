"""The policy file's sections on what trims leave behind, who approves and hears of them, and what storage costs."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from retention_cli.core.printable import shown
from retention_cli.policy import values as v
from retention_cli.policy.settings import DEFAULT_AUDIT_FILE_BYTES
from retention_cli.policy.urls import EVENTS, Event, read_webhook

_LABEL: Final = re.compile(r"\w[\w ./@-]{0,62}")


def read_labels(value: object) -> dict[str, str]:
    """Read names with their values, all of a few plain characters."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a mapping: write {{team: payments}}")  # noqa: TRY004  (as above)
    wrong: list[v.Item] = [
        ((), f"{shown(text)} is not a label: use up to 63 letters, digits, spaces, and . _ - / @")
        for pair in value.items()
        for text in pair
        if not isinstance(text, str) or _LABEL.fullmatch(text) is None
    ]
    return v.right(dict(value), wrong)


Price = Annotated[
    float,
    BeforeValidator(v.number_reader("a price: give a number such as 0.10", 0, 1e9)),
    WithJsonSchema({"type": "number", "minimum": 0}),
]
Currency = Annotated[
    str,
    BeforeValidator(
        v.text_reader(r"[^\W\d_]{1,8}|[$€£¥₹]", "{} is not a currency: give letters or a sign, such as EUR")
    ),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 8}),
]
Labels = Annotated[
    dict[str, str],
    BeforeValidator(read_labels),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 63}}),
]


class StrictModel(BaseModel):
    """A mapping of a policy or a fleet file: it takes no key but its own, and no value of another type."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False, strict=True)


class AuditModel(StrictModel):
    """The audit log of trims (docs/audit.md)."""

    max_bytes: v.SomeBytes = Field(
        default=DEFAULT_AUDIT_FILE_BYTES,
        alias="max.bytes",
        description="Close a larger file of the log when the next run begins. Default: 64MiB.",
    )
    topic: v.AuditTopic | None = Field(default=None, description="Copy each line to this topic of the trimmed cluster.")


_Keys = Annotated[
    list[str],
    BeforeValidator(v.texts_reader("give public keys: files such as keys/alice.pem, or a list of these")),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class AboveModel(StrictModel):
    """A trim above one of these needs an approval: with all that trims without one took in the last 24 hours."""

    records: v.Count | None = Field(default=None, description="Records: a number, or 10M.")
    bytes: v.Bytes | None = Field(default=None, description="Bytes. A trim of unknown size is above.")
    unconsumed: v.Count | None = Field(default=None, description="Unread records.")


class ApproveModel(StrictModel):
    """Trims that a second person has to approve (docs/approval.md)."""

    keys: _Keys = Field(
        description="Who may approve: public ed25519 keys, as files from the policy file's folder, PEM, its base64 in "
        "one line, or ssh-ed25519 …"
    )
    requesters: _Keys = Field(
        default=[],
        description="Who else may sign a plan as its requester; if set, every plan that needs an approval needs such a "
        "signature.",
    )
    above: AboveModel | None = Field(
        default=None, description="Only trims above one of these amounts need an approval. Default: all."
    )


class EvidenceModel(StrictModel):
    """What each trim leaves behind (docs/evidence.md), and how it is signed (docs/audit.md, Its signatures)."""

    url: v.ArchiveUrl | None = Field(
        default=None,
        description="Write evidence there: a path, file://, s3://, hdfs:// or gs://; 'none' for nowhere. "
        "Default: beside the audit log.",
    )
    sign: v.Path | None = Field(
        default=None, description="Sign each run with this private ed25519 key, a file from the policy file's folder."
    )


class NotifyModel(StrictModel):
    """Where to post what kretain did (docs/watch.md, Notifications)."""

    url: Annotated[str, BeforeValidator(read_webhook), WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        description="Post to this webhook: https://…, or env:NAME or file:PATH, which contain the URL."
    )
    events: list[Event] = Field(default=list(EVENTS), description="Post only these events. Default: all.")


class CostModel(StrictModel):
    """What storage costs: kretain forecast then shows money (docs/forecast.md)."""

    per_gib_month: Price = Field(alias="per.gib.month", description="What a GiB costs a month (30 days).")
    replication: Literal["included", "excluded"] = Field(
        default="included",
        description="included: the price is for a GiB with all its replicas. excluded: it is for each replica.",
    )
    currency: Currency = Field(default="", description="Printed after amounts, such as EUR.")
