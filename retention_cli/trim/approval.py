"""Whether a trim has the approval that the policy asks for (docs/approval.md)."""

from __future__ import annotations

from retention_cli.core.errors import Refusal
from retention_cli.core.model import Reason
from retention_cli.decide.guards.approval import APPROVAL, needs_approval
from retention_cli.decide.guards.limits import Amount
from retention_cli.plan.approval import Offered, approved
from retention_cli.policy.settings import ApproveRules
from retention_cli.trim.history import PastDay


def lacking(
    run: Amount, past: PastDay, rules: ApproveRules | None, shown: Offered | None, now_ms: int
) -> Reason | None:
    """Return why a run lacks the approval that it needs, None if it needs none or has one.

    Args:
        run: the most that it may trim.
        past: what was trimmed in the last 24 hours.
        rules: today's policy.
        shown: what the trim has to show; None: its plan was made in this run.
        now_ms: the current time.
    """
    spent = past.unapproved if past.broken is None else None
    why = needs_approval(run, spent, rules)
    if why is None or rules is None:
        return None
    try:
        approved(shown, rules, now_ms, run)
    except Refusal as error:
        return Reason(APPROVAL, f"{why}: {error}")
    return None
