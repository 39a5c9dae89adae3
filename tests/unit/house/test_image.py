"""The container image without an engine: its steps in a bare environment, run in a chroot with a read-only root."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.system.healthcheck import address, main

ROOT = Path(__file__).parents[3]
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


def test_silent_watch_is_unhealthy(tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(b"kretain\0watch\0--listen\x00127.0.0.1:1\0")
    assert main(tmp_path) == 1
    (tmp_path / "cmdline").write_bytes(b"kretain\0plan\0")
    assert main(tmp_path) == 0


def test_every_file_copied_into_the_image_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in steps("COPY"):
        if not line.startswith("--from"):
            for name in line.split()[:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in ignored


@contextlib.contextmanager
def root_with(environment: Path, state: Path, folder: Path) -> Iterator[Path]:
    """A root that has this machine's Python and libraries, the environment, and nothing that can be written to."""
    mounts: list[Path] = []
    root = folder / "root"

    def mount(*words: str, at: str) -> None:
        place = root / at
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *words, str(place)], check=True)
        mounts.append(place)

    try:
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
    finally:
        for place in reversed(mounts):
            subprocess.run(["umount", str(place)], check=True)


@pytest.mark.long
def test_image_steps_build_a_kretain_that_runs_without_privileges_or_a_shell(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "this makes mounts"
    source, environment, state = tmp_path / "src", tmp_path / "environment", tmp_path / "state"
    for line in steps("COPY"):
        if line.startswith("--from"):
            continue
        *names, target = line.split()
        for name in names:
            into = source / target if target != "./" else source / name
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, into)
    for line in steps("RUN"):
        words = shlex.split(line.replace("/opt/kretain", str(environment)))
        words = [sys.executable, *words[1:]] if words[0] == "python" else words
        subprocess.run(words, cwd=source, check=True, timeout=400, env={"PATH": os.environ["PATH"], **_proxies()})
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
            environ = {**variables, "PATH": "/opt/kretain/bin"}
            return subprocess.Popen(
                [shutil.which(command[0]) or command[0], *command[1:]],
                env=environ,
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


def _proxies() -> dict[str, str]:
    """Return the settings that pip needs on this machine to reach its index."""
    kept = ("PIP_", "HTTP", "http", "NO_PROXY", "no_proxy", "SSL_", "REQUESTS_", "HOME")
    return {name: value for name, value in os.environ.items() if name.startswith(kept)}


# -- the packages of ``make dist``: what is in them, and that a bare environment runs kretain from the wheel --


pytestmark = pytest.mark.thorough  # it builds and installs


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_wheel_contains_types_completions_and_manual_pages_but_no_tests(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {"kretain/py.typed", "retention_cli/py.typed", "kretain/__init__.pyi"} <= names
    shared = {name.partition(".data/data/share/")[2] for name in names if ".data/data/share/" in name}
    completions = {"bash-completion/completions/kretain", "zsh/site-functions/_kretain"}
    assert completions | {"fish/vendor_completions.d/kretain.fish", "man/man1/kretain-plan.1"} <= shared
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_source_package_builds_alone_and_contains_the_docs(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        modes = {one.name.partition("/")[2]: one.mode for one in source.getmembers()}
    assert {"pyproject.toml", "README.md", "LICENSE", "docs/policy.md", "completions/kretain.bash"} <= names
    assert not [name for name in names if name.startswith((".venv", ".git/"))]
    assert {"docs/runbooks/lib.sh", "docs/runbooks/undo.md"} <= names
    assert modes["docs/runbooks/undo.sh"] & 0o111, "runbooks can be run"


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
    assert f"Parquet needs pyarrow: pip install '{wheel}[parquet]'" in lacks.stderr
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
