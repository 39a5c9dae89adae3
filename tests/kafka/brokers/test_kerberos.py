"""Kerberos against a real KDC: keytabs and ticket caches, over both protocols, and each way in which tickets fail."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kretain.embedded.cluster import free_ports
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.security.client_files import read_properties, translate
from retention_cli.brokers.security.settings import NO_KERBEROS
from tests.conftest import QUICK
from tests.support.client_files import key_pem, properties, self_signed
from tests.support.clusters import EmbeddedKafka
from tests.support.says import refuses
from tests.support.secured import ask
from tests.support.world import OLD, World, wait_until, written

REALM = "KRETAIN.TEST"
_SBIN = ":".join((os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"))
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "faketime")


def _tool(name: str) -> str:
    found = shutil.which(name, path=_SBIN)
    assert found is not None, name
    return found


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
        done = subprocess.run(
            [_tool(tool), *arguments],
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def principal(self, name: str) -> Path:
        keytab = self.folder / f"{name.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {name}")
        self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} -norandkey {name}")
        return keytab

    def start(self, *, ahead: str | None = None) -> None:
        """Start it, with a clock that is ``ahead`` (such as ``+1h``)."""
        clock = [] if ahead is None else [_tool("faketime"), "-f", ahead]
        with (self.folder / "kdc.log").open("ab") as log:
            command = [*clock, _tool("krb5kdc"), "-n", "-r", REALM, "-P", str(self.folder / "kdc.pid")]
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
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0


KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
SESSION_MS = 3000
US = f"kretain@{REALM}"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A running KDC. Where the machine has none, and .ci/run could install none, its tests are skipped."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_SBIN) is None]
    if importlib.util.find_spec("gssapi") is None:
        missing.append("gssapi")
    if missing:
        pytest.skip(
            f"the Kerberos tests need {', '.join(missing)}: apt-get install libkrb5-dev krb5-kdc krb5-admin-server "
            "krb5-user faketime, then .venv/bin/pip install -e '.[kerberos]'"
        )
    made = Kdc(tmp_path_factory.mktemp("kerberos") / "kdc")
    with ExitStack() as stack:
        stack.callback(made.stop)
        made.start()
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("KRB5_CONFIG", str(made.conf))
        patched.setenv("KRB5CCNAME", made.environment["KRB5CCNAME"])
        patched.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={made.conf}")
        yield made


@pytest.fixture(scope="module")
def ours(realm: Kdc) -> Path:
    return realm.principal("kretain")


@contextmanager
def brokers(keytab: Path, protocol: str, **more: str) -> Iterator[EmbeddedKafka]:
    login = f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/127.0.0.1@{REALM}";'
    settings = QUICK | {
        "listener.name.secure.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.secure.gssapi.sasl.jaas.config": login,
        "listener.name.secure.sasl.kerberos.service.name": "kafka",
        "listener.name.secure.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:kretain",
        **more,
    }
    with EmbeddedKafka(1, settings=settings, secure_protocol=protocol) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def service(realm: Kdc) -> Path:
    return realm.principal("kafka/127.0.0.1")


@pytest.fixture(scope="module")
def kerberos(service: Path, archived_classes: None) -> Iterator[EmbeddedKafka]:
    with brokers(service, "SASL_PLAINTEXT") as cluster:
        yield cluster


@pytest.fixture
def topic(kerberos: EmbeddedKafka, tmp_path: Path) -> str:
    return World(kerberos.bootstrap, tmp_path / "unused").filled(OLD, {"a": 8})


def file_of(tmp_path: Path, **more: object) -> Path:
    return properties(tmp_path, **{"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", **more})


def with_keytab(tmp_path: Path, keytab: Path, principal: str = US, **more: object) -> Path:
    ours = {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": principal}
    return file_of(tmp_path, **{**ours, **more})


def test_java_file_with_keytab_plans_and_trims_and_leaves_ticket_cache_alone(
    kerberos: EmbeddedKafka, ours: Path, realm: Kdc, topic: str, tmp_path: Path
) -> None:
    login = f'{KRB5} useKeyTab=true storeKey=true keyTab="{ours}" principal="{US}" useTicketCache=false;'
    config = file_of(tmp_path, sasl_jaas_config=login, sasl_kerberos_service_name="kafka")
    Path(realm.environment["KRB5CCNAME"].removeprefix("FILE:")).unlink(missing_ok=True)
    for arguments in (("groups",), ("offsets", topic), ("explain", topic, "--consumed-after", "1h")):
        ask(kerberos, config, *arguments, check=0)
    ask(kerberos, config, "trim", topic, "--consumed-after", "1h", "--yes", check=0)
    assert World(kerberos.bootstrap, tmp_path / "unused").ends(topic, 0)[0] == 8
    assert not Path(realm.environment["KRB5CCNAME"].removeprefix("FILE:")).exists()


def test_sasl_ssl_with_librdkafka_keys_connects(service: Path, ours: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.pem").write_text(self_signed() + key_pem())
    (tmp_path / "ca.pem").write_text(self_signed())
    listener = "listener.name.secure.ssl.keystore"
    tls = {f"{listener}.type": "PEM", f"{listener}.location": str(tmp_path / "broker.pem")}
    config = with_keytab(tmp_path, ours, security_protocol="SASL_SSL", ssl_ca_location=tmp_path / "ca.pem")
    with brokers(service, "SASL_SSL", **tls) as kafka:
        assert ask(kafka, config).code == 0


def test_records_that_cannot_be_read_hold_their_partitions_and_writes_are_refused(
    kerberos: EmbeddedKafka, ours: Path, topic: str, tmp_path: Path
) -> None:
    config = with_keytab(tmp_path, ours)
    policy = written(
        tmp_path / "policy.yaml",
        f"version: 1\ntopics:\n  - match: {topic}\n    retention.max.eventtime.ms: 1h\n    unconsumed: trim\n"
        '    retention.eventtime.source: "header:at"\n',
    )
    ask(kerberos, config, "trim", "-p", str(policy), "--yes", check=0)
    assert World(kerberos.bootstrap, tmp_path / "unused").ends(topic, 0)[0] == 0
    planned = ask(kerberos, config, "plan", "-p", str(policy), "-o", "json", check=0)
    assert "hold" in planned.out
    profiled = ask(kerberos, config, "profile", topic, check=5)
    found = ask(kerberos, config, "doctor", topic, "-o", "json", check=0)
    refused = ask(kerberos, config, "cluster", "init", "--yes", check=1)
    assert refused.err.count("\n") == 1, refused.err
    for said in (planned.out, found.out, profiled.out + profiled.err, refused.err):
        assert NO_KERBEROS in " ".join(said.split()), said


def test_ticket_cache_serves_until_its_ticket_expires(
    kerberos: EmbeddedKafka, ours: Path, realm: Kdc, tmp_path: Path
) -> None:
    cache = f"FILE:{tmp_path}/tickets"
    config = file_of(tmp_path, sasl_jaas_config=f'{KRB5} useTicketCache=true ticketCache="{cache}";')
    refuses(ask(kerberos, config), f"Kerberos: there is no ticket in {cache}: run kinit, or name a keytab")
    realm.run("kinit", "-k", "-t", str(ours), "-l", "2s", "-c", cache, "kretain")
    gone = time.monotonic() + 3
    realm.run("kinit", "-k", "-t", str(ours), "kretain")
    ask(kerberos, file_of(tmp_path), check=0)  # the user's own cache
    wait_until(lambda: time.monotonic() > gone, "the ticket has expired", 10)
    config = file_of(tmp_path, sasl_jaas_config=f'{KRB5} useTicketCache=true ticketCache="{cache}";')
    expired = ask(kerberos, config)
    assert (expired.code, expired.err) == (1, "kretain: Kerberos: the ticket has expired: renew it with kinit\n")


def test_reader_with_keytab_renews_its_ticket_for_as_long_as_it_runs(
    kerberos: EmbeddedKafka, realm: Kdc, tmp_path: Path
) -> None:
    """Tickets of 4 s, sessions of 3 s: the connection is authenticated anew with a ticket that has expired, or is new."""
    keytab = realm.principal("brief")
    realm.run("kadmin.local", "-r", REALM, "-q", "modprinc -maxlife 4seconds brief")
    given = read_properties(
        with_keytab(tmp_path, keytab, f"brief@{REALM}", bootstrap_servers=kerberos.secure_bootstrap)
    )
    with ClusterReader(translate(given), 5) as reader:
        began = time.monotonic()
        while time.monotonic() < began + 10:
            assert reader.metadata().cluster_id == kerberos.cluster_id
            time.sleep(0.2)  # it is the run that must last


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sasl_kerberos_service_name": "kafak"}, "does not know the brokers' service: is sasl.kerberos.service.name"),
        ({"sasl_kerberos_principal": "kretain@OTHER.TEST"}, "has no key of kretain@OTHER.TEST: see klist -k"),
        ({"sasl_kerberos_keytab": "/nowhere/keytab"}, "sasl.kerberos.keytab: /nowhere/keytab cannot be read"),
    ],
)
def test_ticket_that_cannot_be_had_is_reported_in_one_line(
    kerberos: EmbeddedKafka, ours: Path, tmp_path: Path, more: dict[str, str], said: str
) -> None:
    refuses(ask(kerberos, with_keytab(tmp_path, ours, **more)), said)


def test_keytab_of_another_realm_or_with_an_old_key_is_reported_in_one_line(
    kerberos: EmbeddedKafka, realm: Kdc, tmp_path: Path
) -> None:
    changed, gone, elsewhere = realm.principal("changed"), realm.principal("gone"), tmp_path / "elsewhere.keytab"
    realm.run("kadmin.local", "-r", REALM, "-q", "cpw -randkey changed")
    realm.run("kadmin.local", "-r", REALM, "-q", "delprinc -force gone")
    entry = "addent -password -p kretain@OTHER.TEST -k 1 -e aes256-cts"
    realm.run("ktutil", given=f"{entry}\nsecret\nwkt {elsewhere}\nquit\n")
    for keytab, name, said in (
        (changed, f"changed@{REALM}", "the KDC does not accept the keytab's key"),
        (gone, f"gone@{REALM}", "the KDC does not know this principal"),
        (elsewhere, "kretain@OTHER.TEST", "no KDC is known for this realm: is the realm of sasl.kerberos.principal"),
    ):
        refuses(ask(kerberos, with_keytab(tmp_path, keytab, name)), said)


def test_wrong_clock_and_absent_kdc_are_each_reported_in_one_line(
    kerberos: EmbeddedKafka, ours: Path, realm: Kdc, tmp_path: Path
) -> None:
    config = with_keytab(tmp_path, ours)
    strict = realm.configure("strict.conf", kdc_timesync="0")
    realm.stop()
    try:
        absent = ask(kerberos, config, timeout="5s")
        realm.start(ahead="+1h")
        skewed, adjusted = ask(kerberos, config, KRB5_CONFIG=str(strict)), ask(kerberos, config)
    finally:
        realm.stop()
        realm.start()
    refuses(absent, "Kerberos: no KDC answers")
    refuses(skewed, "Kerberos: the clocks of this machine and of the KDC differ too much")
    # Here the library used the KDC's clock.
    refuses(adjusted, "are the clocks of this machine, the KDC and the broker right?")
