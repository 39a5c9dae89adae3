"""Read the floors that Kafka's own groups set: list, describe and read them in the safe order (F1–F5, F8, F9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError, MissingApiError, RequestFailedError
from retention_cli.brokers.groups import ListedGroup, MembersRead, MembersUnknownError, TopicRegex
from retention_cli.brokers.log_offsets import Found, NotFound
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.commands import grant_line
from retention_cli.core.consumers import group_key, is_outside, plain_name
from retention_cli.core.model import Code, Reason, Unknown
from retention_cli.core.progress import Progress, adding, silent
from retention_cli.memory.ledger import Ledger
from retention_cli.observe.floors.fold import FloorFold, TopicScope
from retention_cli.observe.floors.outside import Read, fold_outside
from retention_cli.observe.lineage import EpochEnds
from retention_cli.observe.recall import Recall
from retention_cli.policy.model import REGEX, PatternError, Policy, compiled, matches
from retention_cli.policy.selection import groups_not_there
from retention_cli.policy.settings import GroupRules

CommitListener = Callable[[GroupCommits], None]
"""Called with each counted group's commits, which the fold does not keep."""

_AGAIN_AFTER_S: Final = 0.5
_LISTING_PATIENCE_S: Final = 2.0
_COORDINATORS_HIDDEN: Final = (
    f"{OFFSETS_TOPIC} can't be described, so kretain would miss offline coordinators: grant DESCRIBE on it, or, where "
    f"the provider hides it, set groups.offsets.topic: hidden"
)
_NOBODY_REQUIRED: Final = (
    f"{OFFSETS_TOPIC} is hidden, so groups may be missing from the listing: name those that must have read this topic "
    f"(groups.require)"
)
_COORDINATORS_MOVED: Final = (
    f"the leaders of {OFFSETS_TOPIC} changed each time groups were read, or brokers name different ones: run again"
)
_SEEN_INCOMPLETE: Final = (
    "this user lacks DESCRIBE on the cluster, so brokers leave groups out of their listing without an error; "
    f"grant it: {grant_line('Describe', 'cluster')}. If this user may see only the groups of a prefix, set groups.scope"
)
_NO_GROUP: Final = "~kretain-asks-whether-it-may-describe-this"
"""Ends a name that no group has. A user who may describe it has the right to the prefix, not just to names (F8)."""


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Reads every group that counts into one fold. What could not be read is unknown in it, with its reason.

    Args:
        reader: the cluster.
        scopes: the managed topics.
        recall: which groups count, and what is remembered of them (F6).
        progress: called with the number of groups read.
        listener: called with each group's commits.
        is_mine: returns whether this fold is to have the group with a name: others may be in another one.
        with_rows: whether the fold keeps rows, too.
        with_seen: whether it keeps what is folded in.
    """

    reader: ClusterReader
    scopes: Mapping[str, TopicScope]
    recall: Recall
    progress: Progress = silent
    listener: CommitListener | None = None
    is_mine: Callable[[str], bool] = lambda _group: True
    with_rows: bool = False
    with_seen: bool = False

    def read(
        self, metadata: ClusterMetadata, patience_s: float | None = None, outside: Sequence[Read] | None = None
    ) -> FloorFold:
        """Return the fold over every group that counts, and every consumer outside Kafka's groups.

        Args:
            metadata: read just now; the first of the two reads that F9 compares.
            patience_s: how long to wait for coordinators that move and offsets that are unstable.
            outside: what the sources of other consumers gave, if they were read elsewhere (F7).
        """
        reader = self.reader
        deadline = reader.clock.monotonic() + (reader.timeout_s if patience_s is None else patience_s)
        fold, doubt = self._read_once(metadata, deadline)
        attempts = 1
        while doubt is not None and doubt.allows_another(attempts, late=reader.clock.monotonic() > deadline):
            reader.clock.sleep(_AGAIN_AFTER_S)
            attempts += 1
            fold, doubt = self._read_once(reader.metadata([OFFSETS_TOPIC]), deadline)
        if doubt is not None:
            fold.fail_all(doubt.reason)
        if not fold.failed:
            self.recall.saw_all()
        fold_outside(fold, metadata, self.recall, reader, self.listener, outside)
        return fold

    def _read_once(self, before: ClusterMetadata, deadline: float) -> tuple[FloorFold, Doubt | None]:
        """Read every group between two checks of our rights (F8) and of the coordinators' leaders (F9)."""
        reader, recall = self.reader, self.recall
        fold = FloorFold(self.scopes, with_rows=self.with_rows, with_seen=self.with_seen)
        try:
            if (doubt := self._hidden(before)) is not None:
                return fold, doubt
            if isinstance(listing := list_counted(reader, recall.rules, before, deadline), Doubt):
                return fold, listing
            mine = tuple(one for one in listing.counted if self.is_mine(one.name))
            fold.latest = latest_of(mine, recall.rules)
            fold.ages = recall.memory.ages(
                fold.counts, [group_key(group.kind, group.name) for group in mine], recall.now_ms
            )
            fold.may_lack = bool(listing.may_lack)
            fold.starts = starts_of(mine, recall.rules, listing.keys if fold.may_lack else None)
            for reason in listing.may_lack:
                fold.fail_all(reason, [name for name, one in self.scopes.items() if not one.require])
            read_groups(reader, mine, fold, recall, _left(reader, deadline), self.progress, self.listener)
            doubt = changed_since(reader, before, recall.rules, listing) or self._hidden(before)
            if doubt is not None:
                return fold, doubt
            recall.add_gone(fold, listing.keys)
        except BrokerError as error:
            reason = Reason(Code.F9, f"the consumer groups could not be listed: {error}")
            return fold, Doubt(reason, "no" if isinstance(error, MissingApiError) else "while patience lasts")
        return fold, None

    def _hidden(self, before: ClusterMetadata) -> Doubt | None:
        """Return why a coordinator may leave a managed topic out of its groups' commits (F8)."""
        if (found := self.reader.hidden_topic(before.brokers, self.scopes)) is None:
            return None
        broker, topic, error = found
        text = f"broker {broker} may leave {topic} out of its groups' commits, without an error: {error}"
        waits = error.retriable and not error.answered  # it may have died just now
        return Doubt(Reason(Code.F8, text), "while patience lasts" if waits else "once")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a reading of the groups can't be trusted, and whether to read again: once, or while patience lasts."""

    reason: Reason
    again: Literal["no", "once", "while patience lasts"]

    def allows_another(self, attempts: int, *, late: bool) -> bool:
        """Return whether to read again after this many attempts. ``late``: patience has ended."""
        return self.again != "no" and (attempts == 1 or (self.again != "once" and not late))


@dataclass(frozen=True, slots=True)
class Listing:
    """Every group of the cluster, by key (:mod:`retention_cli.core.consumers`), and those that count (F1).

    ``may_lack`` says why groups may be missing: the provider hides the offsets topic (F9), or this user may only
    describe those of ``groups.scope`` (F8). ``everyone``: the cluster's rights let this user see every group.
    """

    keys: frozenset[str]
    counted: tuple[ListedGroup, ...]
    may_lack: tuple[Reason, ...] = ()
    everyone: bool = True


def latest_of(groups: Sequence[ListedGroup], rules: GroupRules) -> frozenset[str]:
    """Return the groups, by key, that start at the end if they have no commit (F2): no share groups.

    A share group reads new partitions of a topic that it already knows from 0.
    """
    return frozenset(
        group_key(one.kind, one.name) for one in groups if one.kind != "share" and matches(rules.latest, one.name)
    )


def starts_of(
    groups: Sequence[ListedGroup], rules: GroupRules, listed: Collection[str] | None = None
) -> dict[str, int | None]:
    """Return how far back groups start that have no commit (F2), by key; None: it may have a live member unasked.

    ``listed`` are the keys of the groups that are listed, if others may exist (F8, F9).
    """
    unasked = {one.name for one in groups if one.may_have_members and not _reads_members(one, rules)}
    if listed is not None:
        unasked.update(name for name, _back_ms in rules.start if name not in listed)
    return {group_key("classic", name): None if name in unasked else back_ms for name, back_ms in rules.start}


def list_counted(reader: ClusterReader, rules: GroupRules, before: ClusterMetadata, deadline: float) -> Listing | Doubt:
    """List the groups, or return why the listing is incomplete (F8, F9). ``before`` is metadata read just now.

    Raises:
        BrokerError: a broker did not list its groups.
    """
    if (moved := _moved(reader, before)) is not None:
        return moved
    # A broker that died is listed until the controller notices: ask briefly, then read the brokers again.
    everyone = reader.may_describe_cluster(before.brokers, min(_LISTING_PATIENCE_S, _left(reader, deadline)))
    if not everyone and rules.scope is None:
        return Doubt(Reason(Code.F8, _SEEN_INCOMPLETE), "no")
    if (leaderless := _without_leader(before)) is not None:
        return Doubt(leaderless, "once")  # an election takes a moment, an offline broker hours
    listed = reader.list_groups(before.brokers, min(_LISTING_PATIENCE_S, _left(reader, deadline)))
    if not everyone and rules.scope is not None:
        if (doubt := scope_doubt(reader, before.brokers, rules.scope, listed)) is not None:
            return doubt
        listed = reader.list_groups(before.brokers, min(_LISTING_PATIENCE_S, _left(reader, deadline)))
    counted = tuple(group for group in listed if _counts(group, rules))
    hidden = _is_hidden(reader, before, listed, rules)
    if isinstance(hidden, Doubt):
        return hidden
    may_lack = [Reason(Code.F9, _NOBODY_REQUIRED)] if hidden else []
    if rules.scope is not None:
        outsiders = outsiders_of(reader, before.brokers, rules.scope, counted)
        if not everyone or outsiders:
            text = f"this user may only describe groups of {rules.scope}*: name those that must have read this topic"
            may_lack.append(Reason(Code.F8, f"{text} (groups.require)"))
        counted = tuple(group for group in counted if group.name not in outsiders)
        listed = [group for group in listed if group.name not in outsiders]  # seen before, such a group is gone (F6)
    keys = frozenset(group_key(group.kind, group.name) for group in listed if not is_outside(group.name))
    return Listing(keys, counted, tuple(may_lack), everyone)


def _counts(group: ListedGroup, rules: GroupRules) -> bool:
    """Return whether the policy counts a group (F1)."""
    return not matches(rules.ignore, group.name) and (group.kind != "share" or rules.share == "count")


def _is_hidden(
    reader: ClusterReader, before: ClusterMetadata, listed: Collection[ListedGroup], rules: GroupRules
) -> bool | Doubt:
    """Return whether the provider hides the offsets topic; a doubt if that is unknown, or must not be (F9).

    A broker that hides it, or a dead coordinator, may list no group either.
    """
    if OFFSETS_TOPIC in before.topics:
        return False
    now = reader.metadata([OFFSETS_TOPIC])
    if OFFSETS_TOPIC in now.topics:
        return Doubt(Reason(Code.F9, _COORDINATORS_HIDDEN), "once")
    hidden = bool(listed) or OFFSETS_TOPIC not in now.missing
    return Doubt(Reason(Code.F9, _COORDINATORS_HIDDEN), "no") if hidden and not rules.offsets_hidden else hidden


def scope_doubt(
    reader: ClusterReader, brokers: Collection[int], scope: str, listed: Collection[ListedGroup]
) -> Doubt | None:
    """Return why groups of a scope may be missing from a listing, None if this user may describe all of them (F8).

    Without any group nothing is asked: where there is no offsets topic yet, that would create it.
    """
    grant = grant_line("Describe", "group", scope or "*", prefixed=scope != "")
    again: Literal["no", "while patience lasts"] = "no"
    if not listed:
        text = (
            f"no group that counts is listed, so the right to describe {scope}* (groups.scope) cannot be checked. Wait "
            f"for the first group. If groups exist, grant it: {grant}"
        )
    elif (rights := reader.group_rights([absent := f"{scope}{_NO_GROUP}"], brokers)[absent]) == {True}:
        return None
    elif False in rights:
        text = (
            f"this user may not describe every group of {scope}* (groups.scope), so brokers leave some out; grant it: "
            f"{grant}"
        )
    else:
        text = f"whether this user may describe every group of {scope}* (groups.scope) could not be asked: run again"
        again = "while patience lasts"
    return Doubt(Reason(Code.F8, text), again)


def outsiders_of(
    reader: ClusterReader, brokers: Collection[int], scope: str, counted: Sequence[ListedGroup]
) -> frozenset[str]:
    """Return the groups outside ``scope`` that no broker lets this user describe: they count for nothing (F3, F8)."""
    outside = [one.name for one in counted if not one.name.startswith(scope)]
    rights = reader.group_rights(outside, brokers) if outside else {}
    return frozenset(name for name, some in rights.items() if some == {False})


def changed_since(reader: ClusterReader, before: ClusterMetadata, rules: GroupRules, listing: Listing) -> Doubt | None:
    """Return why a listing was incomplete after all, else None. Call it once every commit has been read (F8, F9).

    Raises:
        BrokerError: no broker answered.
    """
    if (moved := _moved(reader, before)) is not None:
        return moved
    if listing.everyone:
        everyone = reader.may_describe_cluster(before.brokers, _LISTING_PATIENCE_S)
        return None if everyone else Doubt(Reason(Code.F8, _SEEN_INCOMPLETE), "no")
    return None if rules.scope is None else scope_doubt(reader, before.brokers, rules.scope, listing.counted)


def _moved(reader: ClusterReader, before: ClusterMetadata) -> Doubt | None:
    """Return that some broker names other brokers or coordinators than ``before``: one of them does not know (F9)."""
    known = reader.metadata_of_each(before.brokers, [OFFSETS_TOPIC])
    if all((one.brokers, _offsets_leaders(one)) == (before.brokers, _offsets_leaders(before)) for one in known):
        return None
    return Doubt(Reason(Code.F9, _COORDINATORS_MOVED), "while patience lasts")


def _left(reader: ClusterReader, deadline: float) -> float:
    return max(0.0, deadline - reader.clock.monotonic())


def read_groups(
    reader: ClusterReader,
    counted: Sequence[ListedGroup],
    fold: FloorFold,
    recall: Recall,
    patience_s: float,
    progress: Progress = silent,
    listener: CommitListener | None = None,
) -> None:
    """Read these groups' members and commits into the fold. ``counted`` may be any slice of those that count."""
    deadline, rules = reader.clock.monotonic() + patience_s, recall.rules
    _fail_unreadable(counted, fold)
    honest = [group for group in counted if not is_outside(group.name)]
    keys = {group.name: group_key(group.kind, group.name) for group in honest}
    reads = _members(reader, [group for group in honest if _reads_members(group, rules)], fold.topics, patience_s)
    shares = [group.name for group in honest if group.kind == "share"]
    others = [group.name for group in honest if group.kind in ("classic", "consumer", "streams")]
    for one in reader.read_pending(others, fold.counts, _left(reader, deadline)):
        fold.fail(keys[one.group], f"an offset is pending in a transaction: {one.text}", one.topics)
    add = adding(progress, "committed offsets", len(others) + len(shares))

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        add(1)
        key, doubted = keys[commits.group], frozenset[str]()
        if isinstance(commits, CommitsUnknown):
            fold.fail(key, commits.text, commits.topics)
            doubted = commits.topics or doubted
        if isinstance(members := reads.get(commits.group, frozenset()), str):  # of two doubts the wider one counts
            fold.fail(key, members, None)
            members = frozenset()
        known = commits.read if isinstance(commits, CommitsUnknown) else commits
        if known is None:
            return
        stale = matches(rules.stale_epochs, known.group)
        topics = recall.without_stale_epochs(key, known.topics) if stale else known.topics
        # A doubt about some topics changes nothing about the others. What was read counts once the group is gone (F6).
        recalled = recall.saw(key, topics, doubted - topics.keys())
        fold.add(key, topics, members - doubted, recalled, known.no_position)
        if listener is not None and not doubted:
            listener(GroupCommits(key, topics))

    if shares:
        reader.read_share_offsets(shares, on_commits)
    reader.read_commits(others, on_commits, _left(reader, deadline))


def _fail_unreadable(counted: Sequence[ListedGroup], fold: FloorFold) -> None:
    """Fold in the groups that no request can read (F3)."""
    for group in counted:
        if is_outside(group.name):  # not read, so that its commits are not remembered as another consumer's
            fold.fail(plain_name(group.name), "its id begins with a control character", None)
        elif group.kind == "unknown":
            fold.fail(group.name, "this kretain does not know the type of this group", None)


def _members(
    reader: ClusterReader, groups: Sequence[ListedGroup], topics: Collection[str], patience_s: float
) -> dict[str, frozenset[str] | str]:
    reads: dict[str, frozenset[str] | str] = {}

    def on_members(name: str, found: MembersRead | RequestFailedError) -> None:
        if isinstance(before := reads.get(name, frozenset()), str):
            return
        if isinstance(found, RequestFailedError):
            hint = "; to count it by its commits only: groups.by.commits" * isinstance(found, MembersUnknownError)
            reads[name] = f"{found}{hint}"
            return
        names = {one for one in found if isinstance(one, str)}
        try:
            for pattern in [compiled(f"{REGEX}{one.pattern}") for one in found if isinstance(one, TopicRegex)]:
                names.update(topic for topic in topics if pattern.fullmatch(topic))
        except PatternError as error:
            reads[name] = f"its members subscribe by {error}"
        else:
            reads[name] = before | names

    reader.describe_members(groups, on_members, patience_s)
    return reads


def _reads_members(group: ListedGroup, rules: GroupRules) -> bool:
    """Return whether to ask what members read: other types (Connect, registries) count by commits, if any (F2)."""
    if matches(rules.by_commits, group.name):
        return False
    return group.may_have_members and (
        group.kind in ("consumer", "streams", "share")
        or (group.kind == "classic" and group.protocol_type in ("consumer", ""))
    )


def _offsets_leaders(metadata: ClusterMetadata) -> dict[int, tuple[int | None, int]]:
    topic = metadata.topics.get(OFFSETS_TOPIC)
    return {} if topic is None else {n: (one.leader, one.leader_epoch) for n, one in topic.partitions.items()}


def _without_leader(metadata: ClusterMetadata) -> Reason | None:
    """Return which coordinators' partitions no broker leads that will be asked to list its groups; None if none is."""
    leaders = _offsets_leaders(metadata)
    numbers = range(max(leaders, default=0) + 1) if OFFSETS_TOPIC in metadata.topics else ()
    if not (offline := [one for one in numbers if one not in leaders or leaders[one][0] not in metadata.brokers]):
        return None
    named = ", ".join(f"{OFFSETS_TOPIC}-{partition}" for partition in offline[:3])
    more = f" and {len(offline) - 3} more" if len(offline) > 3 else ""
    return Reason(
        Code.F9, f"{named}{more} has no leader: groups that it coordinates vanish from listings; bring its brokers back"
    )


def tell_epochs(fold: FloorFold, ends: EpochEnds) -> None:
    """Tell the fold where the leader epochs of commits end (F5, F6)."""
    for tp, epoch in fold.epochs_to_check():
        match ends.get((tp, epoch)):
            case Found(offset):
                fold.at(*tp).ends[epoch] = offset
            case NotFound():
                fold.at(*tp).ends[epoch] = None
            case RequestFailedError() as error:
                fold.at(*tp).ends[epoch] = Unknown.because(
                    Code.F5, f"the end of leader epoch {epoch} could not be read: {error}"
                )


def misnamed_groups(policy: Policy, reader: ClusterReader, memory: Ledger, now_ms: int) -> list[str]:
    """Return notes on names of groups that do not exist, each with a similar name.

    Return none if the policy names no groups, or if not every group can be listed (F8). A group that is remembered
    counts (F6), so its name is no mistake.
    """
    if not groups_not_there(policy, ()):  # it names none
        return []
    try:
        if not reader.may_describe_cluster(brokers := reader.brokers()):
            return []
        listed = {group.name for group in reader.list_groups(brokers)}
    except BrokerError:
        return []
    gone = {name for name, _seen_ms, _rows in memory.gone_groups(listed, now_ms - policy.groups.remember_ms)}
    return groups_not_there(policy, listed | gone)
