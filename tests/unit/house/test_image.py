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
from collections.abc import Iterator
from pathlib import Path

import pytest

from kretain.system.healthcheck import address, main

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "Dockerfile"


def steps(name: str) -> list[str]:
    """Return the arguments of a Dockerfile's instructions of this name."""
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
