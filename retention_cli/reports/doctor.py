"""Checks of permissions, broker versions and the clock: what each command lacks, and what kind of cluster this is.

Host names and the cluster id show the kind, as far as they do (docs/platforms.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

from retention_cli.audit.log import AuditLog
from retention_cli.brokers.commits import CommitsUnknown, GroupCommits
from retention_cli.brokers.errors import BrokerError
from retention_cli.brokers.metadata import OFFSETS_TOPIC, ClusterMetadata
from retention_cli.brokers.reader import RESTORE, ClusterReader
from retention_cli.brokers.security.settings import NO_KERBEROS, ConnectionSettings
from retention_cli.core.consumers import plain_name
from retention_cli.core.state_dir import StateError, cluster_folder
from retention_cli.core.units import count, some_of
from retention_cli.observe.floors.kafka_groups import outsiders_of, scope_doubt
from retention_cli.observe.floors.outside import checked, describe, read_sources
from retention_cli.observe.floors.sources.interface import Reach
from retention_cli.policy.live import POLICY_TOPIC
from retention_cli.policy.model import Policy, matches
from retention_cli.policy.settings import GroupRules
from retention_cli.reports.groups import read_positions
from retention_cli.state.own_topics import PROTECTED_TOPIC, STATE_TOPIC, StateTopic, topic_ranges

Verdict = Literal["good", "limited", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``missing`` keeps ``commands`` from working, ``limited`` makes them hold more."""

    name: str
    verdict: Verdict
    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Platform:
    """What a cluster seems to be. ``sign`` is what shows it; ``docs`` is its section.

    ``kafka_apis`` is the release of Apache Kafka whose APIs it offers, None if it does not run Kafka's code.
    """

    name: str
    sign: str
    docs: str
    kafka_apis: str | None

    def __str__(self) -> str:
        apis = "" if self.kafka_apis is None else f", with the APIs of Kafka {self.kafka_apis}"
        return f"{self.name}{apis} ({self.sign}): see {self.docs}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks, what kind of cluster this is, and the verdict for each command."""

    cluster_id: str
    bootstrap: str
    platform: Platform
    checks: Sequence[Check]

    def commands(self) -> dict[str, Verdict]:
        """Return the worst verdict per command; those that few policies need are left out if nothing is missing."""
        worst: dict[str, Verdict] = dict.fromkeys(_COMMANDS, "good")
        for check in self.checks:
            for command in check.commands:
                worst[command] = max(worst.get(command, "good"), check.verdict, key=get_args(Verdict).index)
        return worst


_COMMANDS: Final = ("plan", "trim", "offsets", "explain", "groups")
_DECIDE: Final = ("plan", "trim", "explain")
_MOVE: Final = ("policy set",)
_INIT: Final = ("cluster init",)
_LIVE: Final = (*_DECIDE, "policy list", *_MOVE)
_PROTECT: Final = ("protect",)
_FLOORS: Final = ("plan", "trim", "offsets", "explain")

_CALLS: Final[tuple[tuple[int, int, str, tuple[str, ...], Verdict, str], ...]] = (
    (3, 10, "Metadata 10", _COMMANDS, "missing", "topic ids: brokers before 2.8 can't tell a recreated topic"),
    (9, 7, "OffsetFetch 7", _COMMANDS, "missing", "stable offsets: without them kretain misses pending commits"),
    (21, 0, "DeleteRecords 0", ("trim",), "missing", "trimming itself"),
    (60, 0, "DescribeCluster 0", _COMMANDS, "missing", "whether the list of groups is complete (F8)"),
    (
        2,
        7,
        "ListOffsets 7",
        _DECIDE,
        "limited",
        "MAX_TIMESTAMP: without it more look-ups read records",
    ),
    (
        23,
        2,
        "OffsetForLeaderEpoch 2",
        _DECIDE,
        "limited",
        "whether logs were cut: without it commits with a leader epoch hold (F5)",
    ),
    (32, 1, "DescribeConfigs 1", _DECIDE, "missing", "topics' settings: without them every topic holds (G5)"),
    (44, 0, "IncrementalAlterConfigs 0", _PROTECT, "limited", "raising topics' retention (P1)"),
    (10, 0, "FindCoordinator 0", _COMMANDS, "missing", "which broker has a group's offsets"),
    (15, 0, "DescribeGroups 0", _COMMANDS, "limited", "what groups read: without it one with members holds (F3)"),
    (16, 0, "ListGroups 0", _COMMANDS, "missing", "which groups there are: without it every floor is unknown (F9)"),
    (16, 4, "ListGroups 4", (), "limited", "group states: without them every group is described"),
    (35, 1, "DescribeLogDirs 1", (), "limited", "sizes on disk: without them plans show no bytes"),
    (1, 4, "Fetch 4", _DECIDE, "limited", "reading records: without it what needs them holds (R2, look-ups)"),
    (0, 3, "Produce 3", (*_MOVE, "restore"), "missing", "writing, and the client reads records only beside it"),
    (22, 0, "InitProducerId 0", (*_MOVE, "restore"), "missing", "writing each record once"),
    *(
        (key, 0, f"{name} 0", ("restore",), "missing", "its transactions and its group")
        for key, name in RESTORE.items()
        if key > 22
    ),
)
"""API key, required version, its name, the commands that need it, the verdict without it, and what it is for."""


def diagnose(
    reader: ClusterReader,
    state_dir: Path,
    topics: Callable[[str], bool],
    policy: Policy | None = None,
    *,
    named: bool = False,
) -> Diagnosis:
    """Check everything, change nothing.

    Args:
        reader: connected.
        state_dir: the folder of the audit log and the lock.
        topics: returns whether a topic is of interest.
        policy: the policy, which says whether kretain's own topics are needed; None without one.
        named: the caller asked for certain topics, so that it is a failure if there are none.

    Raises:
        BrokerError: not even metadata could be read.
    """
    metadata = reader.metadata()
    platform = platform_of(reader.hosts(), metadata.cluster_id, reader.release())
    checks = [
        Check(
            "cluster",
            "good",
            f"{metadata.cluster_id}: {count(len(metadata.brokers), 'broker')}, "
            f"{count(len(metadata.topics), 'topic')} seen",
        ),
        Check("platform", "good", str(platform)),
        _connection(reader.settings),
        *versions(reader),
        *_topics(reader, topics, named=named),
        *_groups(reader, metadata, GroupRules() if policy is None else policy.groups),
        *_sources(reader, metadata, policy),
        *_state(state_dir, metadata.cluster_id),
        *_kretain_topics(reader, policy),
        *_protection(reader, policy),
    ]
    return Diagnosis(metadata.cluster_id, reader.settings.bootstrap, platform, checks)


def _kretain_topics(reader: ClusterReader, policy: Policy | None) -> Iterable[Check]:
    """Check kretain's own topics, if the policy needs them, and the clock, which one of them provides (G8)."""
    allowed = reader.topic_operations() if policy is not None else {}
    if policy is not None and policy.any_live:
        held = "topics that ask for it are held"
        try:
            topic_ranges(reader, POLICY_TOPIC)
        except BrokerError as error:
            yield Check("live settings", "missing", f"{error}; {held}", _LIVE)
        else:
            yield _may(allowed, POLICY_TOPIC, "READ", "live settings", held, _LIVE)
            yield _may(allowed, POLICY_TOPIC, "WRITE", "live settings", "nothing can be set there", _MOVE)
            yield _writers(reader, POLICY_TOPIC, "live settings", "set what the policy marks cluster")
        yield _can_make(reader, allowed, POLICY_TOPIC)
    if policy is None or policy.state == "local":
        yield Check("clock", "limited", "not verified; using this machine's clock (G8), so keep NTP running")
        return
    yield _can_make(reader, allowed, STATE_TOPIC)
    try:
        StateTopic(reader).check()
    except BrokerError as error:
        yield Check("memory", "missing", f"{error}; every floor is unknown (F6)", _FLOORS)
    else:
        yield _may(allowed, STATE_TOPIC, "READ", "memory", "every floor is unknown (F6)", _FLOORS)
        unshared = "what a run learns stays on this machine"
        yield _may(allowed, STATE_TOPIC, "WRITE", "memory", unshared, ("plan", "offsets", "explain"), "limited")
        yield _may(allowed, STATE_TOPIC, "WRITE", "clock", "the brokers' time is unknown, rules hold (G8)", ("trim",))
        yield _writers(reader, STATE_TOPIC, "memory", "make kretain forget groups (F6)")


def _protection(reader: ClusterReader, policy: Policy | None) -> Iterable[Check]:
    """Check what ``kretain protect`` needs, if the policy has topics to protect (P1, P5)."""
    if policy is None or not any("retention.until.consumed" in one.values for one in policy.entries):
        return
    allowed = reader.topic_operations()
    protects = {
        topic: operations
        for topic, operations in allowed.items()
        if (s := policy.settings_for(topic)) is not None and s.until_consumed is not None
    }
    lacking = Check("protection", "missing", "its retention can't be raised (P1)", _PROTECT)
    yield _may_on_all(protects, "ALTER_CONFIGS", lacking, "to protect")
    for operation in ("READ", "WRITE", "DESCRIBE_CONFIGS"):
        yield _may(
            allowed, PROTECTED_TOPIC, operation, "protection", "what protect changes can't be remembered (P5)", _PROTECT
        )
    yield _can_make(reader, allowed, PROTECTED_TOPIC)
    yield _writers(reader, PROTECTED_TOPIC, "protection", "choose what kretain restores settings to (P5)")


def _can_make(reader: ClusterReader, allowed: Mapping[str, frozenset[str]], topic: str) -> Check:
    """Return a check of what ``kretain cluster init`` needs for a topic, whether or not that exists."""
    if topic in allowed:
        return _may(allowed, topic, "DESCRIBE_CONFIGS", "own topics", "its settings can't be checked", _INIT)
    try:
        may = reader.may_create(topic)
    except BrokerError as error:
        return Check("own topics", "limited", f"whether {topic} may be created is unknown: {error}", _INIT)
    return {
        "yes": Check("own topics", "good", f"CREATE on {topic}: kretain cluster init can create it"),
        "no": Check("own topics", "missing", f"no CREATE on {topic}: kretain cluster init can't create it", _INIT),
        "there": Check("own topics", "missing", f"no DESCRIBE on {topic}, which exists", (*_INIT, *_MOVE)),
    }[may]


def _writers(reader: ClusterReader, topic: str, name: str, power: str) -> Check:
    """Return a check of who else may write to one of kretain's topics (docs/security.md)."""
    try:
        found = reader.writers(topic)
    except BrokerError as error:
        return Check(
            name,
            "limited",
            f"who may write to {topic} could not be read ({error}): anyone who may can {power}",
        )
    if found.anybody:
        return Check(name, "limited", f"the brokers have no authorizer: every user may write to {topic}, so {power}")
    if not (others := [one for one in found.principals if one != f"User:{reader.settings.username}"]):
        return Check(name, "good", f"no other user has an ACL to write to {topic}")
    return Check(name, "limited", f"{some_of(others, 5)} may write to {topic}, and so {power}")


def _may(
    allowed: Mapping[str, frozenset[str]],
    topic: str,
    operation: str,
    name: str,
    without: str,
    commands: tuple[str, ...],
    verdict: Verdict = "missing",
) -> Check:
    if operation in allowed.get(topic, ()):
        return Check(name, "good", f"{operation} on {topic}")
    return Check(name, verdict, f"no {operation} on {topic}: {without}", commands)


def _may_on_all(allowed: Mapping[str, frozenset[str]], operation: str, otherwise: Check, which: str) -> Check:
    """Return a check of an operation on all of some topics; ``otherwise`` has the text for those that lack it."""
    if lacking := sorted(name for name, operations in allowed.items() if operation not in operations):
        return replace(otherwise, text=f"no {operation} on {some_of(lacking)}: {otherwise.text}")
    return Check(otherwise.name, "good", f"{operation} on every topic {which} ({len(allowed):,})")


def _connection(settings: ConnectionSettings) -> Check:
    how = settings.protocol if settings.mechanism is None else f"{settings.protocol}, {settings.mechanism}"
    if settings.kerberos is not None:
        return Check("connection", "limited", f"{how}: {NO_KERBEROS}; what needs them holds", _DECIDE)
    return Check("connection", "good", how if settings.oauth is None else f"{how} ({settings.oauth.shown})")


def versions(reader: ClusterReader) -> Iterable[Check]:
    """Yield the checks whether brokers answer, and support the APIs that kretain uses."""
    answers = reader.api_versions()
    for broker, answer in answers.items():
        if isinstance(answer, BrokerError):
            yield Check("versions", "missing", f"broker {broker} did not name its APIs: {answer}", _COMMANDS)
    known = [answer for answer in answers.values() if not isinstance(answer, BrokerError)]
    lacking = [call for call in _CALLS if any(one.get(call[0], (-1, -1))[1] < call[1] for one in known)]
    for _key, _version, name, commands, verdict, purpose in lacking:
        yield Check("versions", verdict, f"a broker lacks {name} ({purpose})", commands)
    if known and not lacking:
        which = "all" if len(known) == len(answers) else "the other"
        yield Check("versions", "good", f"{which} brokers support the required APIs")


def _topics(reader: ClusterReader, wanted: Callable[[str], bool], *, named: bool) -> Iterable[Check]:
    allowed = {
        name: ops for name, ops in reader.topic_operations().items() if wanted(name) and not name.startswith("__")
    }
    if not allowed:
        text = "no topic matches, or this user lacks DESCRIBE on all of them"
        yield Check("topics", "missing" if named else "limited", text, _FLOORS)
        yield Check("topics", "limited", f"{text}: groups show no topics and no lag", ("groups",))
        return
    needs: tuple[tuple[str, Verdict, tuple[str, ...], str], ...] = (
        (
            "DESCRIBE_CONFIGS",
            "missing",
            _DECIDE,
            "cleanup.policy and retention.ms must be known, else everything holds",
        ),
        ("READ", "limited", _DECIDE, "ambiguous look-ups read records; without it those partitions hold"),
        ("DELETE", "missing", ("trim",), "DeleteRecords needs it"),
    )
    for operation, verdict, commands, purpose in needs:
        yield _may_on_all(allowed, operation, Check("topics", verdict, purpose, commands), "selected")


def _listing(reader: ClusterReader, metadata: ClusterMetadata, rules: GroupRules) -> Check:
    """Return the check whether brokers list all groups that count (F8)."""
    try:
        if reader.may_describe_cluster(metadata.brokers):
            return Check("groups", "good", "DESCRIBE on the cluster: the list of groups is complete (F8)")
        if rules.scope is None:
            text = (
                "no DESCRIBE on the cluster: brokers leave groups out, so every floor is unknown (F8) "
                "and sizes are missing"
            )
        elif (
            doubt := scope_doubt(reader, metadata.brokers, rules.scope, reader.list_groups(metadata.brokers))
        ) is not None:
            text = f"{doubt.reason.text} (F8)"
        else:
            text = f"no DESCRIBE on the cluster: only groups of {rules.scope}* are visible (groups.scope), and no sizes"
            return Check("groups", "limited", text, _COMMANDS)
    except BrokerError as error:
        text = f"{error}: the list of groups may be incomplete, so every floor is unknown (F8)"
    return Check("groups", "missing", text, _COMMANDS)


def _groups(reader: ClusterReader, metadata: ClusterMetadata, rules: GroupRules) -> Iterable[Check]:
    yield _listing(reader, metadata, rules)
    offsets = metadata.topics.get(OFFSETS_TOPIC)
    offline = 0 if offsets is None else sum(one.leader is None for one in offsets.partitions.values())
    if offline:
        text = f"{count(offline, 'partition')} of {OFFSETS_TOPIC} without a leader: every floor is unknown (F9)"
        yield Check("groups", "missing", text, _COMMANDS)
    try:
        listed = reader.list_groups(metadata.brokers)
    except BrokerError as error:
        yield Check("groups", "missing", str(error), _COMMANDS)
        return
    if listed and offsets is None:
        unseen = f"{OFFSETS_TOPIC} can't be described: kretain would miss offline coordinators"
        known = "; floors are known where groups.require names a group (groups.offsets.topic, F9)"
        text = unseen + (known if rules.offsets_hidden else ", every floor is unknown (F9)")
        yield Check("groups", "limited" if rules.offsets_hidden else "missing", text, _FLOORS)
    unreadable: dict[str, str] = {}

    def on_commits(commits: GroupCommits | CommitsUnknown) -> None:
        if isinstance(commits, CommitsUnknown):
            unreadable[commits.group] = commits.text

    counted = [group for group in listed if not matches(rules.ignore, group.name)]
    outsiders = (
        frozenset[str]() if rules.scope is None else outsiders_of(reader, metadata.brokers, rules.scope, counted)
    )
    counted = [group for group in counted if group.name not in outsiders]
    read_positions(reader, counted, on_commits)
    if unreadable:
        named, why = some_of(sorted(unreadable), 1), unreadable[min(unreadable)]
        text = f"{named}: offsets can't be read ({why}); what they may read holds (F3)"
        yield Check("groups", "missing", text, _COMMANDS)
    else:
        yield Check("groups", "good", f"{count(len(counted), 'group')}: all offsets can be read")
    if strange := sorted(group.name for group in counted if group.kind == "unknown"):
        some = ", ".join(strange[:5])
        text = f"groups of a type that this kretain does not know: {some}; every managed topic holds (F3)"
        yield Check("groups", "limited", text, _DECIDE)


def _sources(reader: ClusterReader, metadata: ClusterMetadata, policy: Policy | None) -> Iterable[Check]:
    """Read each source of consumers outside Kafka's groups (F7)."""
    sources = () if policy is None else policy.groups.sources
    consumers, failed = checked(sources, read_sources(sources, Reach(reader, metadata)), metadata.topics)
    for key, one in consumers.items():
        for topic, why in one.unreadable.items():
            yield Check("floors", "missing", f"{plain_name(key)}: {why}; held: {topic} (F3)", _FLOORS)
        some = f"{count(sum(map(len, one.rows.values())), 'partition')} of {count(len(one.rows), 'topic')}"
        yield Check("floors", "good", f"{plain_name(key)} can be read: it has positions on {some}")
    for source, why in failed.items():
        held = "every managed topic" if source.topics is None else ", ".join(source.topics)
        yield Check("floors", "missing", f"{describe(source)} can't be read: {why}; held: {held} (F3)", _FLOORS)


def _state(state_dir: Path, cluster_id: str) -> Iterable[Check]:
    folder = cluster_folder(state_dir, cluster_id)
    existing = next((one for one in (folder, *folder.parents) if one.exists()), None)
    if existing is None or not os.access(existing, os.W_OK | os.X_OK):
        yield Check(
            "state", "missing", f"{folder} can't be written: trim needs its audit log there (--state-dir)", ("trim",)
        )
        return
    try:
        runs = AuditLog(folder).runs()
    except StateError as error:
        yield Check("state", "missing", str(error), ("plan", "trim"))
    else:
        yield Check("state", "good", f"audit log in {folder}: {count(len(runs), 'run')} so far")


_HOSTS: Final = (
    ("Amazon MSK Serverless", "amazon-msk", r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"),
    ("Amazon MSK", "amazon-msk", r"\.kafka\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"),
    ("Confluent Cloud", "confluent-cloud", r"\.confluent\.cloud"),
    ("Aiven", "aiven", r"\.aivencloud\.com"),
    ("Redpanda", "redpanda", r"\.cloud\.redpanda\.com"),
    ("Azure Event Hubs", "azure-event-hubs", r"\.servicebus\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)"),
    ("Google Managed Kafka", "google-managed-kafka", r"\.managedkafka\..+\.cloud\.goog"),
    ("WarpStream", "warpstream", r"\.warpstream\.com"),
    ("StreamNative", "streamnative", r"\.snio\.cloud"),
    ("Strimzi", "strimzi", r"-kafka-(bootstrap|brokers)(\..*)?"),
)
"""A platform, its section, and how its host names end."""
_APACHE: Final = ("Apache Kafka", "no sign of a provider or another product", "apache-kafka")
_OWN_CODE: Final = ("Redpanda", "Azure Event Hubs", "WarpStream", "StreamNative")
_NEWEST: Final = (4, 3)
"""The newest release that its APIs tell apart from the one before."""


def platform_of(hosts: Iterable[str], cluster_id: str, release: tuple[int, ...] | None) -> Platform:
    """Return what kind of cluster this is; Apache Kafka if nothing says otherwise.

    Args:
        hosts: the host names of the brokers, and those that we connected to.
        cluster_id: the cluster's id.
        release: the release of Apache Kafka that the brokers' APIs match, such as (3, 9), None if that is unknown.
    """
    names = [host.lower().rstrip(".") for host in hosts]
    by_hosts = (
        (name, "by its host names", section)
        for name, section, ends in _HOSTS
        if any(re.search(f"{ends}$", host) for host in names)
    )
    by_id = ("Redpanda", "by its cluster id", "redpanda")
    name, sign, section = by_id if cluster_id.startswith("redpanda.") else next(by_hosts, _APACHE)
    apis = None
    if release is not None and name not in _OWN_CODE:
        apis = ".".join(map(str, release)) + (" or later" if release >= _NEWEST else "")
    return Platform(name, sign, f"docs/platforms.md#{section}", apis)
