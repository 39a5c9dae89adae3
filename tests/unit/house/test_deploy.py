"""What docs/deploy has for those who run kretain: every command line parses, every metric and label exists."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from retention_cli.watch.board import Board
from retention_cli.watch.failures import KINDS
from retention_cli.watch.measured import Groups, Measured
from retention_cli.watch.metrics import NAMES, registry_of
from tests.support.command_lines import parse

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "docs" / "deploy"
BY_PROMETHEUS = {"instance", "job"}
"""Labels that a scraper adds."""


def labels() -> dict[str, set[str]]:
    """Return each metric's labels, as a full board shows them."""
    board = Board(300, lambda: True, lambda: True)
    board.succeed(1.0)
    groups = Groups({"group:a": 3}, {("group:a", "t"): 60.0})
    board.put(cluster="c", pass_s=0.1, measured=Measured({"trim": 1}, {"F2": 2}, groups, {("1", "/data"): 0.5}, 0.8))
    text = generate_latest(registry_of(board)).decode()  # type: ignore[no-untyped-call]
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {one.name: set(one.labels) for family in families for one in family.samples}


LABELS = labels()


def alert_rules() -> list[dict[str, Any]]:
    content = yaml.safe_load((DEPLOY / "prometheus-alerts.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana-dashboard.json").read_text())  # type: ignore[no-any-return]


def expressions() -> list[Any]:
    rules = [pytest.param(one["expr"], id=one["alert"]) for one in alert_rules()]
    panels = [
        pytest.param(target["expr"].replace("$__rate_interval", "5m"), id=f"{panel['title']} {target['refId']}")
        for panel in dashboard()["panels"]
        for target in panel["targets"]
    ]
    return [*rules, *panels]


def selectors(text: str) -> list[Any]:
    """Return the vector selectors of a query.

    Raises:
        ValueError: it is no PromQL.
    """
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(text), visit)
    return found


@pytest.mark.parametrize("text", expressions())
def test_every_query_asks_for_metrics_and_labels_that_there_are(text: str) -> None:
    found = selectors(text)
    assert found
    for one in found:
        assert one.name in NAMES, one.name
        assert {matcher.name for matcher in one.matchers.matchers} <= LABELS[one.name], one.name
    grouped = re.findall(r"by \(([^)]*)\)\s*\((?:\w+\()?(kretain_\w+)", text)
    assert len(grouped) == len(re.findall(r"\bby \(", text))
    for names, metric in grouped:
        assert {name.strip() for name in names.split(",")} <= LABELS[metric] | BY_PROMETHEUS, text


def test_a_query_with_a_wrong_name_would_be_found() -> None:
    assert [one.name for one in selectors("sum(rate(kretain_nothing_total[5m]))")] == ["kretain_nothing_total"]
    with pytest.raises(ValueError, match="parenthesis"):
        selectors("sum(rate(kretain_failures_total[5m])")


def test_every_metric_is_on_the_dashboard_or_raises_an_alarm() -> None:
    asked = {one.name for text in expressions() for one in selectors(text.values[0])}
    assert asked == set(NAMES)


def test_every_alert_says_what_it_is() -> None:
    for rule in alert_rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        named = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule)))
        grouped = {name for names in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in names.split(", ")}
        assert named <= grouped, rule["alert"]


def test_kinds_in_alerts_exist() -> None:
    for text in expressions():
        for one in selectors(text.values[0]):
            for matcher in one.matchers.matchers:
                if matcher.name == "kind":
                    assert set(matcher.value.split("|")) <= set(KINDS)


def test_the_pages_metrics_and_kinds_are_the_real_ones() -> None:
    page = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(kretain_\w+)` \| ([^|]*)\|", page, re.MULTILINE)
    assert {name: {*re.findall(r"`(\w+)`", cell), "cluster"} for name, cell in rows} == LABELS
    kinds = next(part for part in page.split("\n\n") if part.startswith("`kind` is one of"))
    assert set(re.findall(r"`(\w+)`", kinds)) == {"kind", *KINDS}


def test_the_units_command_line_parses() -> None:
    text = (DEPLOY / "kretain-watch.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert line is not None
    words = shlex.split(line[1])
    assert words[0].endswith("/kretain")
    parse(words[1:])
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > 30 + 5, "a batch, and asking whether it may still go"


@pytest.mark.parametrize("name", ["kubernetes-deployment.yaml", "kubernetes-cronjob.yaml"])
def test_a_manifests_command_lines_parse_and_its_volumes_are_there(name: str, tmp_path: Path) -> None:
    pods = []
    for one in yaml.safe_load_all((DEPLOY / name).read_text()):
        match one["kind"]:
            case "Deployment":
                assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
                pods.append(one["spec"]["template"]["spec"])
            case "CronJob":
                pods.append(one["spec"]["jobTemplate"]["spec"]["template"]["spec"])
            case "ConfigMap":
                from retention_cli.policy.load import parse_policy

                assert parse_policy(one["data"]["policy.yaml"], "policy.yaml", "sha256:x").state == "cluster"
            case kind:
                assert kind == "PersistentVolumeClaim"
    assert len(pods) == 1
    for container in pods[0]["containers"]:
        command = [*container["command"], *container["args"]]
        assert command[0] == "kretain"
        parse(command[1:])
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pods[0]["volumes"]}
        for probe in ("livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz")
                assert container[probe]["httpGet"]["port"] in {one["name"] for one in container["ports"]}
