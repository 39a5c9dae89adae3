"""The policy file's sections on what trims leave behind, who approves and hears of them, and what storage costs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from retention_cli.policy import prices as p
from retention_cli.policy import values as v
from retention_cli.policy.keys import read_keys
from retention_cli.policy.settings import DEFAULT_AUDIT_FILE_BYTES
from retention_cli.policy.webhook import EVENTS, Event, read_webhook


class StrictModel(BaseModel):
    """A mapping of a policy or a fleet file: it takes no key but its own, and no value of another type."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False, strict=True)


class AuditModel(StrictModel):
    """The audit log of trims (docs/audit.md)."""

    max_bytes: v.SomeBytes = Field(
        default=DEFAULT_AUDIT_FILE_BYTES,
        alias="max.bytes",
        description="A file of the log that is larger is closed when the next run begins. Default: 64MiB.",
    )
    topic: v.AuditTopic | None = Field(
        default=None, description="Copy each line to this topic of the cluster that the log is about."
    )


_Keys = Annotated[
    list[str],
    BeforeValidator(read_keys),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class AboveModel(StrictModel):
    """A trim above one of these needs an approval: with all that trims without one took in the last 24 hours."""

    records: v.Count | None = Field(default=None, description="Records: a number, or 10M.")
    bytes: v.Bytes | None = Field(default=None, description="Bytes. A trim of unknown size is above.")
    unconsumed: v.Count | None = Field(default=None, description="Records that a consumer has yet to read.")


class ApproveModel(StrictModel):
    """Trims that a second person has to approve (docs/approval.md)."""

    keys: _Keys = Field(
        description="Who may approve: public ed25519 keys, as files from the policy file's folder, PEM, its base64 in "
        "one line, or ssh-ed25519 …"
    )
    requesters: _Keys = Field(
        default=[],
        description="Who may, as those who approve, also sign a plan as its requester; then every plan that needs an "
        "approval needs this signature.",
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


def in_short(given: Any) -> Any:
    """Return ``evidence: URL`` as the mapping that it is short for."""
    return {"url": given} if isinstance(given, str) else given


class NotifyModel(StrictModel):
    """Where to post what kretain did (docs/watch.md, Notifications)."""

    url: Annotated[str, BeforeValidator(read_webhook), WithJsonSchema({"type": "string", "minLength": 1})] = Field(
        description="Post to this webhook: https://…, or env:NAME or file:PATH, which have the URL."
    )
    events: list[Event] = Field(default=list(EVENTS), description="Post only these events. Default: all.")


class CostModel(StrictModel):
    """What storage costs: kretain forecast then shows money (docs/forecast.md)."""

    per_gib_month: p.Price = Field(alias="per.gib.month", description="What a GiB costs a month (30 days).")
    replication: p.IncludedOrExcluded = Field(
        default="included",
        description="included: the price is for a GiB with all its replicas. excluded: it is for each replica.",
    )
    currency: p.Currency = Field(default="", description="Printed behind amounts, such as EUR.")
