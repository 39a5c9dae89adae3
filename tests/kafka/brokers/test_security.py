"""Who we are and what we may: TLS, SASL, Java client files as they are, and principals that see only some of it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kretain.embedded.jars import find_java
from tests.conftest import QUICK
from tests.support.client_files import properties
from tests.support.clusters import EmbeddedKafka
from tests.support.says import refuses, says
from tests.support.secured import allow, ask, said_of_a_trim, show_none
from tests.support.watching import watching
from tests.support.world import OLD, World, consumed, run_cli, wait_until, written

SECRET = "hunter2-s3cret"
STORE = "st0re-s3cret"


def keytool(*arguments: str) -> None:
    beside = find_java().resolve().with_name("keytool")
    tool = str(beside) if beside.exists() else shutil.which("keytool")
    assert tool is not None
    subprocess.run([tool, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA, a broker's certificate for 127.0.0.1 alone, and a client's: as JKS, PKCS12 and PEM.

    Made by Java's own keytool, as an operator would.
    """
    made = tmp_path_factory.mktemp("certificates")
    for name, store, kind, san, file in (
        ("broker", "broker.p12", "PKCS12", "ip:127.0.0.1", "ca.pem"),
        ("client", "client.jks", "JKS", "dns:client", "client.pem"),
        ("x", "x.p12", "PKCS12", "dns:stranger", "stranger.pem"),
    ):
        keytool(
            *("-genkeypair", "-alias", name, "-keystore", str(made / store), "-storetype", kind, "-keyalg", "RSA"),
            *("-dname", f"CN={name}", "-validity", "30", "-ext", f"san={san}"),
            *("-storepass", STORE, "-keypass", STORE, "-noprompt"),
        )
        keytool(
            *("-exportcert", "-rfc", "-alias", name, "-keystore", str(made / store), "-storepass", STORE),
            *("-file", str(made / file)),
        )
    for name, file, store, kind in (
        ("ca", "ca.pem", "trust.jks", "JKS"),
        ("ca", "ca.pem", "trust.p12", "PKCS12"),
        ("client", "client.pem", "clients.p12", "PKCS12"),
    ):
        keytool(
            *("-importcert", "-alias", name, "-file", str(made / file), "-keystore", str(made / store)),
            *("-storetype", kind, "-storepass", STORE, "-noprompt"),
        )
    keytool(
        *("-importkeystore", "-srckeystore", str(made / "client.jks"), "-srcstorepass", STORE),
        *("-destkeystore", str(made / "client.p12"), "-deststoretype", "PKCS12", "-deststorepass", STORE, "-noprompt"),
    )
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.serialization import pkcs12

    store12 = pkcs12.load_pkcs12((made / "client.p12").read_bytes(), STORE.encode())
    assert store12.key is not None
    for name, protection in (
        ("client.key", ser.NoEncryption()),
        ("client-sealed.key", ser.BestAvailableEncryption(STORE.encode())),
    ):
        (made / name).write_bytes(store12.key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, protection))
    (made / "both.pem").write_text((made / "client.pem").read_text() + (made / "client.key").read_text())
    return made


def broker_tls(certificates: Path) -> dict[str, str]:
    return {
        "listener.name.secure.ssl.keystore.location": str(certificates / "broker.p12"),
        "listener.name.secure.ssl.keystore.type": "PKCS12",
        "listener.name.secure.ssl.keystore.password": STORE,
        "listener.name.secure.ssl.key.password": STORE,
    }


# -- SASL over TLS, with ACLs --------------------------------------------------------------


@pytest.fixture(scope="module")
def sasl(certificates: Path) -> Iterator[EmbeddedKafka]:
    settings = (
        broker_tls(certificates)
        | QUICK
        | {
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}" user_bob="{SECRET}";'
            ),
            "listener.name.secure.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "listener.name.secure.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:carol",
        }
    )
    with EmbeddedKafka(1, settings=settings, secure_protocol="SASL_SSL") as cluster:
        world = World(cluster.bootstrap, Path("unused"))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 4096), SECRET.encode())
            world.admin.alter_user_scram_credentials([wanted])["carol"].result(60)
        yield cluster


@pytest.mark.parametrize(
    ("mechanism", "user", "store", "kind"),
    [
        ("PLAIN", "alice", "trust.jks", "JKS"),
        ("SCRAM-SHA-256", "carol", "trust.p12", "PKCS12"),
        ("SCRAM-SHA-512", "carol", "ca.pem", "PEM"),
    ],
)
def test_java_client_file_connects_with_each_mechanism_and_trust_store(
    sasl: EmbeddedKafka, certificates: Path, tmp_path: Path, mechanism: str, user: str, store: str, kind: str
) -> None:
    """So does the second client, which reads records."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'org.apache.kafka.common.security.{module} required username="{user}" password="{SECRET}";'
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": login,
        "ssl_truststore_location": certificates / store,
        "ssl_truststore_type": kind,
        "key_deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    }
    if kind != "PEM":
        given["ssl_truststore_password"] = STORE
    topic = World(sasl.bootstrap, tmp_path / "unused").filled(OLD)
    assert "10 records" in ask(sasl, properties(tmp_path, **given), "profile", topic, check=0).out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl_password": "wrong-s3cret"}, "refused"),
        ({"sasl_username": "nobody"}, "refused"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "refused"),
        ({"ssl_ca_location": "stranger.pem"}, "could not be reached"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "could not be reached"),
        ({"security_protocol": "PLAINTEXT"}, "could not be reached"),
    ],
)
def test_refused_principal_is_reported_in_one_line_without_the_secret(
    sasl: EmbeddedKafka, certificates: Path, tmp_path: Path, change: dict, said: str
) -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": SECRET,
        **change,
        "ssl_ca_location": certificates / change.get("ssl_ca_location", "ca.pem"),
    }
    config = properties(tmp_path, **given)
    arguments = ("plan", "x", "--consumed-after", "1d", "-vv", "-b", sasl.secure_bootstrap, "-c", str(config))
    with ThreadPoolExecutor(1) as beside:  # both wait for as long as they may
        loudly = beside.submit(run_cli, *arguments, "--timeout", "4s")
        began = time.monotonic()
        done = ask(sasl, config, timeout="4s")
        assert time.monotonic() - began < 40
        loud = loudly.result()
    refuses(done)
    assert said in done.err or (said == "refused" and "are name and password right?" in done.err)
    show_none([done.err, loud.err, loud.out], SECRET, "wrong-s3cret")


def test_certificate_of_another_host_is_refused_unless_checking_is_off(
    sasl: EmbeddedKafka, certificates: Path, tmp_path: Path
) -> None:
    """The broker's certificate is for 127.0.0.1; it is reached as localhost."""
    bootstrap = sasl.secure_bootstrap.replace("127.0.0.1", "localhost")
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": SECRET,
        "ssl_ca_location": certificates / "ca.pem",
    }
    for more, code in (({}, 1), ({"ssl_endpoint_identification_algorithm": ""}, 0)):
        config = properties(tmp_path, **given, **more)
        assert run_cli("groups", "-b", bootstrap, "-c", str(config), "--timeout", "3s").code == code


# -- what a principal may ----------------------------------------------------------------


@pytest.fixture
def bob(sasl: EmbeddedKafka, certificates: Path, tmp_path: Path) -> Iterator[tuple[World, Path]]:
    """A principal without any rights, and a world in which to give him some."""
    world = World(sasl.bootstrap, tmp_path / "state")
    config = properties(
        tmp_path,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="bob",
        sasl_password=SECRET,
        ssl_ca_location=certificates / "ca.pem",
    )
    yield world, config
    anything: Any = None
    everything = AclBindingFilter(
        *(ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    for future in world.admin.delete_acls([everything]).values():
        future.result(60)


TOPIC_RIGHTS = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ, AclOperation.DELETE)


def row_of(sasl: EmbeddedKafka, config: Path, topic: str, *arguments: str) -> Any:
    """Plan with these arguments; return the topic's first partition."""
    return ask(sasl, config, "plan", topic, *arguments, "-o", "json").json()["partitions"][0]


def codes_of(sasl: EmbeddedKafka, config: Path, topic: str, *arguments: str) -> list[str]:
    """Return the codes of its reasons."""
    return [one["code"] for one in row_of(sasl, config, topic, *arguments)["reasons"]]


def test_principal_that_sees_only_some_groups_trims_nothing(sasl: EmbeddedKafka, bob: tuple[World, Path]) -> None:
    """The trap of F8: without DESCRIBE on the cluster the listing is short, and nothing says so."""
    world, config = bob
    topic = world.filled(OLD)
    world.commit("seen", topic, 9)
    world.commit("hidden", topic, 2)
    allow(world, "bob", ResourceType.TOPIC, topic, *TOPIC_RIGHTS)
    allow(world, "bob", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
    allow(world, "bob", ResourceType.GROUP, "seen", AclOperation.DESCRIBE)

    def listed() -> set[str]:
        return {row["group"] for row in ask(sasl, config, "groups", "-o", "json").json()["groups"]}

    wait_until(lambda: listed() == {"seen"}, "the short listing")
    asked = (sasl, config, topic, "--consumed-after", "1h")
    row = row_of(*asked)
    (reason,) = row["reasons"]
    assert (row["action"], row["min_commit"], reason["code"]) == ("hold", None, "F8")
    assert "--operation Describe" in reason["text"]
    assert "no DESCRIBE on the cluster" in ask(sasl, config, "doctor", topic, check=1).out
    # With it, and with the group that may not be read, that group is F3 …
    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    wait_until(lambda: codes_of(*asked) == ["F3"], "the group that may not be read")
    # … and with all rights the smallest commit is what it always was.
    allow(world, "bob", ResourceType.GROUP, "hidden", AclOperation.DESCRIBE)
    wait_until(lambda: not codes_of(*asked), "all rights")
    row = row_of(*asked)
    assert (row["action"], row["trim_to"], row["min_commit_by"]) == ("trim", 2, "group:hidden")
    ask(sasl, config, "doctor", topic, check=0)
    for group in ("seen", "hidden"):
        world.delete_group(group)


def test_tenant_trims_within_the_scope_of_its_rights(
    sasl: EmbeddedKafka, bob: tuple[World, Path], tmp_path: Path
) -> None:
    """F8: a user with a prefix's rights alone, whose policy names the readers and the scope."""
    world, config = bob
    topic = world.filled(OLD)
    offsets = {"team-a.orders": 6, "team-a.audit": 4, "team-b.reader": 2}
    for group, offset in offsets.items():
        world.commit(group, topic, offset)
    allow(world, "bob", ResourceType.TOPIC, topic, *TOPIC_RIGHTS)
    allow(world, "bob", ResourceType.GROUP, "team-a.orders", AclOperation.DESCRIBE)
    policy = tmp_path / "policy.yaml"

    def write(required: str) -> None:
        scope = "groups: {scope: team-a.*, offsets.topic: hidden}"
        rule = "retention.commitoffset.enable: true, retention.commitoffset.hours: 1"
        policy.write_text(f"version: 1\n{scope}\ntopics: [{{match: '*', {rule}, {required}}}]\n")

    asked = (sasl, config, topic, "-p", str(policy))
    write("groups.require: [team-a.orders]")
    wait_until(lambda: "F8" in codes_of(*asked), "the right to one name is none to the scope")
    (text,) = (one["text"] for one in row_of(*asked)["reasons"] if one["code"] == "F8")
    assert "--group 'team-a.' --resource-pattern-type prefixed --operation Describe" in text
    ask(sasl, config, "doctor", topic, "-p", str(policy), check=1)
    allow(world, "bob", ResourceType.GROUP, "team-a.", AclOperation.DESCRIBE, pattern=ResourcePatternType.PREFIXED)
    wait_until(
        lambda: row_of(*asked)["trim_to"] == 4, "every group of the scope counts, also those that are not required"
    )
    says(
        " ".join(ask(sasl, config, "doctor", topic, "-p", str(policy), check=0).out.split()),
        "only groups of team-a.* are visible",
    )
    write("groups.require: [team-a.absent]")
    assert set(codes_of(*asked)) == {"F4"}
    write("unconsumed: hold}, {match: no-such-topic, groups.require: [team-a.orders]")
    assert set(codes_of(*asked)) == {"F8", "F9"}, "no required group vouches for the groups of this topic"
    write("groups.require: [team-a.orders]")
    # With DESCRIBE on the cluster the other team's group is listed; it still can't be read, and is outside the scope.
    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    policy.write_text(policy.read_text().replace("scope: team-a.*, ", ""))
    wait_until(lambda: set(codes_of(*asked)) == {"F3"}, "the group of the other team")
    write("groups.require: [team-a.orders]")
    assert row_of(*asked)["trim_to"] == 4
    # What may be read counts, wherever it is.
    allow(world, "bob", ResourceType.GROUP, "team-b.reader", AclOperation.DESCRIBE)
    wait_until(lambda: row_of(*asked)["trim_to"] == 2, "the other team's group")
    ask(sasl, config, "trim", topic, "-p", str(policy), "--yes", "-o", "json", check=0)
    assert world.ends(topic)[0] == 2
    # A group of the scope that may not be read is no other team's.
    allow(world, "bob", ResourceType.GROUP, "team-a.audit", AclOperation.DESCRIBE, permission=AclPermissionType.DENY)
    wait_until(lambda: set(codes_of(*asked)) == {"F3"}, "a group of the scope that cannot be read")
    for group in offsets:
        world.delete_group(group)


def test_hidden_offsets_topic_holds_when_no_group_is_listed(
    sasl: EmbeddedKafka, bob: tuple[World, Path], tmp_path: Path
) -> None:
    """F9: an authorization error is no answer to whether there are groups. It was taken for "no group" (F4)."""
    world, config = bob
    topic = world.filled(OLD)
    allow(world, "bob", ResourceType.TOPIC, topic, *TOPIC_RIGHTS)
    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    policy = written(tmp_path / "policy.yaml", f"version: 1\ngroups: {{ignore: ['*']}}\ntopics: [{{match: {topic}}}]\n")
    asked = (sasl, config, topic, "--consumed-after", "1h", "-p", str(policy))
    wait_until(lambda: codes_of(*asked) == ["F9"], "the hidden topic")
    shown = policy.read_text()
    allow(world, "bob", ResourceType.GROUP, "required", AclOperation.DESCRIBE)
    world.commit("required", topic, 6)
    for more, expected, what in (
        ("", ["F9"], "no group is required, so none vouches for the listing"),
        (", require: [absent]", ["F4"], "a required group that is not there"),
        (", require: [required]", [], "the required group has committed"),
    ):
        policy.write_text(shown.replace("ignore: ['*']", f"offsets.topic: hidden{more}"))
        wait_until(lambda expected=expected: codes_of(*asked) == expected, what)  # type: ignore[misc]
    world.delete_group("required")
    policy.write_text(shown)
    wait_until(lambda: codes_of(*asked) == ["F9"], "the hidden topic")
    allow(world, "bob", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
    wait_until(lambda: codes_of(*asked) == ["F4"], "the right to describe it")


def test_doctor_names_who_may_write_to_kretains_topics(
    sasl: EmbeddedKafka, bob: tuple[World, Path], tmp_path: Path
) -> None:
    """Who may write the policy topic decides what may be trimmed; the brokers' ACLs say who."""
    world, config = bob
    topic = world.filled(OLD, {"done": 9})
    policy = written(tmp_path / "policy.yaml", f"state: cluster\n{consumed(topic)}\n    retention.ms: cluster\n")
    run_cli("cluster", "init", "--yes", "-b", sasl.bootstrap, check=0)
    allow(world, "bob", ResourceType.TOPIC, topic, *TOPIC_RIGHTS)
    allow(world, "bob", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    for own in ("_kretain_policy", "_kretain_state"):
        allow(world, "bob", ResourceType.TOPIC, own, *TOPIC_RIGHTS, AclOperation.WRITE)

    def said() -> str:
        return ask(sasl, config, "doctor", topic, "-p", str(policy), "-o", "json").out

    wait_until(lambda: "no other user has an ACL to write to _kretain_policy" in said(), "bob's own right")
    allow(world, "mallory", ResourceType.TOPIC, "*", AclOperation.ALL)
    wait_until(lambda: "User:mallory may write to _kretain_policy, and so set what the policy" in said(), "her right")
    assert "User:mallory may write to _kretain_state, and so make kretain forget groups (F6)" in said()
    allow(
        world,
        "mallory",
        *(ResourceType.TOPIC, "_kretain_policy", AclOperation.WRITE),
        permission=AclPermissionType.DENY,
    )
    wait_until(lambda: "no other user has an ACL to write to _kretain_policy" in said(), "what she may not")


# -- client certificates -----------------------------------------------------------------


@pytest.fixture(scope="module")
def mutual(certificates: Path) -> Iterator[EmbeddedKafka]:
    more = {
        "listener.name.secure.ssl.client.auth": "required",
        "listener.name.secure.ssl.truststore.location": str(certificates / "clients.p12"),
        "listener.name.secure.ssl.truststore.type": "PKCS12",
        "listener.name.secure.ssl.truststore.password": STORE,
    }
    with EmbeddedKafka(1, settings=broker_tls(certificates) | more | QUICK, secure_protocol="SSL") as cluster:
        yield cluster


def settings_of(certificates: Path, given: dict[str, str]) -> dict[str, str]:
    """Return settings in which each file of the folder is its path, or where a PEM is wanted its content."""
    inline = {"ssl_keystore_certificate_chain", "ssl_keystore_key"} & given.keys()
    texts = {key: (certificates / given[key]).read_text().strip().replace("\n", "\\n") for key in inline}
    paths = {key: str(certificates / value) for key, value in given.items() if key.endswith("location")}
    return {"security_protocol": "SSL", "ssl_ca_location": str(certificates / "ca.pem"), **given, **paths, **texts}


@pytest.mark.parametrize(
    "given",
    [
        {"ssl_keystore_location": "client.jks", "ssl_keystore_password": STORE, "ssl_key_password": STORE},
        {"ssl_keystore_location": "client.p12", "ssl_keystore_password": STORE, "ssl_key_password": STORE},
        {"ssl_certificate_location": "client.pem", "ssl_key_location": "client.key"},
        {
            "ssl_certificate_location": "client.pem",
            "ssl_key_location": "client-sealed.key",
            "ssl_key_password": STORE,
        },
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": "both.pem"},
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_certificate_chain": "client.pem",
            "ssl_keystore_key": "client.key",
        },
    ],
    ids=["jks", "p12", "pem", "pem sealed", "pem store", "pem inline"],
)
def test_every_client_certificate_format_connects(
    mutual: EmbeddedKafka, certificates: Path, tmp_path: Path, given: dict[str, str]
) -> None:
    """So does the second client, which reads records."""
    topic = World(mutual.bootstrap, tmp_path / "unused").filled(OLD)
    config = properties(tmp_path, **settings_of(certificates, given))
    assert "10 records" in ask(mutual, config, "profile", topic, check=0).out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "it wants a client certificate (ssl.certificate.location"),
        ({"ssl_keystore_location": "x.p12", "ssl_keystore_password": STORE}, "refused the client certificate"),
        (
            {"ssl_certificate_location": "client.pem", "ssl_key_location": "client-sealed.key"},
            "ssl.key.password is missing",
        ),
        (
            {
                "ssl_certificate_location": "client.pem",
                "ssl_key_location": "client-sealed.key",
                "ssl_key_password": "wr0ng-s3cret",
            },
            "ssl.key.password is wrong",
        ),
        ({"ssl_certificate_location": "stranger.pem", "ssl_key_location": "client.key"}, "is not that of the key"),
        ({"ssl_certificate_location": "client.pem", "ssl_key_location": "gone.key"}, "No such file"),
        ({"ssl_certificate_location": "client.pem"}, "needs both"),
    ],
    ids=["none", "a stranger's", "no passphrase", "a wrong passphrase", "another's key", "no such key", "no key"],
)
def test_missing_or_wrong_client_certificate_fails_in_one_line_without_the_key(
    mutual: EmbeddedKafka, certificates: Path, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    config = properties(tmp_path, **settings_of(certificates, change))
    done = ask(mutual, config, "plan", "x", "--older-than", "1d", "-v", timeout="3s")
    assert (done.code, done.out) == (1, "")
    [error] = [line for line in done.err.splitlines() if " = " not in line and "no effect here" not in line]
    assert said in error
    show_none([done.err], STORE, "wr0ng-s3cret", (certificates / "client.key").read_text().splitlines()[1], "Traceback")


def test_no_secret_appears_in_output_files_or_process_list(
    mutual: EmbeddedKafka, certificates: Path, tmp_path: Path
) -> None:
    """A passphrase, a key and a password, in a run that shows and writes all that it can, and in one that fails."""
    world = World(mutual.bootstrap, tmp_path / "unused")
    topic, state = world.filled(OLD, {"all-read": 9}), tmp_path / "state"
    config = properties(
        tmp_path,
        security_protocol="SSL",
        ssl_ca_location=certificates / "ca.pem",
        ssl_certificate_location=certificates / "client.pem",
        ssl_key_location=certificates / "client-sealed.key",
        ssl_key_password=STORE,
        sasl_username="ada",
        sasl_password=SECRET,
    )
    command = ("-b", mutual.secure_bootstrap, "-c", str(config), "--state-dir", str(state), "-vv")
    said = said_of_a_trim(tmp_path, mutual.secure_bootstrap, config, topic)
    for arguments in (("history",), ("explain", topic), ("groups",), ("offsets", topic)):
        done = run_cli(*arguments, *(command[4:] if arguments == ("history",) else command))
        said += [done.out, done.err]
    # What fails shows where: with a traceback, as -vv asks.
    for place in ("127.0.0.1:1", mutual.bootstrap):
        failed = run_cli("plan", topic, "--consumed-after", "1h", "-b", place, *command[2:], "--timeout", "2s", check=1)
        assert "Traceback" in failed.err
        said += [failed.out, failed.err]
    policy = written(tmp_path / "policy.yaml", consumed(topic))
    textfile = state.parent / "kretain.prom"
    watched = ("--trim", "--interval", "1s", "--textfile", str(textfile), "-c", str(config), "-vv")
    with watching(World(mutual.secure_bootstrap, state), policy, *watched) as watcher:
        watcher.wait_passes(2)
        said += [watcher.get("/metrics")[1], watcher.get("/readyz")[1]]
        assert "kretain_partitions" in said[-2]
        watcher.end()
        said.append(watcher.text)
    left = [path for path in (textfile, *state.rglob("*")) if path.is_file()]
    said += [path.read_bytes().decode("latin-1") for path in left]
    show_none(said, STORE, SECRET, (certificates / "client-sealed.key").read_text().splitlines()[1])
