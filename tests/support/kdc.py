"""A Kerberos KDC on this machine, of the system's own krb5-kdc and krb5-admin-server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kretain.embedded.node import free_ports
from tests.support.world import wait_until

REALM = "KRETAIN.TEST"
_SBIN = ":".join((os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"))
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")


class Kdc:
    """A realm with its own database, port and configuration; nothing of the machine's own Kerberos is read."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.conf = folder / "krb5.conf"
        (port,) = free_ports(1)
        self.address = ("127.0.0.1", port)
        self.configure()
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/kadm5.acl\n  supported_enctypes = aes256-cts:normal\n }}\n"
        )
        self.environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/cache",
        }
        self._process: subprocess.Popen | None = None
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def configure(self, name: str = "krb5.conf", **more: str) -> Path:
        """Write a krb5.conf for this realm; ``more`` goes into its libdefaults."""
        path = self.folder / name
        defaults = {
            "default_realm": REALM,
            "dns_lookup_kdc": "false",
            "dns_lookup_realm": "false",
            "dns_canonicalize_hostname": "false",
            "rdns": "false",
            "udp_preference_limit": "1",  # TCP
            **more,
        }
        lines = "".join(f" {key} = {value}\n" for key, value in defaults.items())
        host, port = self.address
        path.write_text(f"[libdefaults]\n{lines}[realms]\n {REALM} = {{\n  kdc = {host}:{port}\n }}\n")
        return path

    def run(self, tool: str, *arguments: str, given: str | None = None) -> str:
        found = shutil.which(tool, path=_SBIN)
        assert found is not None
        told = subprocess.run(
            [found, *arguments],
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        return told.stdout

    def principal(self, name: str) -> Path:
        """Add a principal with a random key; return its keytab."""
        keytab = self.folder / f"{name.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} -norandkey {name}")
        return keytab

    def start(self, *, ahead: str | None = None) -> None:
        """Start it, with a clock that is ``ahead`` (such as ``+1h``)."""
        kdc, faketime = (shutil.which(tool, path=_SBIN) for tool in ("krb5kdc", "faketime"))
        assert kdc is not None
        clock = [] if ahead is None else [str(faketime), "-f", ahead]
        with (self.folder / "kdc.log").open("ab") as log:
            command = [*clock, kdc, "-n", "-r", REALM, "-P", str(self.folder / "kdc.pid")]
            self._process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._listens, "the KDC does not listen")

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)  # faketime's child, too
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection(self.address, 1).close()
        except OSError:
            return False
        return True


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """A running KDC. Where the machine has none, and .ci/run could install none, its tests are skipped."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_SBIN) is None]
    if importlib.util.find_spec("gssapi") is None:
        missing.append("gssapi")
    if missing:
        why = (
            f"the Kerberos tests need {', '.join(missing)}: apt-get install libkrb5-dev krb5-kdc krb5-admin-server "
            "krb5-user faketime, then .venv/bin/pip install -e '.[kerberos]'"
        )
        pytest.skip(why)
    made = Kdc(folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()
