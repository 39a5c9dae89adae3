"""Which topics a command is about: of those that the policy manages the ones that its TOPIC arguments name. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from retention_cli.core.model import Reason
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.near import nearest, told, unmatched
from retention_cli.policy.settings import Settings
from retention_cli.policy.shown import plain, shown


class NothingMatchesError(Exception):
    """The policy, or a TOPIC, matches no topic of this cluster. ``problems`` are lines for people, one at least."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy, and the TOPIC arguments that choose among the topics it manages."""

    policy: Policy
    topics: tuple[str, ...] = ()

    def settings_for(self, topic: str) -> Settings | None:
        """Return a topic's settings, None where it is not chosen or not managed."""
        if self.topics and not matches(self.topics, topic):
            return None
        return self.policy.settings_for(topic)


def check_matches(selection: Selection, names: Collection[str]) -> list[Reason]:
    """Return a note for each entry that matches none of the cluster's topics.

    Raises:
        NothingMatchesError: no entry matches any topic, or a TOPIC argument matches none.
    """
    for pattern in selection.topics:
        if not any(matches((pattern,), name) for name in names):
            near = nearest([pattern], names)
            hint = f"; did you mean {near}?" if near is not None else " (or this user lacks DESCRIBE on it)"
            raise NothingMatchesError(f"no topic matches {shown(pattern)}{hint}")
    policy = selection.policy
    missing = unmatched(policy, names)
    if not any(selection.settings_for(name) is not None for name in names):
        if selection.topics:
            raise NothingMatchesError(f"{policy.source}: no entry matches {', '.join(map(plain, selection.topics))}")
        raise NothingMatchesError(*map(str, told(missing)))
    return [Reason("policy", str(problem)) for problem in missing]
