"""The rights that docs/connecting.md lists, on a real authorizer: with them each command works, without any one it holds or fails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from tests.conftest import QUICK
from tests.support.advising import codes
from tests.support.client_files import properties
from tests.support.clusters import EmbeddedKafka
from tests.support.says import says
from tests.support.secured import allow
from tests.support.world import DAY, HOUR, MIB, MINUTE, Cli, World, consumed, run_cli, wait_until, written

SECRET = "acl-s3cret"
DOCS = Path(__file__).parents[3] / "docs" / "connecting.md"


@dataclass(frozen=True)
class Right:
    text: str
    operation: str
    kind: ResourceType
    name: str | None
    """None: of the topic that is managed."""
    wanted_by: frozenset[str]
    signs: tuple[str, ...]
    """What a command says without it: codes of reasons, or parts of messages."""
    exits: frozenset[int]

    def brings(self, other: Right) -> bool:
        """Whether it implies another one: READ, WRITE and DELETE bring DESCRIBE on the same topic."""
        same = self.kind == other.kind == ResourceType.TOPIC and self.name == other.name
        return same and other.operation == "DESCRIBE" and self.operation in ("READ", "WRITE", "DELETE")


def _right(text: str, wanted_by: frozenset[str], without: str) -> Right:
    operation, _, where = text.partition(" on ")
    named = re.fullmatch(r"the topic `(\w+)`", where)
    kind, name = {
        "the topics": (ResourceType.TOPIC, None),
        "the cluster": (ResourceType.BROKER, "kafka-cluster"),
        "all groups": (ResourceType.GROUP, "*"),
    }.get(where) or (ResourceType.TOPIC, named[1] if named else "?")
    assert name != "?", f"docs/connecting.md names a resource that this test does not know: {text}"
    coded = re.findall(r"`([^`]+)`", without)
    quoted = re.findall(r'"([^"]+)"', re.sub(r"`[^`]+`", "", without))
    signs = tuple(one for one in (*coded, *quoted) if not one.startswith(("policy check", "groups")))
    exits = {int(one) for one in re.findall(r"exit (\d)", without)}
    if "hold" in without or "unknown" in without or "policy check" in without or "groups`" in without:
        exits.add(0)
    return Right(text, operation, kind, name, wanted_by, signs, frozenset(exits))


def _rights() -> list[Right]:
    """Parse the tables, so that what is written there is what is tried here."""
    found, header = [], []
    for line in DOCS.read_text().split("## Rights")[1].split("\n## ")[0].splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "right":
            header = cells
        elif not cells[0].startswith("---"):
            columns = {name for name, cell in zip(header[1:-1], cells[1:-1], strict=True) if cell}
            names = {one for name in columns for one in (name.split(", ") if ":" not in name else [name])}
            found.append(_right(cells[0], frozenset(names), cells[-1]))
    return found


RIGHTS: Final = _rights()
_PLAN: Final = ("plan", "-o", "json", "-p", "POLICY")
_TRIM: Final = ("trim", "--yes", "-o", "json", "-p", "POLICY")
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "cluster init": ("cluster", "init", "--yes"),
    "plan": _PLAN,
    "explain": ("explain", "TOPIC", "-o", "json", "-p", "POLICY"),
    "trim": _TRIM,
    "offsets": ("offsets", "TOPIC", "-o", "json", "-p", "POLICY"),
    "groups": ("groups", "-o", "json", "-p", "POLICY"),
    "policy check": ("policy", "check", "POLICY"),
    "policy set": ("policy", "set", "TOPIC", "retention.ms=900d", "-p", "POLICY"),
    "policy list": ("policy", "list", "-p", "POLICY"),
    "a key marked cluster": _PLAN,
    "state: cluster, plan": _PLAN,
    "state: cluster, trim": _TRIM,
}
"""A command for each column."""
_LIKE: Final = {"a key marked cluster": "plan", "state: cluster, plan": "plan", "state: cluster, trim": "trim"}
"""Columns of the second table that want the rights of a column of the first one, too; for setting a policy one is enough."""


@dataclass
class Case:
    """A column, and the right that its user lacks; None: no right."""

    column: str
    lacks: Right | None
    user: str = ""
    topic: str = ""
    rights: Sequence[Right] = field(default=())

    def __str__(self) -> str:
        return f"{self.column} without {self.lacks.text if self.lacks else 'nothing'}"


def _cases() -> list[Case]:
    cases: list[Case] = []
    for column in COMMANDS:
        own = [one for one in RIGHTS if column in one.wanted_by]
        described = "DESCRIBE on the topics" if column == "policy set" else None
        base = [one for one in RIGHTS if _LIKE.get(column) in one.wanted_by or one.text == described]
        for lacks in (None, *own):
            kept = [one for one in base + own if lacks is None or (one is not lacks and not one.brings(lacks))]
            cases.append(Case(column, lacks, f"user{len(cases)}", rights=kept))
    # Who makes the topics comes after those who may not, and before all that use them.
    return sorted(
        cases, key=lambda one: (one.column != "cluster init", one.lacks is not None and "CREATE" not in one.lacks.text)
    )


CASES: Final = _cases()
_MAKERS: Final = [one for one in CASES if one.column == "cluster init" and one.lacks and "CREATE" in one.lacks.text]


@dataclass
class Guarded:
    cluster: EmbeddedKafka
    world: World
    folder: Path
    tried: dict[str, tuple[Cli, Cli]] = field(default_factory=dict)

    def ambiguous(self) -> str:
        """Make a topic whose look-ups have to be settled by reading."""
        topic = self.world.topic()
        self.world.produce(topic, [0, *[30 * HOUR] * 10, 2 * HOUR])
        self.world.delete_records(topic, 1)
        self.world.commit("readers", topic, 12)
        return topic

    def allow(self, user: str, topic: str, rights: Sequence[Right]) -> None:
        for one in rights:
            allow(self.world, user, one.kind, one.name or topic, AclOperation[one.operation])

    def run(self, case: Case, *command: str) -> Cli:
        folder = self.folder / case.user
        folder.mkdir(exist_ok=True)
        client = written(
            folder / "client.properties",
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.username={case.user}\nsasl.password={SECRET}\n",
        )
        live = case.column in ("cluster init", "policy set", "policy list", "a key marked cluster")
        state = "state: cluster\n" if case.column == "cluster init" or case.column.startswith("state: cluster") else ""
        rules = consumed(case.topic, "90m", retention__ms="cluster" if live else "1000d")
        policy = written(folder / "policy.yaml", f"{state}{rules}\n")
        places = {"TOPIC": case.topic, "POLICY": str(policy)}
        connection = ("-b", self.cluster.secure_bootstrap, "-c", str(client), "--state-dir", str(folder / "state"))
        return run_cli(*(places.get(one, one) for one in command), *connection, "--timeout", "2s")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    users = " ".join(f'user_{name}="{SECRET}"' for name in (*(one.user for one in CASES), "bob"))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = QUICK | {
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{login} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("acls")
    with EmbeddedKafka(1, settings=settings, secure_protocol="SASL_PLAINTEXT") as cluster:
        made = Guarded(cluster, World(cluster.bootstrap, folder / "unused"), folder)
        shared = made.ambiguous()
        for case in CASES:
            alone = COMMANDS[case.column] is _TRIM and case.lacks is None
            case.topic = made.ambiguous() if alone else shared
            made.allow(case.user, case.topic, case.rights)
        # The two topics come in the order of their names: the second one is refused to who made the first.
        for case in _MAKERS:
            doctor = made.run(case, "doctor", "TOPIC", "-o", "json", "-p", "POLICY")
            made.tried[case.user] = made.run(case, "cluster", "init", "--yes"), doctor
        run_cli("cluster", "init", "--yes", "-b", cluster.bootstrap, check=0)
        yield made


def _expect(case: Case, done: Cli) -> None:
    said = done.out + done.err
    says(said, never=["Traceback", SECRET])
    signs = {sign for one in RIGHTS for sign in one.signs if case.column in one.wanted_by and _said(sign, said)}
    if case.lacks is None:
        assert (done.code, signs) == (0, set()), said
        return
    assert signs & set(case.lacks.signs), f"none of {case.lacks.signs}: exit {done.code}\n{said}"
    assert done.code in case.lacks.exits, said
    assert done.code != 1 or done.out == ""
    assert case.column not in ("plan", "explain") or '"action": "trim"' not in said
    assert not case.column.endswith("trim") or '"outcome": "trimmed"' not in said


def _expect_of_doctor(case: Case, done: Cli) -> None:
    """It names the right that is missing, for this command."""
    if case.column == "policy check":  # needs nothing that others do not
        return
    command = _LIKE.get(case.column, case.column)
    found = done.json()
    if case.lacks is None:
        assert found["commands"].get(command, "good") == "good", done.out
        return
    assert found["commands"][command] != "good", done.out
    named = [one["text"] for one in found["checks"] if command in one["commands"]]
    what = case.lacks.name if case.lacks.kind == ResourceType.TOPIC and case.lacks.name else ""
    assert any(what in text for text in named), named


def _said(sign: str, text: str) -> bool:
    return (
        f'"{sign}"' in text or f"({sign})" in text
        if re.fullmatch(r"[A-Z]\d|policy-topic|lookup|delete", sign)
        else sign in text
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_documented_acls_suffice_and_each_is_needed(guarded: Guarded, case: Case) -> None:
    """The docs' tables, row by row and column by column. Who may not make the topics tried before they were there."""
    done, doctor = guarded.tried.get(case.user) or (
        guarded.run(case, *COMMANDS[case.column]),
        guarded.run(case, "doctor", "TOPIC", "-o", "json", "-p", "POLICY"),
    )
    _expect(case, done)
    _expect_of_doctor(case, doctor)


def test_topic_without_delete_permission_fails_alone(guarded: Guarded) -> None:
    case = next(one for one in CASES if one.column == "trim" and one.lacks and one.lacks.operation == "DELETE")
    refused, allowed = guarded.ambiguous(), guarded.ambiguous()
    rights = [one for one in RIGHTS if "trim" in one.wanted_by and one.name is None]
    for topic in (refused, allowed):
        guarded.allow(case.user, topic, [one for one in rights if topic == allowed or one.operation != "DELETE"])
    done = guarded.run(case, "trim", refused, allowed, "--consumed-after", "90m", "--yes", "-o", "json")
    assert done.code == 5
    outcomes = {one["topic"]: (one["outcome"], one["reasons"]) for one in done.json()["partitions"]}
    needs = "this user needs DELETE on the topic (TOPIC_AUTHORIZATION_FAILED)"
    assert outcomes == {allowed: ("trimmed", []), refused: ("failed", [{"code": "delete", "text": needs}])}
    assert (guarded.world.ends(refused)[0], guarded.world.ends(allowed)[0]) == (1, 12)


def test_missing_rights_make_advice_unknown_and_are_named(guarded: Guarded, tmp_path: Path) -> None:
    """From no setting and no size to all, one right after the other."""
    world = guarded.world
    topic = world.filled([MINUTE] * 10, retention_ms=str(HOUR), retention_bytes=str(MIB))
    config = properties(
        tmp_path,
        bootstrap_servers=guarded.cluster.secure_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="bob",
        sasl_password=SECRET,
    )

    def asked() -> dict[str, Any]:
        return run_cli("advise", topic, "-c", str(config), "-o", "json", check=0).json()["topics"][0]

    allow(world, "bob", ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    row = asked()
    found = row["advice"]
    assert [row["at_most"], row["normal"], found["kafka_configs"], found["policy_entry"]] == [None] * 4
    says(
        " ".join(reason["text"] for reason in row["unknown"]),
        "the topic's settings can't be read: this user needs DESCRIBE_CONFIGS on the topic",
        "broker 1's settings can't",
        "sizes on disk",
    )
    assert (codes(row), row["by_partition"][0]["records_last_hour"]) == (set(), 10), "what can be read is there"
    says(run_cli("advise", topic, "-c", str(config), check=0).out, "none seen", "Unknown, so not checked")

    allow(world, "bob", ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["at_most"] is not None, "the topic's settings to be readable")
    row = asked()
    assert (row["at_most"]["settings_ms"], row["at_most"]["readable_ms"]) == (7 * DAY + HOUR, None)
    assert codes(row) == set(), "whether traffic fills a segment sooner can't be told without sizes"
    assert "7d 1h + ?" in run_cli("advise", topic, "-c", str(config), check=0).out

    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    wait_until(lambda: asked()["unknown"] == [], "all to be readable")
    row = asked()
    assert codes(row) == {"segment-above-retention"}
    assert f"--command-config {config}" in row["advice"]["kafka_configs"]
