"""Engines without a cluster: fleets, where a failing cluster stops no other, and Spark's slices, values and failures."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kretain.errors import Exit, UsageError, of_many
from kretain.flows import fleet as fleets, fleet_trim
from kretain.flows.fleet import Fleet, FleetFlags, chosen
from kretain.flows.spark import SharedSpark
from kretain.options.common import Common
from kretain.options.plans import PlanFlags, SparkFlags, TrimFlags
from kretain.render.trim import fleet_question, topics_to_trim
from retention_cli.brokers.errors import RequestFailedError, UnreachableError
from retention_cli.brokers.records import Ended, Range
from retention_cli.brokers.security.settings import ConnectionSettings
from retention_cli.core.model import (
    EventMax,
    Floor,
    LookUp,
    PartitionFacts,
    Reason,
    Sample,
    Tail,
    TopicFacts,
    TopicPartition,
    Unknown,
    Usage,
    Watermark,
)
from retention_cli.core.progress import Progress, silent
from retention_cli.core.state_dir import LockedError
from retention_cli.engines.fleet.plan import Failure, FleetPlan, FleetReport, fleet_heads, fleet_lines
from retention_cli.engines.fleet.planning import (
    CONCURRENT,
    Member,
    SameClusterError,
    check_addresses,
    make_fleet_plan,
    plan_here,
)
from retention_cli.engines.fleet.saved import read_fleet, read_one
from retention_cli.engines.spark.profile import OFFSETS_A_SLICE, _Partition, chunks, packed
from retention_cli.engines.spark.session import LOG, as_spark_error, start_failure
from retention_cli.engines.spark.shipping import from_bytes, to_bytes
from retention_cli.plan.saved import SavedPlanError, read_plan
from retention_cli.plan.value import Plan, plan_text
from retention_cli.policy.errors import FileError
from retention_cli.policy.fleet_file import FleetFile, parse_fleet
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import NothingMatchesError, Selection
from retention_cli.policy.settings import OneOff
from retention_cli.profile.hours import STEPS_AT_MOST, Frame, PartitionHours
from retention_cli.trim.report import TrimReport
from tests.support.facts import NOW, known
from tests.support.plans import DOWN, EU, FLEET, HOLD, KINDS, REPORT, US, of_spark, plan, plans, saved
from tests.support.says import raised, refusal, says

POLICY = "version: 1\ntopics: [{match: '*', retention.ms: 1d}]\n"


def member(name: str, bootstrap: str = "") -> Member:
    settings = ConnectionSettings(bootstrap or f"{name}:9092")
    return Member(name, settings, 1.0, Path("/nowhere"), lambda: Selection(parse_policy(POLICY, "p.yaml", "sha256:0")))


# -- exit codes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ([0, 0], 0),
        ([0, 1], 5),  # one cluster unreachable: the others were planned or trimmed
        ([1, 1], 1),  # 1 says that nothing was trimmed
        ([0, 6], 5),
        ([6, 6], 6),
        ([1, 6], 1),  # nothing was trimmed, by the precedence of README.md
        ([5, 0], 5),
        ([5, 1], 5),
        ([4, 0], 4),
        ([4, 1], 5),
        ([130, 0, 1], 130),
        ([1], 1),
        ([6], 6),
    ],
)
def test_fleet_exit_code_is_partial_where_clusters_differ(codes: list[int], whole: int) -> None:
    exits = [Exit(one) for one in codes]
    assert of_many(exits) == of_many(exits[::-1]) == whole


# -- planning ----------------------------------------------------------------------------------------


def planned(*answers: tuple[str, Plan | Failure], names: tuple[str, ...] = ("eu", "us")) -> FleetPlan:
    """Plan these clusters by an engine that answers so."""
    return make_fleet_plan(
        lambda _members, _now_ms, _watch: iter(answers),
        [member(name) for name in names],
        EU.created_at_ms,
        source="fleet.yaml",
        digest="sha256:f",
        watch=lambda _name: contextlib.nullcontext(silent),
    )


def test_fleet_plan_lists_clusters_in_file_order_whatever_finishes_first() -> None:
    made = planned(("us", US), ("eu", EU), ("ap", DOWN), names=("eu", "ap", "us"))
    assert (made, list(made.clusters)) == (FLEET, ["eu", "ap", "us"])


def test_cluster_left_out_by_an_engine_is_a_failure() -> None:
    assert list(planned(("eu", EU)).failures) == ["us"]


def test_two_names_with_one_cluster_id_are_an_error() -> None:
    said = refusal(SameClusterError, planned, ("us", replace(US, cluster_id=EU.cluster_id)), ("eu", EU))
    assert said.startswith("eu and us are one cluster, c1: name it once, under one policy")


def test_two_names_with_one_address_are_an_error_before_connecting() -> None:
    twice = [member("eu", "b-1:9092,b-2:9092"), member("ap"), member("us", "B-2:9092")]
    assert refusal(SameClusterError, check_addresses, twice).startswith("eu and us are both reached by B-2:9092")
    check_addresses([member("eu", "b:9092,b:9092"), member("us", "b:9093")])


def test_local_engine_bounds_concurrency_and_isolates_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    free, together = threading.Semaphore(CONCURRENT), threading.Barrier(CONCURRENT, timeout=30)

    def plan_one(one: Member, now_ms: int, names: Any, progress: Progress) -> Plan:
        assert free.acquire(blocking=False), "more than that at once"
        together.wait()  # so many are under way at once, or this fails
        free.release()
        if one.name == "n3":
            raise UnreachableError("n3:9092 could not\n be reached")
        return replace(EU, cluster_id=f"id-{one.name}", created_at_ms=now_ms)

    seen: list[str] = []

    @contextlib.contextmanager
    def watch(name: str) -> Iterator[Progress]:
        yield silent
        seen.append(name)

    monkeypatch.setattr("retention_cli.engines.fleet.planning.plan_one", plan_one)
    members = [member(f"n{number}") for number in range(3 * CONCURRENT)]
    made = make_fleet_plan(plan_here, members, 7, source="f", digest=None, watch=watch)
    assert made.failures == {"n3": Failure("n3:9092 could not be reached")}
    assert [one.created_at_ms for one in made.plans.values()] == [7] * (3 * CONCURRENT - 1)
    assert sorted(seen) == sorted(one.name for one in members)


# -- JSON, Parquet -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_saved_fleet_is_read_cluster_by_cluster(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, FLEET, kind)
    found = read_fleet(path)
    assert (found.failures, {name: give() for name, give in found.plans.items()}, read_one(path, "us")) == (
        {"ap": DOWN.error},
        {"eu": EU, "us": US},
        US,
    )
    assert "has no plan for ap: ap:9092 could not be reached" in refusal(SavedPlanError, read_one, path, "ap")
    assert "has no plan for uk, but for eu, us" in refusal(SavedPlanError, read_one, path, "uk")
    assert "is the plan of a fleet: also give --fleet FILE" in refusal(SavedPlanError, read_plan, path)


@pytest.mark.parametrize(("without", "said"), [("eu", "rows of cluster c1"), (None, "cluster c1 has 0 rows")])
def test_fleet_plan_with_rows_and_heads_that_disagree_is_refused(
    tmp_path: Path, without: str | None, said: str
) -> None:
    """Rows whose cluster has no head, and a head whose rows are not there: a part of another plan, or of none."""
    heads = fleet_heads(FLEET)
    heads["clusters"] = [one for one in heads["clusters"] if one["name"] != without]
    rows = [("c2", one) for one in US.decisions]
    of_spark(path := tmp_path / "plan", heads, rows if without is None else [*rows, ("c1", EU.decisions[0])])
    assert said in refusal(SavedPlanError, read_fleet, path)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(made=st.lists(plans, max_size=3))
def test_fleet_plan_reads_back_equal_from_json_and_parquet(tmp_path: Path, made: list[Plan]) -> None:
    clusters = {f"n{number}": replace(one, cluster_id=f"c{number}") for number, one in enumerate(made)}
    fleet = FleetPlan(0, "f", None, {**clusters, "down": DOWN})
    for kind in ("json", "parquet"):
        found = read_fleet(saved(tmp_path, fleet, kind))
        assert ({name: give() for name, give in found.plans.items()}, found.failures) == (
            clusters,
            {"down": DOWN.error},
        )


def test_plan_of_one_cluster_is_accepted_with_a_named_cluster_only(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(EU))
    assert read_one(path, "whatever it is called") == EU
    assert "is the plan of one cluster: say which of the fleet with --cluster NAME" in refusal(
        SavedPlanError, read_fleet, path
    )


@pytest.mark.parametrize("kind", KINDS)
def test_fleet_plan_with_one_cluster_twice_is_refused(tmp_path: Path, kind: str) -> None:
    twins = replace(FLEET, clusters={"eu": EU, "us": replace(US, cluster_id=EU.cluster_id)})
    assert "eu and us are one cluster, c1" in refusal(SavedPlanError, read_fleet, saved(tmp_path, twins, kind))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(format="kretain.fleet-plan/v2"), "fleet-plan/v2"),
        (lambda c: c.update(clusters="all"), "clusters"),
        (lambda c: c["clusters"].append(c["clusters"][0]), "cluster eu appears twice"),
        (lambda c: c["clusters"][0].update(name=3), "clusters.0.name"),
        (lambda c: c["clusters"][0].update(format="x"), "clusters.0 has format 'x'"),
        (lambda c: c["clusters"][1].update(error=None), "clusters.1 has format None"),
        (lambda c: c["clusters"][2]["partitions"][0].update(trim_to=-1), "clusters.2.partitions.0.trim_to"),
        (lambda c: c["clusters"][2].pop("partitions"), "clusters.2.partitions"),
        (lambda c: c["clusters"][2].update(created_at="x"), "created_at"),
    ],
)
def test_impossible_fleet_plan_is_refused_with_its_place(tmp_path: Path, change: Any, said: str) -> None:
    content = json.loads("".join(fleet_lines(FLEET)))
    change(content)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    assert said in refusal(SavedPlanError, read_fleet, path)


# -- which clusters are meant ------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "config.yaml").write_text(
        "contexts:\n"
        "  prod-eu: {bootstrap-server: 'eu:9092', policy: p.yaml}\n"
        "  prod-us: {bootstrap-server: 'us:9092', policy: p.yaml, state-dir: us-state}\n"
        "  staging: {bootstrap-server: 'staging:9092'}\n"
        "  odd*: {bootstrap-server: 'odd:9092'}\n"
    )
    (tmp_path / "fleet.yaml").write_text(
        "version: 1\nclusters:\n"
        "  - {name: eu, context: prod-eu}\n"
        "  - {name: us, context: prod-us, state-dir: mine}\n"
        "  - {name: ap, bootstrap-server: 'ap:9092'}\n"
    )
    monkeypatch.setenv("KRETAIN_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path


def some_of(common: Common, flags: FleetFlags) -> Fleet:
    """Return the several clusters that are meant."""
    found = chosen(common, flags)
    assert isinstance(found, Fleet)
    return found


def bootstraps(found: Fleet) -> dict[str, str]:
    return {name: one.settings().bootstrap for name, one in found.clusters.items()}


def test_context_glob_selects_a_fleet_and_a_context_name_one_cluster(here: Path) -> None:
    several = some_of(Common(context="prod-*"), FleetFlags())
    assert (bootstraps(several), several.source, several.digest, several.clusters["prod-us"].state_dir) == (
        {"prod-eu": "eu:9092", "prod-us": "us:9092"},
        "context prod-*",
        None,
        here / "us-state",
    )
    for one in ("prod-us", "odd*"):  # a context that is called so is that one
        assert not isinstance(chosen(Common(context=one), FleetFlags()), Fleet)
    assert bootstraps(some_of(Common(context="stag*"), FleetFlags())) == {"staging": "staging:9092"}


def test_fleet_file_entry_inherits_its_context_and_overrides_it(here: Path) -> None:
    found = some_of(Common(), FleetFlags(here / "fleet.yaml"))
    assert (
        bootstraps(found),
        [found.clusters[name].policy for name in ("eu", "us")],
        found.clusters["us"].state_dir,
    ) == ({"eu": "eu:9092", "us": "us:9092", "ap": "ap:9092"}, [here / "p.yaml"] * 2, here / "mine")
    says(refusal(UsageError, found.members, None, OneOff()), "ap has no policy: ", "fleet.yaml names none")
    one = chosen(Common(), FleetFlags(here / "fleet.yaml", "ap"))
    assert not isinstance(one, Fleet)
    assert one.settings().bootstrap == "ap:9092"


def test_fleet_file_policy_overrides_contexts_and_rejects_a_policy_flag(here: Path) -> None:
    file = here / "fleet.yaml"
    file.write_text(file.read_text().replace("clusters:", "policy: shared.yaml\nclusters:", 1))
    assert {one.policy for one in some_of(Common(), FleetFlags(file)).clusters.values()} == {here / "shared.yaml"}
    common = Common(policy=Path("x"), given_by={"policy": "variable"})
    assert "names policies: omit KRETAIN_POLICY" in refusal(UsageError, chosen, common, FleetFlags(file))


@pytest.mark.parametrize(
    ("common", "flags", "kind", "said"),
    [
        (
            {"bootstrap_server": "b"},
            {"fleet": "fleet.yaml"},
            UsageError,
            "--fleet names several clusters and --bootstrap-server",
        ),
        ({"command_config": Path("x")}, {"fleet": "fleet.yaml"}, UsageError, "--command-config"),
        ({"context": "prod-eu"}, {"fleet": "fleet.yaml"}, UsageError, "--context"),
        (
            {"context": "prod-*", "bootstrap_server": "b", "given_by": {"bootstrap_server": "variable"}},
            {},
            UsageError,
            "--context prod-* names several clusters and KRETAIN_BOOTSTRAP_SERVER one",
        ),
        ({}, {"cluster": "eu"}, UsageError, "--cluster names one of several"),
        ({"context": "prod-eu"}, {"cluster": "eu"}, UsageError, "--cluster names one of several"),
        ({}, {"fleet": "fleet.yaml", "cluster": "uss"}, NothingMatchesError, "has no cluster 'uss'; did you mean us"),
        ({"context": "prod-*"}, {"cluster": "staging"}, NothingMatchesError, "has no cluster 'staging'"),
    ],
)
def test_clusters_that_are_named_in_two_ways_or_unknown_are_refused(
    here: Path, common: dict[str, Any], flags: dict[str, Any], kind: type[Exception], said: str
) -> None:
    if "fleet" in flags:
        flags = flags | {"fleet": here / flags["fleet"]}
    assert said in refusal(kind, chosen, Common(**common), FleetFlags(**flags))


def test_delete_records_output_of_a_fleet_is_a_usage_error() -> None:
    flags = Fleet("f", None, {}), None, OneOff(), SparkFlags(), PlanFlags(output="delete-records")
    assert "for one cluster: name it with --cluster NAME" in refusal(UsageError, fleets.plan_fleet, *flags)


# -- trimming ----------------------------------------------------------------------------------------


def trimmed_in_turn(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, TrimReport | BaseException],
    failures: dict[str, Failure],
    before: dict[str, TrimReport] | None = None,
) -> tuple[dict[str, TrimReport | Failure], list[str]]:
    """Trim three clusters whose trims end so; return what became of each, and who was reached at all.

    ``before`` are reports that were there before the trim ended.
    """
    reached: list[str] = []

    def trim(one: Member, _plan: Plan, sent: list[TrimReport], *_how: object) -> TrimReport:
        reached.append(one.name)
        answer = answers[one.name]
        sent.extend(report for name, report in (before or {}).items() if name == one.name)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(fleet_trim, "trim_one", trim)
    flags = TrimFlags(yes=True, max_age=0, wait_lock=0, output="json")
    how = flags, Common(quiet=True), SharedSpark(SparkFlags())
    wishes = fleet_trim.FleetPlans({name: lambda: EU for name in answers}, failures, lambda: None)
    return dict(fleet_trim.trim_each([member("eu"), member("ap"), member("us")], wishes, *how)), reached


def test_age_of_a_saved_plan_counts_again_when_its_turn_has_come() -> None:
    """It may have waited for an answer, or for other clusters of a fleet, and not for a lock alone."""
    assert TrimFlags(plan=Path("plan.json"), max_age=5, wait_lock=0).max_age_ms == 5
    assert TrimFlags(max_age=5, wait_lock=1).max_age_ms is None, "made in this run"


@pytest.mark.parametrize(
    "error", [UnreachableError("down"), LockedError("locked"), RuntimeError("a bug"), OSError("disk")]
)
def test_failed_cluster_leaves_the_others_trimmed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    report = REPORT.reports["eu"]
    found, reached = trimmed_in_turn(monkeypatch, {"eu": error, "us": report}, {"ap": DOWN})
    assert (reached, found["ap"], found["us"]) == (["eu", "us"], DOWN, report)
    assert isinstance(failed := found["eu"], Failure)
    assert str(error) in failed.error
    assert fleets.code_of_failure(failed) == (Exit.REFUSED if isinstance(error, LockedError) else Exit.FAILED)


@pytest.mark.parametrize("error", [UnreachableError("down"), KeyboardInterrupt()])
def test_cluster_report_is_kept_if_an_error_follows_its_deletes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """It is not said that nothing was done to it."""
    report = replace(REPORT.reports["eu"], sent=True)
    found, reached = trimmed_in_turn(monkeypatch, {"eu": error, "us": report}, {"ap": DOWN}, {"eu": report})
    interrupted = isinstance(error, KeyboardInterrupt)
    assert found["eu"] == replace(report, interrupted=interrupted)
    said = (["eu"], "") if interrupted else (["eu", "us"], "kretain: down\n")
    assert (reached, capsys.readouterr().err) == said


@pytest.mark.parametrize("raised", [True, False])
def test_ctrl_c_during_a_fleet_trim_skips_later_clusters(monkeypatch: pytest.MonkeyPatch, *, raised: bool) -> None:
    """Whether it came before the first request, or the trim under way ended in good order and says so."""
    report = replace(REPORT.reports["eu"], interrupted=True)
    first = KeyboardInterrupt() if raised else report
    found, reached = trimmed_in_turn(monkeypatch, {"eu": first, "ap": report, "us": report}, {})
    made = FleetReport("f", None, found)
    assert (reached, {name: one.error for name, one in made.failures.items() if name != "eu"}) == (
        ["eu"],
        dict.fromkeys(("ap", "us"), "interrupted before its turn"),
    )
    assert (made.interrupted, REPORT.interrupted) == (True, False)


# -- what is shown -----------------------------------------------------------------------------------


def test_fleet_confirmation_covers_all_clusters_and_names_those_left_out() -> None:
    topics = {name: topics_to_trim(one, None) for name, one in (("eu", EU), ("us", US), ("none", plan(HOLD)))}
    assert fleet_question(topics, ["ap"]) == (
        "Trim 150 records from 3 partitions of 2 topics in 2 clusters: eu 100, us 50? 7 of them have NOT been read by "
        "every consumer that counts. Left alone: ap. This can't be undone."
    )
    assert "Trim 50 records from 1 partition of" in fleet_question({"eu": topics_to_trim(EU, 1)}, [])


GOOD = """\
version: 1
policy: shared.yaml
clusters:
  - name: eu
    bootstrap-server: eu-1:9092,eu-2:9092
    command-config: secrets/eu.properties
    state-dir: state
  - name: us
    context: us-prod
    policy: /etc/kretain/us.yaml
    timeout: 90s
  - name: ap
    settings: {bootstrap.servers: "ap:9092", enable.ssl.certificate.verification: false}
"""


def parsed(text: str) -> FleetFile:
    return parse_fleet(text, "fleet.yaml", "sha256:x", Path("/fleet"))


def problems(text: str) -> list[str]:
    return [str(one) for one in raised(FileError, parsed, text).problems]


def test_fleet_paths_are_relative_to_its_file() -> None:
    [alone] = parsed("version: 1\nclusters: [{name: a, context: a}]\n").entries
    assert [(one.name, one.context, one.values) for one in (*parsed(GOOD).entries, alone)] == [
        (
            "eu",
            None,
            {
                "bootstrap-server": "eu-1:9092,eu-2:9092",
                "command-config": Path("/fleet/secrets/eu.properties"),
                "state-dir": Path("/fleet/state"),
                "policy": Path("/fleet/shared.yaml"),
            },
        ),
        ("us", "us-prod", {"policy": Path("/etc/kretain/us.yaml"), "timeout": 90_000}),
        (
            "ap",
            None,
            {
                "policy": Path("/fleet/shared.yaml"),
                "settings": {"bootstrap.servers": "ap:9092", "enable.ssl.certificate.verification": "false"},
            },
        ),
        ("a", "a", {}),  # no policy: one may be given beside the file
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["fleet.yaml:1: is not a mapping: start with version: 1"]),
        ("- a", ["fleet.yaml:1: is not a mapping: start with version: 1"]),
        ("version: 1\n", ["fleet.yaml:1: clusters: is missing"]),
        ("version: 1\nclusters: []\n", ["fleet.yaml:2: clusters: is empty: a fleet has clusters"]),
        ("version: 1\nclusters: eu\n", ["fleet.yaml:2: clusters: is not a list: each starts with '- name: …'"]),
        (
            "version: true\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:1: version: is not 1, the format that this kretain reads"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    bootstrap_server: b:9092\n",
            ["fleet.yaml:4: bootstrap_server: is not a key here; did you mean bootstrap-server?"],
        ),
        (
            "version: 1\ncontext: x\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: context: is not a key here; it belongs to an entry of clusters"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: a\n  - name: a\n    context: b\n",
            ["fleet.yaml:5: name: a is given twice (first in line 3)"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n  - name: b\n    context: c\n",
            ["fleet.yaml:6: context: c is a's already: name each cluster once"],
        ),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n    bootstrap-server: b:9092\n",
            ["fleet.yaml:5: bootstrap-server: can't be combined with context, which names the connection"],
        ),
        (
            "version: 1\nclusters:\n  - name: a b\n    context: c\n",
            ["fleet.yaml:3: name: is not a name: letters, digits, dots, hyphens and underscores"],
        ),
        ("version: 1\nclusters:\n  - context: c\n", ["fleet.yaml:3: name: is missing"]),
        (
            "version: 1\nclusters:\n  - name: a\n    context: c\n    timeout: 0s\n",
            ["fleet.yaml:5: timeout: is not a duration such as 30s"],
        ),
        (
            "version: 1\nversion: 1\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: version: is given twice (first in line 1)"],
        ),
        (
            "version: 1\npolicy:\nclusters: [{name: a, context: a}]\n",
            ["fleet.yaml:2: policy: has no value: give one, or remove the key"],
        ),
    ],
)
def test_fleet_file_error_has_its_line(text: str, said: list[str]) -> None:
    assert problems(text) == said


@pytest.mark.parametrize(
    "settings",
    [
        "{sasl.password: [hunter2]}",
        "{sasl.password: {hunter2: x}}",
        "*hunter2",
        "hunter2",
        '{sasl.password: "hunter2',
        "{sasl.password: !hunter2 x}",
    ],
)
def test_unreadable_password_is_never_quoted(settings: str) -> None:
    assert "hunter2" not in "".join(problems(f"version: 1\nclusters:\n  - name: a\n    settings: {settings}\n"))
    assert "hunter2" not in repr(parsed(GOOD.replace("ap:9092", "hunter2")).entries)


# -- Spark: slices of records, values that tasks hand to each other, and what failures are told as --


@pytest.mark.parametrize(
    ("span", "stable", "expected"),
    [
        ((0, 10), 10, [(0, 10)]),
        ((0, 25), 25, [(0, 10), (10, 20), (20, 25)]),
        ((7, 25), 25, [(7, 10), (10, 20), (20, 25)]),
        ((0, 20), 20, [(0, 10), (10, 20)]),
        ((0, 95), 15, [(0, 10), (10, 95)]),  # a broker is silent to who begins behind an open transaction
        ((0, 95), 10, [(0, 95)]),
        ((0, 95), 0, [(0, 95)]),
        ((0, 95), None, [(0, 95)]),
    ],
)
def test_pieces_end_at_multiples_and_never_start_behind_an_open_transaction(
    span: tuple[int, int], stable: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(chunks(Range(*span), stable, 10)) == expected


def test_profile_piece_never_exceeds_the_front_limit() -> None:
    """Else hours of chunks would not merge to exact ones."""
    assert OFFSETS_A_SLICE <= STEPS_AT_MOST


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), max_size=12), st.integers(1, 20), st.integers(1, 3))
def test_slices_contain_every_piece_once_within_their_limit(
    spans: list[tuple[int, int]], most: int, brokers: int
) -> None:
    ranges = {TopicPartition("t", number): Range(start, start + size) for number, (start, size) in enumerate(spans)}
    cut = {tp: list(chunks(span, span.end, most)) for tp, span in ranges.items()}
    leaders = {tp: tp.partition % brokers for tp in ranges}
    found: dict[TopicPartition, list[Range]] = {tp: [] for tp in ranges}
    for one in packed(cut, leaders, most):
        assert len({leaders[tp] for tp in one}) == 1
        assert sum(span.end - span.start for span in one.values()) <= most
        for tp, span in one.items():
            found[tp].append(span)
    assert found == cut, "each once, in order"
    for tp, span in ranges.items():
        ends = [span.start, *(piece.end for piece in cut[tp])]
        assert (list(pairwise(ends)), ends[-1]) == (cut[tp], span.end)


@given(
    st.lists(st.integers(0, 3_600_000 * 3), min_size=1, max_size=30),
    st.integers(1, 9),
    st.none() | st.integers(0, 29),
    st.booleans(),
    st.randoms(),
)
def test_pieces_merge_in_any_order_but_not_behind_a_gap(
    times: list[int], most: int, broken_at: int | None, failed: bool, chance: Any
) -> None:
    frame = Frame(NOW)
    stamps = [NOW - 40 * 3_600_000 + one for one in times]
    cut = list(chunks(Range(0, len(stamps)), len(stamps), most))
    end = len(stamps) if broken_at is None else min(broken_at, len(stamps))

    def hours(start: int, end: int, *, piece: bool) -> PartitionHours:
        found = PartitionHours.begin(frame, start, piece=piece)
        found.add(np.arange(start, end), np.array(stamps[start:end]), np.ones(end - start, np.int64))
        found.reached(end)
        return found

    results = []
    for one in cut:
        reached = end if one.start <= end < one.end else one.end
        error = RequestFailedError("gone", retriable=True) if failed and reached < one.end else None
        results.append((one, Ended(reached, error), hours(one.start, reached, piece=True)))
    chance.shuffle(results)
    partition = _Partition(cut, PartitionHours.begin(frame, 0))
    for result in results:
        partition.take(*result)
    ended = known(partition.ended)
    assert (ended.offset, ended.error is not None) == (end, failed and end < len(stamps))
    assert list(partition.hours.items()) == list(hours(0, end, piece=False).items())
    assert partition.hours.exact


LOST = "An error occurred while calling o59.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "


class TheirError(Exception):
    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "said", "todo"),
    [
        (
            f"{LOST}Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache",
            "Lost task 0.0 in stage 3.0 (TID 3) (node executor 0): ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137",
            "give it more memory (--spark-conf spark.driver.memory=4g",
        ),
        (
            f"{LOST}Lost task 1.0 in stage 0.0 (TID 1) (node executor 2): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache",
            "(node executor 2): Python worker exited unexpectedly (crashed)",
            "PYSPARK_PYTHON",
        ),
        (
            "An error occurred while calling o104.collectToPython.\n: java.lang.OutOfMemoryError: Java heap space\n\tat java.base",
            "java.lang.OutOfMemoryError: Java heap space",
            "give it more memory",
        ),
        (
            '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "failed to connect to all addresses"\n\tdebug_error_string = "UNAVAILABLE"\n>',
            "failed to connect to all addresses",
            "check that Spark is up, then run again",
        ),
        (
            'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "x.py", line 17, in boom\n    raise ValueError("of a task")\nValueError: of a task',
            "ValueError: of a task",
            "run again; -vv shows where",
        ),
        (
            "Job 3 cancelled because SparkContext was shut down",
            "SparkContext was shut down",
            "check that Spark is up",
        ),
    ],
)
def test_spark_error_is_reported_in_one_line_with_a_remedy(text: str, said: str, todo: str) -> None:
    shown = str(as_spark_error(TheirError(text)))
    assert shown.startswith("Spark could not carry it out: ")
    says(shown, said, todo, never=["\n", "collectToPython"])


@pytest.mark.parametrize("error", [ValueError("ours"), ConnectionRefusedError("a broker's"), KeyboardInterrupt()])
def test_error_that_is_not_sparks_is_unchanged(error: BaseException) -> None:
    assert as_spark_error(error) is None


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: Using incubator modules\nException in thread \"main\" org.apache.spark.SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.\n\tat org.apache\n",
            "When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the environment.",
        ),
        (
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory\nbin/spark-class: line 97: CMD: bad array subscript\n",
            "bin/spark-class: line 71: /nowhere/bin/java: No such file or directory",
        ),
        ("WARNING: Using incubator modules\n", None),
    ],
)
def test_failed_spark_start_is_explained_from_its_log(log: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(log)
    assert [start_failure(tmp_path / name) for name in (LOG, "none")] == [said, None]


WHY = Unknown((Reason("offsets", "nobody answered"), Reason("F3", "nor did a group")))
TOPIC = TopicFacts("orders", "id", internal=False, cleanup_policy=frozenset({"delete"}), retention_ms=WHY, tiered=True)
BARE = PartitionFacts(TOPIC, 3, 0, 9, 9, Floor(4, "group:g", (Reason("F5", "odd"),)))


@pytest.mark.parametrize(
    "facts",
    [
        BARE,
        BARE._replace(log_start=WHY, high_watermark=WHY, floor=WHY, size_bytes=WHY, samples=WHY, segment_bases=WHY),
        BARE._replace(
            lookups={5: LookUp(2, Reason("lookup", "stopped"), 4, 1), 6: WHY},
            data_lookups={5: WHY},
            newest=EventMax(7, 3, exact=False),
            samples=(Sample(1, 2),),
            usage=Usage("disk", 91.5, Watermark(90, 0.5, 1)),
            tails={"retention.bytes": Tail(4, exact=True), "retention.topic.bytes": WHY},
            segment_bases=(0, 4),
        ),
    ],
)
def test_partition_facts_survive_spark_serialization(facts: PartitionFacts) -> None:
    """A fact more, or a part of one, needs no line of Spark's: that a topic has remote storage had been left behind."""
    assert from_bytes(to_bytes(facts)) == facts
