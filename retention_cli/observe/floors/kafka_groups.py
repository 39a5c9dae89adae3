"""Read the floors that Kafka's own groups set: list, describe and read them in the safe order (F1–F5, F8, F9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError, RequestFailedError
from retention_cli.brokers.groups import ListedGroup, MembersRead, MembersUnknownError, TopicRegex
from retention_cli.brokers.log_offsets import Answer, Found, NotFound
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.commands import grant_line
from retention_cli.core.consumers import group_key, is_outside, plain_name
from retention_cli.core.model import Reason, TopicPartition, Unknown
from retention_cli.core.progress import Progress, silent
from retention_cli.memory.interface import Memory, NoMemory
from retention_cli.memory.lineage import EpochEnds
from retention_cli.observe.floors.fold import Both, FloorFold, FloorSink, TopicScope
from retention_cli.observe.floors.latest import NOBODY, Latest
from retention_cli.observe.floors.outside import Read, fold_outside
from retention_cli.observe.floors.recall import Recall
from retention_cli.observe.floors.standing import EpochEnd
from retention_cli.policy.model import matches
from retention_cli.policy.patterns import REGEX, PatternError, compiled
from retention_cli.policy.settings import GroupRules

CommitListener = Callable[[GroupCommits], None]
"""Called with each counted group's commits, which the fold does not keep."""
BeginRows = Callable[[Mapping[str, int], Latest], FloorSink]
"""Returns a second sink for one reading of all consumers, given each topic's partition count and the groups that start
at the end (F2). A reading that is repeated begins another one, and the last is the one that counts."""

_AGAIN_AFTER_S: Final = 0.5
_LISTING_PATIENCE_S: Final = 2.0
_COORDINATORS_HIDDEN: Final = (
    f"{OFFSETS_TOPIC} can't be described, so offline coordinators would go unnoticed: grant DESCRIBE on it, or, where "
    f"the provider hides it, set groups.offsets.topic: hidden"
)
_NOBODY_REQUIRED: Final = (
    f"{OFFSETS_TOPIC} is hidden, so groups may be missing from the listing: name those that must have read this topic "
    f"(groups.require)"
)
_COORDINATORS_MOVED: Final = f"the leaders of {OFFSETS_TOPIC} changed each time that groups were read: run again"
_SEEN_INCOMPLETE: Final = (
    "this user lacks DESCRIBE on the cluster, so brokers leave groups out of their listing without an error; "
    f"grant it: {grant_line('Describe', 'cluster')}"
)


def read_group_floors(
    reader: ClusterReader,
    scopes: Mapping[str, TopicScope],
    rules: GroupRules,
    metadata: ClusterMetadata,
    *,
    patience_s: float | None = None,
    progress: Progress = silent,
    listener: CommitListener | None = None,
    begin_rows: BeginRows | None = None,
    memory: Memory | None = None,
    now_ms: int = 0,
    outside: Sequence[Read] | None = None,
    is_mine: Callable[[str], bool] = lambda _group: True,
) -> FloorFold:
    """Return the fold over every group that counts. What could not be read is unknown in it, with its reason.

    Args:
        reader: the cluster.
        scopes: the managed topics.
        rules: which groups count.
        metadata: read just now; the first of the two reads that F9 compares.
        patience_s: how long to wait for coordinators that move and offsets that are unstable.
        progress: called with the number of groups read.
        listener: called with each group's commits.
        begin_rows: makes a second sink, which gets all that the fold gets.
        memory: remembers each group, and recalls those that are gone (F6).
        now_ms: our wall clock (Unix ms), for the memory.
        outside: what the sources of other consumers gave, if they were read elsewhere (F7).
        is_mine: returns whether this fold is to have the group with a name: others may be in another one.
    """
    deadline = reader.clock.monotonic() + (reader.timeout_s if patience_s is None else patience_s)
    recall = Recall(memory or NoMemory(), rules, now_ms)
    before, attempts = metadata, 0
    while True:
        attempts += 1
        fold, sink, doubt = _read_once(
            reader, scopes, rules, before, deadline, progress, listener, begin_rows, recall, is_mine
        )
        if doubt is None or not doubt.allows_another(attempts, late=reader.clock.monotonic() > deadline):
            break
        reader.clock.sleep(_AGAIN_AFTER_S)
        before = reader.metadata([OFFSETS_TOPIC])
    if doubt is not None:
        sink.fail_all(doubt.reason)
    fold_outside(sink, rules.sources, scopes, metadata, recall, reader, listener, outside)
    return fold


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

    ``may_lack``: groups may be missing, as the provider hides the offsets topic (F9).
    """

    keys: frozenset[str]
    counted: tuple[ListedGroup, ...]
    may_lack: bool = False

    def tell(self, sink: FloorSink, scopes: Mapping[str, TopicScope]) -> None:
        """Make the floors unknown that this listing can't vouch for: where it may lack groups and none is required."""
        if self.may_lack:
            unguarded = [name for name, one in scopes.items() if not one.require]
            sink.fail_all(Reason("F9", _NOBODY_REQUIRED), unguarded)

    def latest(self, partitions: Mapping[str, int], recall: Recall) -> Latest:
        """Return the groups that start at the end if they have no commit (F2): no share groups.

        A share group reads new partitions of a topic that it already knows from 0. ``partitions`` are the numbers of
        those that the managed topics have: which are younger than which group is remembered from run to run.
        """
        keys = [group_key(group.kind, group.name) for group in self.counted]
        ages = recall.memory.ages(partitions, keys, recall.now_ms)
        named = (
            key
            for key, group in zip(keys, self.counted, strict=True)
            if group.kind != "share" and matches(recall.rules.latest, group.name)
        )
        return Latest(frozenset(named), ages)


def list_counted(reader: ClusterReader, rules: GroupRules, before: ClusterMetadata, deadline: float) -> Listing | Doubt:
    """List the groups, or return why the listing is incomplete (F8, F9). ``before`` is metadata read just now.

    Raises:
        BrokerError: a broker did not list its groups.
    """
    if not reader.may_describe_cluster():
        return Doubt(Reason("F8", _SEEN_INCOMPLETE), "no")
    if (leaderless := _without_leader(before)) is not None:
        return Doubt(leaderless, "once")  # an election takes a moment, an offline broker hours
    # A broker that died is listed until the controller notices: ask briefly, then read the brokers again.
    listed = reader.list_groups(before.brokers, min(_LISTING_PATIENCE_S, _left(reader, deadline)))
    counted = tuple(
        group
        for group in listed
        if not matches(rules.ignore, group.name) and (group.kind != "share" or rules.share == "count")
    )
    hidden = False
    if OFFSETS_TOPIC not in before.topics:  # a broker that hides it, or a dead coordinator, lists no group either
        now = reader.metadata([OFFSETS_TOPIC])
        if OFFSETS_TOPIC in now.topics:
            return Doubt(Reason("F9", _COORDINATORS_HIDDEN), "once")
        hidden = bool(counted) or OFFSETS_TOPIC not in now.missing
        if hidden and not rules.offsets_hidden:
            return Doubt(Reason("F9", _COORDINATORS_HIDDEN), "no")
    return Listing(frozenset(group_key(group.kind, group.name) for group in listed), counted, hidden)


def changed_since(reader: ClusterReader, before: ClusterMetadata) -> Doubt | None:
    """Return why a listing was incomplete after all, else None. Call it once every commit has been read (F8, F9).

    Raises:
        BrokerError: no broker answered.
    """
    if _offsets_leaders(reader.metadata([OFFSETS_TOPIC])) != _offsets_leaders(before):
        return Doubt(Reason("F9", _COORDINATORS_MOVED), "while patience lasts")
    if not reader.may_describe_cluster():
        return Doubt(Reason("F8", _SEEN_INCOMPLETE), "no")
    return None


def not_listed(error: BrokerError) -> Doubt:
    """Return the doubt about groups that could not be listed (F9)."""
    return Doubt(Reason("F9", f"the consumer groups could not be listed: {error}"), "while patience lasts")


def _read_once(
    reader: ClusterReader,
    scopes: Mapping[str, TopicScope],
    rules: GroupRules,
    before: ClusterMetadata,
    deadline: float,
    progress: Progress,
    listener: CommitListener | None,
    begin_rows: BeginRows | None,
    recall: Recall,
    is_mine: Callable[[str], bool],
) -> tuple[FloorFold, FloorSink, Doubt | None]:
    """Read every group between two checks of our rights (F8) and of the coordinators' leaders (F9).

    The sink is the fold, with the second sink if there is one.
    """
    topics = {name: len(one.leader_epochs) for name, one in scopes.items()}
    fold, sink = _begun(scopes, NOBODY, begin_rows)
    try:
        listing = list_counted(reader, rules, before, deadline)
        if isinstance(listing, Doubt):
            return fold, sink, listing
        listing = replace(listing, counted=tuple(one for one in listing.counted if is_mine(one.name)))
        fold, sink = _begun(scopes, listing.latest(topics, recall), begin_rows)
        listing.tell(sink, scopes)
        read_groups(reader, listing.counted, topics, sink, _left(reader, deadline), progress, listener, recall)
        if (doubt := changed_since(reader, before)) is not None:
            return fold, sink, doubt
        recall.add_gone(sink, listing.keys)
    except BrokerError as error:
        return fold, sink, not_listed(error)
    return fold, sink, None


def _begun(
    scopes: Mapping[str, TopicScope], latest: Latest, begin_rows: BeginRows | None
) -> tuple[FloorFold, FloorSink]:
    fold = FloorFold(scopes, latest)
    if begin_rows is None:
        return fold, fold
    return fold, Both(fold, begin_rows({name: len(one.leader_epochs) for name, one in scopes.items()}, latest))


def _left(reader: ClusterReader, deadline: float) -> float:
    return max(0.0, deadline - reader.clock.monotonic())


def read_groups(
    reader: ClusterReader,
    counted: Sequence[ListedGroup],
    topics: Mapping[str, int],
    fold: FloorSink,
    patience_s: float,
    progress: Progress,
    listener: CommitListener | None,
    recall: Recall,
) -> None:
    """Read these groups' members and commits into the fold. ``counted`` may be any slice of those that count.

    ``topics`` are the managed ones, with their partition counts.
    """
    deadline, rules = reader.clock.monotonic() + patience_s, recall.rules
    honest = [group for group in counted if not is_outside(group.name)]
    for group in counted:
        if is_outside(group.name):  # not read, so that its commits are not remembered as another consumer's
            fold.fail(plain_name(group.name), "its id begins with a control character", None)
        elif group.kind == "unknown":
            fold.fail(group.name, "a group of a type that this kretain does not know", None)
    keys = {group.name: group_key(group.kind, group.name) for group in honest}
    reads: dict[str, frozenset[str]] = {}
    unreadable: dict[str, str] = {}

    def on_members(name: str, found: MembersRead | RequestFailedError) -> None:
        if isinstance(found, RequestFailedError):
            hint = "; to count it by its commits alone: groups.by.commits" * isinstance(found, MembersUnknownError)
            unreadable[name] = f"{found}{hint}"
            return
        try:
            reads[name] = reads.get(name, frozenset()) | _by_name(found, topics)
        except PatternError as error:
            unreadable[name] = f"its members subscribe by {error}"

    asked = [group for group in honest if _is_described(group) and not matches(rules.by_commits, group.name)]
    reader.describe_members(asked, on_members, patience_s)
    shares = [group.name for group in honest if group.kind == "share"]
    read = [group.name for group in honest if group.kind in ("classic", "consumer", "streams")]
    for one in reader.read_pending(read, topics, _left(reader, deadline)):
        fold.fail(keys[one.group], f"an offset is pending in a transaction: {one.text}", one.topics)
    done = 0

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        nonlocal done
        done += 1
        progress("committed offsets", done, len(read) + len(shares))
        name, key = commits.group, keys[commits.group]
        doubted, known = frozenset[str](), commits
        if isinstance(known, CommitsUnknown):
            fold.fail(key, known.text, known.topics)
            doubted = known.topics or doubted
        if name in unreadable:  # of two doubts the wider one counts
            fold.fail(key, unreadable[name], None)
        if isinstance(known, CommitsUnknown):
            if known.read is None:
                return
            known = known.read  # a doubt about some topics changes nothing about the others
        topics = recall.without_stale_epochs(key, known.topics) if matches(rules.stale_epochs, name) else known.topics
        recall.complete(fold, key, topics, doubted)
        if known.no_position:
            fold.no_position(key, known.no_position)
        fold.add(key, topics, reads.get(name, frozenset()) - doubted)
        if listener is not None and not doubted:
            listener(GroupCommits(key, topics))

    progress("committed offsets", 0, len(read) + len(shares))
    if shares:
        reader.read_share_offsets(shares, on_commits)
    reader.read_commits(read, on_commits, _left(reader, deadline))


def _by_name(found: MembersRead, topics: Collection[str]) -> frozenset[str]:
    """Return the topics that members read, with those of ``topics`` that a regular expression of theirs matches.

    Raises:
        PatternError: a regular expression can't be read.
    """
    names = {one for one in found if isinstance(one, str)}
    for one in found:
        if isinstance(one, TopicRegex):
            pattern = compiled(f"{REGEX}{one.pattern}")
            names.update(topic for topic in topics if pattern.fullmatch(topic))
    return frozenset(names)


def _is_described(group: ListedGroup) -> bool:
    """Return whether to describe a group: other types (Connect, schema registries) count by commits, if any (F2)."""
    if not group.may_have_members:
        return False
    return group.kind in ("consumer", "streams", "share") or (
        group.kind == "classic" and group.protocol_type in ("consumer", "")
    )


def _offsets_leaders(metadata: ClusterMetadata) -> dict[int, tuple[int | None, int]]:
    topic = metadata.topics.get(OFFSETS_TOPIC)
    return {} if topic is None else {n: (one.leader, one.leader_epoch) for n, one in topic.partitions.items()}


def _without_leader(metadata: ClusterMetadata) -> Reason | None:
    """Return which coordinators' partitions no broker leads that will be asked to list its groups; None if none is."""
    leaders = _offsets_leaders(metadata)
    offline = sorted(partition for partition, (leader, _) in leaders.items() if leader not in metadata.brokers)
    if not offline:
        return None
    named = ", ".join(f"{OFFSETS_TOPIC}-{partition}" for partition in offline[:3])
    more = f" and {len(offline) - 3} more" if len(offline) > 3 else ""
    return Reason(
        "F9", f"{named}{more} has no leader: groups that it coordinates vanish from listings; bring its brokers back"
    )


class EpochChecks(Protocol):
    """Lists leader epochs of commits, and records their ends."""

    def epochs_to_check(self) -> list[tuple[TopicPartition, int]]:
        """Return the epochs that are not the partition's current one."""
        ...

    def epoch_ends_at(self, tp: TopicPartition, epoch: int, end: EpochEnd) -> None:
        """Record where one ends, None if the leader does not know it."""
        ...

    def cut_at(self, tp: TopicPartition, cut: int, epoch: int | None) -> None:
        """Record where the log was cut since the last pass, and which epoch ended there."""
        ...

    def cut_untold(self, tp: TopicPartition) -> None:
        """Record that it is unknown whether the log was cut."""
        ...


def tell_epochs(fold: EpochChecks, ends: EpochEnds) -> None:
    """Tell the fold where the leader epochs of commits end (F5, F6)."""
    for tp, epoch in fold.epochs_to_check():
        if (answer := ends.get((tp, epoch))) is not None:
            fold.epoch_ends_at(tp, epoch, end_of_epoch(epoch, answer))


def end_of_epoch(epoch: int, answer: Answer) -> EpochEnd:
    """Return a leader's answer as an epoch's end: None if it does not know the epoch, unknown if it failed."""
    if isinstance(answer, Found):
        return answer.offset
    if isinstance(answer, NotFound):
        return None
    return Unknown.because("F5", f"the end of leader epoch {epoch} could not be read: {answer}")
