"""What those who run kretain are given: docs/deploy, and the container image without an engine, in a chroot."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kretain.system.healthcheck import address, main
from retention_cli import __version__
from retention_cli.policy.load import parse_policy
from retention_cli.watch.board import KINDS, NAMES, Board, registry_of
from tests.support.docs import ROOT, parse
from tests.support.watching import PLAN_SERIES

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
    nodes: list[Any] = []
    promql_parser.walk(promql_parser.parse(text), nodes.append)
    return [one for one in nodes if isinstance(one, promql_parser.VectorSelector)]


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
    [line], [seconds] = (re.findall(rf"^{key}=(.*)$", text, re.MULTILINE) for key in ("ExecStart", "TimeoutStopSec"))
    command, *words = shlex.split(line)
    assert command.endswith("/kretain")
    parse(words)
    assert int(seconds) > 30 + 5, "a batch, and asking whether it may still go"


def test_systemd_timer_starts_its_oneshot_unit_without_catching_up() -> None:
    timer = (DEPLOY / "kretain-trim.timer").read_text().splitlines()
    assert "Type=oneshot" in (DEPLOY / "kretain-trim.service").read_text()
    assert {"Persistent=false", "OnCalendar=*:0/15"} <= {*timer}


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
        volumes = pod["spec"]["volumes"]
        assert {("ConfigMap", one["configMap"]["name"]) for one in volumes if "configMap" in one} <= named
        claims = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
        assert {("PersistentVolumeClaim", one) for one in claims} <= named
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
    for values in ({}, *(yaml.safe_load((HELM / f"{name}.yaml").read_text()) for name in ("all", "trim"))):
        assert list(check.iter_errors(defaults | values)) == []
    assert schema["properties"].keys() - defaults.keys() == {"global"}, "global is Helm's own"
    misspelled: list[dict[str, Any]] = [{"wacth": {}}, {"watch": {"replica": 2}}]
    for wrong in (*misspelled, {"state": {"accessModes": ["RWX"]}}, {"trim": {"enabled": "yes"}}):
        assert not check.is_valid(defaults | wrong)


def test_chart_policy_is_valid_and_its_version_current() -> None:
    values, chart = (yaml.safe_load((HELM / "kretain" / f"{name}.yaml").read_text()) for name in ("values", "Chart"))
    assert parse_policy(values["policy"], "values.yaml", "sha256:x").state == "cluster"
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


DOCKERFILE = ROOT / "Dockerfile"


def steps(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("kretain plan -p x", None),
        ("kretain watch -p x", "127.0.0.1:9308"),
        ("kretain watch --listen off --textfile x", None),
        ("kretain watch --listen 0.0.0.0:9000", "127.0.0.1:9000"),
        ("kretain watch --listen=[::]:9000 --trim", "[::1]:9000"),
        ("kretain watch --listen=10.0.0.1:9000", "10.0.0.1:9000"),
    ],
)
def test_health_check_asks_only_a_watch_at_its_listen_address(command: str, where: str | None) -> None:
    assert address(command.split()) == where


def test_health_check_asks_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRETAIN_LISTEN", "0.0.0.0:9999")
    assert (address(["kretain", "watch"]), address(["kretain", "watch", "--listen", "off"])) == ("127.0.0.1:9999", None)


def test_silent_watch_is_unhealthy(tmp_path: Path) -> None:
    for words, code in ((b"kretain\0watch\0--listen\x00127.0.0.1:1\0", 1), (b"kretain\0plan\0", 0)):
        (tmp_path / "cmdline").write_bytes(words)
        assert main(tmp_path) == code


def copied() -> list[tuple[str, str]]:
    """Return each file or folder that is copied from the sources into the image, and where to."""
    lines = [line.split() for line in steps("COPY") if not line.startswith("--from")]
    return [(name, words[-1]) for words in lines for name in words[:-1]]


def test_every_file_copied_into_the_image_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, _target in copied():
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored


@contextlib.contextmanager
def root_with(environment: Path, state: Path, folder: Path) -> Iterator[Path]:
    """A root that has this machine's Python and libraries, the environment, and nothing that can be written to."""
    root, mounts = folder / "root", contextlib.ExitStack()

    def mount(*words: str, at: str) -> None:
        place = root / at
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *words, str(place)], check=True)
        mounts.callback(subprocess.run, ["umount", str(place)], check=True)

    with mounts:
        mount("-t", "tmpfs", "tmpfs", at="")
        for name in ("bin", "lib", "lib64"):
            if (here := Path("/") / name).is_symlink():
                (root / name).symlink_to(here.readlink())
        mount("--bind", "-o", "ro", "/usr", at="usr")
        if not sys.base_prefix.startswith("/usr"):
            mount("--bind", "-o", "ro", sys.base_prefix, at=sys.base_prefix.lstrip("/"))
        mount("--bind", "-o", "ro", str(environment), at="opt/kretain")
        mount("--bind", str(state), at="var/lib/kretain")
        mount("-t", "tmpfs", "tmpfs", at="tmp")
        mount("-t", "proc", "proc", at="proc")
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        yield root


@pytest.mark.long
def test_image_steps_build_a_kretain_that_runs_without_privileges_or_a_shell(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this makes mounts"
    source, environment, state = tmp_path / "src", tmp_path / "environment", tmp_path / "state"
    for name, target in copied():
        into = source / target if target != "./" else source / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, into)
    for_pip = ("PATH", "PIP_", "HTTP", "http", "NO_PROXY", "no_proxy", "SSL_", "REQUESTS_", "HOME")  # and its index
    environ = {name: value for name, value in os.environ.items() if name.startswith(for_pip)}
    for line in steps("RUN"):
        words = shlex.split(line.replace("/opt/kretain", str(environment)))
        words = [sys.executable, *words[1:]] if words[0] == "python" else words
        subprocess.run(words, cwd=source, check=True, timeout=400, env=environ)
    state.mkdir()
    [user] = steps("USER")
    uid, gid = (int(one) for one in user.split(":"))
    os.chown(state, uid, gid)
    variables = dict(word.split("=", 1) for line in steps("ENV") for word in shlex.split(line))
    [entry] = steps("ENTRYPOINT")
    # The environment's Python links to this machine's; scripts name where it was made.
    python = environment / "bin" / "python"
    for script in (environment / "bin").iterdir():
        if script.is_file() and not script.is_symlink() and script.read_bytes().startswith(b"#!"):
            script.write_bytes(script.read_bytes().replace(str(python).encode(), b"/opt/kretain/bin/python", 1))
    with root_with(environment, state, tmp_path) as root:

        def run(words: list[str]) -> subprocess.Popen[str]:
            command = ["chroot", f"--userspec={user}", str(root), *words]
            return subprocess.Popen(
                [shutil.which(command[0]) or command[0], *command[1:]],
                env={**variables, "PATH": "/opt/kretain/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

        out, err = run([*json.loads(entry), "--version"]).communicate(timeout=60)
        assert out == "kretain 0.1.0\n", err
        plan = run([*json.loads(entry), "plan", "t", "--consumed-after", "3d", "-b", "127.0.0.1:1", "--timeout", "1s"])
        out, err = plan.communicate(timeout=60)
        assert (plan.returncode, out) == (1, "")
        assert "could not be reached" in err
        assert list((environment / "lib").glob("python*/site-packages/kretain/**/*.pyc")), "compiled in the image"
        check = next(line for line in DOCKERFILE.read_text().splitlines() if "HEALTHCHECK" in line)
        health = run(json.loads(check.partition("CMD ")[2]))  # process 1 is none of kretain's here
        health.communicate(timeout=60)
        assert health.returncode == 0


# -- the packages of ``make dist``: what is in them, and that a bare environment runs kretain from the wheel --


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.thorough  # it builds and installs
def test_wheel_contains_types_completions_and_manual_pages_but_no_tests(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {"kretain/py.typed", "retention_cli/py.typed", "kretain/__init__.pyi"} <= names
    shared = {name.partition(".data/data/share/")[2] for name in names if ".data/data/share/" in name}
    completions = {"bash-completion/completions/kretain", "zsh/site-functions/_kretain"}
    assert completions | {"fish/vendor_completions.d/kretain.fish", "man/man1/kretain-plan.1"} <= shared
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.mark.thorough  # it builds and installs
def test_source_package_builds_alone_and_contains_the_docs(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        modes = {one.name.partition("/")[2]: one.mode for one in source.getmembers()}
    assert {"pyproject.toml", "README.md", "LICENSE", "docs/policy.md", "completions/kretain.bash"} <= modes.keys()
    assert {"docs/runbooks/lib.sh", "docs/runbooks/undo.md"} <= modes.keys()
    assert not [name for name in modes if name.startswith((".venv", ".git/"))]
    assert modes["docs/runbooks/undo.sh"] & 0o111, "runbooks can be run"


@pytest.mark.thorough  # it builds and installs
def test_wheel_in_a_bare_environment_runs_and_names_missing_extras(dist: Path, tmp_path: Path) -> None:
    """No extra is installed: commands work, and a missing part is named with the command for this wheel."""
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=True)
    wheel = next(dist.glob("*.whl"))
    pip = [str(bare / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)]
    assert subprocess.run(pip, timeout=300, check=False).returncode == 0
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("KRETAIN_", "PYTHON"))}
    environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")  # a Kafka in it would start: only its download needs the extra

    def kretain(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(bare / "bin" / "kretain"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=60, check=False
        )

    assert kretain("--version").stdout == "kretain 0.1.0\n"
    assert "kretain_completion" in kretain("completion", "bash").stdout
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ntopics:\n  - match: a\n    retention.commitoffset.enable: true\n"
        "    retention.commitoffset.hours: 1\n    archive: /archive\n"
    )
    lacks = kretain("archive", "list", "./archive/")
    assert lacks.returncode == 1
    assert f"Parquet needs pyarrow: {bare / 'bin' / 'python'} -m pip install '{wheel}[parquet]'" in lacks.stderr
    (tmp_path / "log" / "a-0").mkdir(parents=True)
    (tmp_path / "msk.properties").write_text("security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n")
    (tmp_path / "kerberos.properties").write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"
    )
    for extra, asked in (
        ("spark", ["plan", "a", "-b", "127.0.0.1:1", "--older-than", "1d", "--spark"]),
        ("spark", ["profile", "a", "-b", "127.0.0.1:1", "--spark"]),
        ("parquet", ["segments", "scan", str(tmp_path / "log"), "--broker-id", "1", "--out", "seen.parquet"]),
        ("metrics", ["watch", "-b", "127.0.0.1:1", "-p", "policy.yaml"]),
        ("aws", ["plan", "a", "-b", "127.0.0.1:1", "-c", "msk.properties", "--older-than", "1d"]),
        ("kerberos", ["groups", "-c", "kerberos.properties"]),
        ("demo", ["demo"]),
    ):
        lacks = kretain(*asked)
        assert lacks.returncode in (1, 2), (asked, lacks.stderr)
        assert f"pip install '{wheel}[{extra}]'" in lacks.stderr, (asked, lacks.stderr)
        assert "internal error" not in lacks.stderr
    unreachable = kretain("plan", "-b", "127.0.0.1:1", "-p", "policy.yaml", "--timeout", "1s")
    assert (unreachable.returncode, unreachable.stdout) == (1, "")
    assert (bare / "share" / "man" / "man1" / "kretain.1").is_file()
    assert list((bare / "lib").glob("python*/site-packages/kretain/**/*.pyc")), "compiled when it was installed"
