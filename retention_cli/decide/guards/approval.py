"""Which trims a second person has to approve. Applies to all of a plan, as G6 does."""

from __future__ import annotations

from retention_cli.core.units import format_bytes
from retention_cli.decide.guards.limits import Amount
from retention_cli.policy.settings import ApproveRules


def needs_approval(run: Amount, past_day: Amount | None, rules: ApproveRules | None) -> str | None:
    """Return why a trim needs an approval, None if it needs none.

    Args:
        run: the most that the run may trim.
        past_day: what runs without an approval trimmed in the last 24 hours, so that a large trim in small parts needs
            one, too; None: that is unknown.
        rules: the policy's rules; None: no trim needs an approval.
    """
    if rules is None or run.records == 0:
        return None
    if past_day is None:
        return "the audit log is broken, so what was trimmed without an approval in the last 24 hours is unknown"
    both = run + past_day
    spent = " with what was trimmed without one in the last 24 hours" if past_day.records else ""
    if rules.max_records is not None and both.records > rules.max_records:
        return f"{both.records:,} records{spent} are more than approve.above.records, {rules.max_records:,}"
    if rules.max_bytes is not None and (both.size_bytes is None or both.size_bytes > rules.max_bytes):
        size = "an unknown number of bytes" if both.size_bytes is None else format_bytes(both.size_bytes)
        return f"{size}{spent} may be more than approve.above.bytes, {format_bytes(rules.max_bytes)}"
    if rules.max_unconsumed is not None and both.unconsumed > rules.max_unconsumed:
        most = f"approve.above.unconsumed, {rules.max_unconsumed:,}"
        return f"{both.unconsumed:,} unread records{spent} are more than {most}"
    return None
