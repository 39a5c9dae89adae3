"""Who asked for a plan, and who approved it: signatures over its digest (docs/approval.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from retention_cli.core.errors import Refusal
from retention_cli.core.files import read_file
from retention_cli.core.json_values import parse_json
from retention_cli.core.model import Reason, TopicPartition
from retention_cli.core.printable import printable
from retention_cli.core.signing import Signed, check, key_id, public_keys, sign, statement
from retention_cli.core.state_dir import whoever
from retention_cli.core.units import UnitError, format_age, parse_time_ms, timestamp
from retention_cli.decide.guards.approval import needs_approval
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.value import Plan, Totals, head_as_json, row_as_json
from retention_cli.policy.settings import ApproveRules

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT: Final = "kretain.approval/v1"
_REQUEST: Final = "kretain.request/v1"
_NOT_COVERED: Final = frozenset({"name", "partitions", "requester"})
"""Keys of a saved plan that the digest of its head leaves out: its name in a fleet, its rows, and who signed."""
_SLACK_MS: Final = 60_000


class ApprovalError(Refusal):
    """A plan has no approval that counts. Nothing was trimmed."""


def digest_of(plan: Plan) -> str:
    """Return the SHA-256 of all that a plan says, in its head and its rows, in any format."""
    head = head_as_json(plan) if plan.saved is None else plan.saved
    found = hashlib.sha256(statement({key: value for key, value in head.items() if key not in _NOT_COVERED}))
    for one in plan.decisions:
        found.update(b"\n" + statement(row_as_json(one)))
    return f"sha256:{found.hexdigest()}"


def requested(plan: Plan, key: Ed25519PrivateKey) -> Plan:
    """Return the plan, signed by its requester."""
    return replace(plan, requester=sign(_request(digest_of(plan)), key))


def _request(digest: str) -> bytes:
    return statement({"format": _REQUEST, "digest": digest})


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval: the JSON that was signed, and the signature. It may be of the plans of several clusters."""

    content: Mapping[str, Any]
    signed: Signed

    def as_json(self) -> dict[str, Any]:
        """Return the content of its file, which the audit log has, too."""
        return {**self.content, "signature": self.signed.signature}


def approve(plans: Iterable[Plan], key: Ed25519PrivateKey, now_ms: int) -> Approval:
    """Return the approval of plans.

    Raises:
        ApprovalError: the key is that of a plan's requester.
    """
    mine = key_id(key.public_key())
    rows = [(plan, _entry(plan, digest_of(plan))) for plan in plans]
    if any(plan.requester is not None and plan.requester.key == mine for plan, _ in rows):
        raise ApprovalError(f"key {mine} requested this plan: another person has to approve it")
    content = {
        "format": FORMAT,
        "at": timestamp(now_ms),
        "by": whoever(),
        "key": mine,
        "plans": [
            {**entry, "records": of.records, "bytes": of.size_bytes, "unconsumed": of.unconsumed}
            for plan, entry in rows
            for of in (plan.totals,)
        ],
    }
    return Approval(content, sign(statement(content), key))


def approval_notes(plan: Totals, rules: ApproveRules | None) -> list[Reason]:
    """Return the notes of a plan whose trim needs an approval even if nothing was trimmed before."""
    why = needs_approval(Amount(plan.records, plan.size_bytes, plan.unconsumed), Amount(), rules)
    what = "a second person has to approve this plan (save it, then kretain approve)"
    return [] if why is None else [Reason("approval", f"{why}: {what}")]


def _entry(plan: Plan, digest: str) -> dict[str, Any]:
    return {
        "cluster": plan.cluster_id,
        "digest": digest,
        "requester": None if plan.requester is None else asdict(plan.requester),
    }


def read_approval(path: Path) -> Approval:
    """Read an approval's file. Its signature is not checked yet.

    Raises:
        ApprovalError: it is missing, or not an approval.
    """
    try:
        content = parse_json(read_file(path).decode())
    except OSError as error:
        raise ApprovalError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ApprovalError(f"{path} is not an approval: it is not valid JSON") from None
    match content:
        case {
            "format": str(kind),
            "at": str(),
            "by": {"user": str(), "host": str()},
            "key": str(key),
            "plans": list(),
            "signature": str(signature),
        } if kind == FORMAT:
            del content["signature"]
            return Approval(content, Signed(key, signature))
    raise ApprovalError(f"{path} is not an approval: kretain approve writes {FORMAT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What a trim of a saved plan has to show: its entry in an approval, and that approval, or why there is none.

    ``by`` is who trims; ``max_age_ms`` is how old the approval may be.
    """

    entry: Mapping[str, Any]
    requester: Signed | None
    approval: Approval | ApprovalError
    by: Mapping[str, str]
    max_age_ms: int


def offered(plan: Plan, source: str | None, file: Path | None, max_age_ms: int) -> Offered | None:
    """Return what a trim has to show for a plan, None if the plan was made in this run.

    Args:
        plan: the plan as it was read, with all of its rows.
        source: the plan's file.
        file: the approval's file; None: the one next to the plan's.
        max_age_ms: how old it may be.
    """
    if source is None or plan.saved is None:
        return None
    given = Path(f"{source.rstrip('/')}.approval") if file is None else file
    approval: Approval | ApprovalError
    try:
        approval, digest = read_approval(given), digest_of(plan)
    except ApprovalError as error:
        approval, digest = error, ""
    return Offered(
        entry=_entry(plan, digest),
        requester=plan.requester,
        approval=approval,
        by=whoever(),
        max_age_ms=max_age_ms,
    )


def lacking(
    run: Amount, past_day: Amount | None, rules: ApproveRules | None, shown: Offered | None, now_ms: int
) -> Reason | None:
    """Return why a run lacks the approval that it needs, None if it needs none or has one.

    Args:
        run: the most that it may trim.
        past_day: what runs without an approval trimmed in the last 24 hours; None: that is unknown.
        rules: today's policy.
        shown: what the trim has to show; None: its plan was made in this run.
        now_ms: the current time.
    """
    why = needs_approval(run, past_day, rules)
    if why is None or rules is None:
        return None
    try:
        approved(shown, rules, now_ms, run)
    except Refusal as error:
        return Reason("approval", f"{why}: {error}")
    return None


def unseen(more: TopicPartition | None, rules: ApproveRules | None, shown: Offered | None) -> Reason | None:
    """Return why an approval does not cover a partition that loses more than the plan's row says; None: it may.

    A plan can be edited before it is approved, and be carried out in parts: so its totals alone don't bound it. Such a
    trim needs no approval where it is small, but the audit log would count it as approved.
    """
    if more is None or rules is None or shown is None or not isinstance(shown.approval, Approval):
        return None
    return Reason("approval", f"the trim would delete more of {more} than the plan showed its approver: plan again")


def approved(shown: Offered | None, rules: ApproveRules, now_ms: int, run: Amount | None = None) -> Approval:
    """Return the approval of a plan, if it counts.

    Args:
        shown: what the trim has to show; None: its plan was made in this run.
        rules: today's policy.
        now_ms: the current time.
        run: what the trim would delete, by its recheck: a plan may show its approver less; None: not known yet.

    Raises:
        ApprovalError, KeyRefusedError: it does not; the text says why, and what to do.
    """
    if shown is None:
        steps = "kretain plan --out plan.json, kretain approve plan.json, kretain trim --plan plan.json"
        raise ApprovalError(f"a plan has to be saved, approved by another person, and then carried out: {steps}")
    if isinstance(shown.approval, ApprovalError):
        raise ApprovalError(f"{shown.approval}; another person has to approve the plan with kretain approve")
    content, signed = shown.approval.content, shown.approval.signed
    keys = public_keys(rules.keys, rules.folder)
    if signed.key not in keys:
        raise ApprovalError(f"the approval is by key {printable(signed.key)}, which approve.keys does not have")
    if not check(statement(content), signed, keys[signed.key]):
        raise ApprovalError("the approval was changed: its signature does not match")
    plans = (one for one in content["plans"] if isinstance(one, dict) and shown.entry.items() <= one.items())
    if (plan := next(plans, None)) is None:
        raise ApprovalError("the approval is for another plan, or the plan was changed since: approve it again")
    for name, amount in () if run is None else (("records", run.records), ("unconsumed", run.unconsumed)):
        if not isinstance(most := plan.get(name), int) or amount > most:
            raise ApprovalError(f"the trim would delete more than was approved ({name}: {amount:,}): plan again")
    _check_age(content["at"], shown.max_age_ms, now_ms)
    _check_other_person(shown, signed.key, content["by"], rules)
    return shown.approval


def _check_age(at: str, max_age_ms: int, now_ms: int) -> None:
    try:
        age_ms = now_ms - parse_time_ms(at)
    except UnitError:
        raise ApprovalError("the approval has no valid time") from None
    if age_ms > max_age_ms:
        raise ApprovalError(f"the approval is {format_age(age_ms)} old (limit {format_age(max_age_ms)}): approve again")
    if age_ms < -_SLACK_MS:
        raise ApprovalError(f"the approval's time is in the future ({at}): check this machine's clock")


def _check_other_person(shown: Offered, approver: str, by: Mapping[str, str], rules: ApproveRules) -> None:
    """Check that the requester did not approve the plan, as far as this can be known."""
    requester, known = shown.requester, public_keys((*rules.keys, *rules.requesters), rules.folder)
    if requester is not None and requester.key in known:
        if not check(_request(shown.entry["digest"]), requester, known[requester.key]):
            raise ApprovalError("the plan was changed after its requester had signed it")
        if requester.key == approver:
            raise ApprovalError(f"key {approver} both requested and approved the plan: that takes two people")
        return
    if rules.requesters:
        raise ApprovalError(
            "the plan has no signature by a key of approve.requesters or approve.keys: make it with kretain plan --key"
        )
    if (by["user"], by["host"]) == (shown.by["user"], shown.by["host"]):
        raise ApprovalError(
            f"{printable(by['user'])} on {printable(by['host'])} approved the plan and now trims it: that takes two "
            f"people, or a plan that its requester signed (kretain plan --key)"
        )
