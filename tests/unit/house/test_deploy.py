"""What docs/deploy has for those who run kretain: every command line parses, every metric and label exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from retention_cli import __version__
from retention_cli.policy.load import parse_policy
from retention_cli.watch.board import KINDS, NAMES, Board, registry_of
from tests.support.command_lines import parse
from tests.support.facts import known
from tests.support.watching import PLAN_SERIES

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "docs" / "deploy"
BY_PROMETHEUS = {"instance", "job"}
"""Labels that a scraper adds."""


def series() -> dict[str, tuple[str, set[str]]]:
    """Return each metric's type and labels, as a full board shows them."""
    board = Board(300, lambda: True, lambda: True)
    board.succeed(1.0)
    board.cluster, board.pass_s, board.planned_s, board.protected = "c", 0.1, 2.0, 1
    board.measured = PLAN_SERIES
    text = generate_latest(registry_of(board)).decode()  # type: ignore[no-untyped-call]
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {one.name: (family.type, set(one.labels)) for family in families for one in family.samples}


SERIES = series()
LABELS = {name: labels for name, (_, labels) in SERIES.items()}


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
def test_dashboard_and_alert_queries_use_only_existing_metrics_and_labels(text: str) -> None:
    found = selectors(text)
    assert found
    for one in found:
        assert one.name in NAMES, one.name
        matched = {matcher.name: matcher.value for matcher in one.matchers.matchers}
        assert matched.keys() <= LABELS[one.name], one.name
        assert "kind" not in matched or set(matched["kind"].split("|")) <= set(KINDS)
    grouped = re.findall(r"by \(([^)]*)\)\s*\((?:\w+\()?(kretain_\w+)", text)
    assert len(grouped) == len(re.findall(r"\bby \(", text))
    for names, metric in grouped:
        assert {name.strip() for name in names.split(",")} <= LABELS[metric] | BY_PROMETHEUS, text


def test_every_metric_is_used_by_the_dashboard_or_an_alert() -> None:
    assert {one.name for text in expressions() for one in selectors(text.values[0])} == set(NAMES)


def test_every_alert_has_a_summary_and_severity_and_only_grouped_labels() -> None:
    for rule in alert_rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        named = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule)))
        grouped = {name for names in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in names.split(", ")}
        assert named <= grouped, rule["alert"]


def test_every_alert_links_to_its_section_of_the_watch_page() -> None:
    page = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    sections = {one.lower() for one in re.findall(r"^### (Kretain\w+)$", page, re.MULTILINE)}
    assert sections == {rule["alert"].lower() for rule in alert_rules()}
    for rule in alert_rules():
        assert rule["annotations"]["runbook_url"].endswith(f"/watch.html#{rule['alert'].lower()}")


def test_metrics_page_lists_exactly_the_real_metrics_with_types_and_the_error_kinds() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(kretain_\w+)` \| (\w+) \| ([^|]*)\|", page, re.MULTILINE)
    assert {name: (kind, {*re.findall(r"`(\w+)`", cell), "cluster"}) for name, kind, cell in rows} == SERIES
    kinds = next(part for part in page.split("\n\n") if part.startswith("`kind` is one of"))
    assert set(re.findall(r"`(\w+)`", kinds)) == {"kind", *KINDS}


@pytest.mark.parametrize("unit", ["kretain-watch", "kretain-trim"])
def test_systemd_unit_has_a_command_that_parses(unit: str) -> None:
    text = (DEPLOY / f"{unit}.service").read_text()
    words = shlex.split(known(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE))[1])
    assert words[0].endswith("/kretain")
    parse(words[1:])
    seconds = known(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE))
    assert int(seconds[1]) > 30 + 5, "a batch, and asking whether it may still go"


def test_systemd_timer_starts_its_oneshot_unit_without_catching_up() -> None:
    timer = (DEPLOY / "kretain-trim.timer").read_text()
    assert (DEPLOY / "kretain-trim.service").is_file()
    assert "Type=oneshot" in (DEPLOY / "kretain-trim.service").read_text()
    assert "Persistent=false" in timer
    assert re.search(r"^OnCalendar=\*:0/15$", timer, re.MULTILINE)


def templates(documents: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the pod template of each deployment and cron job; each deployment selects its own pods."""
    found = []
    for one in documents:
        if one["kind"] == "CronJob":
            found.append((one["metadata"]["name"], one["spec"]["jobTemplate"]["spec"]["template"]))
        elif one["kind"] == "Deployment":
            template = one["spec"]["template"]
            assert one["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
            found.append((one["metadata"]["name"], template))
    return found


def volumes_are_mounted(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's only container, after a look at its mounts."""
    [container] = pod["spec"]["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}
    return container  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["kubernetes-deployment.yaml", "kubernetes-cronjob.yaml"])
def test_manifest_has_a_valid_command_and_mounts_its_volumes(name: str) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    for one in documents:
        if one["kind"] == "ConfigMap":
            assert parse_policy(one["data"]["policy.yaml"], "policy.yaml", "sha256:x").state == "cluster"
    [(_name, pod)] = templates(documents)
    container = volumes_are_mounted(pod)
    command = [*container["command"], *container["args"]]
    assert command[0] == "kretain"
    parse(command[1:])
    for probe in [container[key]["httpGet"] for key in ("livenessProbe", "readinessProbe") if key in container]:
        assert probe["path"] in ("/healthz", "/readyz")
        assert probe["port"] in {one["name"] for one in container["ports"]}


# -- the chart ----------------------------------------------------------------------------

HELM = DEPLOY / "helm"
RENDERED: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "all": ("--values", str(HELM / "all.yaml")),
    "trim": ("--values", str(HELM / "trim.yaml")),
}
DELETES = {"defaults": set[str](), "all": {"prod-kretain-watch"}, "trim": {"prod-kretain-trim"}}
REFUSED = {
    "watch.enabled=true,watch.trim=true,watch.replicas=2": "watch.replicas: several that trim share the audit log",
    "watch.enabled=true,watch.trim=true,trim.enabled=true": "trim.enabled and watch.trim both trim",
    "wacth.enabled=true": "Additional property wacth is not allowed",
}
"""Values that the chart refuses, and why."""
HELM_MODULE = "helm.sh/helm/v3/cmd/helm@v3.17.4"


def rendered(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((HELM / "rendered" / f"{name}.yaml").read_text()) if one]


@pytest.mark.parametrize("name", RENDERED)
def test_chart_renders_what_kubernetes_and_kretain_accept(name: str) -> None:
    """By the schemas of Kubernetes; each command line parses, and each volume, claim and label is there."""
    found = rendered(name)
    for one in found:
        if one["kind"] != "PodMonitor":  # of the Prometheus operator
            kubernetes_validate.validate(one, "1.30", strict=True)
    named = {(one["kind"], one["metadata"]["name"]) for one in found}
    pods = templates(found)
    selects = [one["spec"]["podSelector"]["matchLabels"] for one in found if one["kind"] == "NetworkPolicy"]
    for _name, pod in pods:
        assert all(one.items() <= pod["metadata"]["labels"].items() for one in selects)
        account = pod["spec"]["serviceAccountName"]
        assert account == "default" or ("ServiceAccount", account) in named
        container = volumes_are_mounted(pod)
        parse(container["args"])  # the image's entry point is the command
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in named
    deletes = {name for name, pod in pods if {"trim", "--trim"} & set(pod["spec"]["containers"][0]["args"])}
    assert deletes == DELETES[name], "a chart with its defaults deletes nothing"
    for part, pod in pods:
        [state] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "state"]
        assert "persistentVolumeClaim" in state or part not in deletes, "the audit log of a trim outlives its pod"


def test_chart_values_schema_knows_every_value_and_refuses_others() -> None:
    schema = json.loads((HELM / "kretain" / "values.schema.json").read_text())
    defaults = yaml.safe_load((HELM / "kretain" / "values.yaml").read_text())
    check = jsonschema.Draft7Validator(schema)
    check.check_schema(schema)
    for given in (
        defaults,
        *({**defaults, **yaml.safe_load((HELM / f"{name}.yaml").read_text())} for name in ("all", "trim")),
    ):
        assert list(check.iter_errors(given)) == []
    assert schema["properties"].keys() - defaults.keys() == {"global"}, "global is Helm's own"
    wrong_ones: list[dict[str, Any]] = [
        {"wacth": {}},
        {"watch": {"replica": 2}},
        {"state": {"accessModes": ["RWX"]}},
        {"trim": {"enabled": "yes"}},
    ]
    for wrong in wrong_ones:
        assert not check.is_valid({**defaults, **wrong})


def test_chart_policy_is_valid_and_its_version_current() -> None:
    values = yaml.safe_load((HELM / "kretain" / "values.yaml").read_text())
    assert parse_policy(values["policy"], "values.yaml", "sha256:x").state == "cluster"
    chart = yaml.safe_load((HELM / "kretain" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.long
def test_committed_chart_output_equals_what_helm_renders(tmp_path: Path) -> None:
    """With a Helm that is built for it: minutes, and some hundred megabytes."""
    environ = {**os.environ, "GOBIN": str(tmp_path), "GOFLAGS": "-modcacherw"}
    subprocess.run(["go", "install", HELM_MODULE], env=environ, check=True, timeout=900)
    helm = str(tmp_path / "helm")
    subprocess.run([helm, "lint", str(HELM / "kretain")], check=True, timeout=60)
    for values, why in REFUSED.items():
        command = [helm, "template", "prod", str(HELM / "kretain"), "--set", values]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert refused.returncode != 0
        assert why in refused.stderr
    for name, files in RENDERED.items():
        command = [helm, "template", "prod", str(HELM / "kretain"), *files]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        assert shown == (HELM / "rendered" / f"{name}.yaml").read_text()
