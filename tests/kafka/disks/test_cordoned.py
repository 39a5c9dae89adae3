"""Log dirs that are cordoned (`cordoned.log.dirs`, KIP-1066): what is free there is not called free."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from kretain.embedded import EmbeddedKafka
from tests.support.world import World, wait_until


def test_disk_is_cordoned_where_all_its_log_dirs_are(tmp_path: Path) -> None:
    with EmbeddedKafka(1, log_dirs=2) as kafka:
        world = World(kafka.bootstrap, tmp_path / "state")
        one, other = map(str, kafka.nodes[0].log_dirs)
        policy = tmp_path / "policy.yaml"
        apart = f"devices: [[{one}], [{other}]]"

        def cordon(*dirs: str) -> None:
            entry = ConfigEntry("cordoned.log.dirs", ",".join(dirs), incremental_operation=AlterConfigOpType.SET)
            broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            world.admin.incremental_alter_configs([broker])[broker].result(60)

        def cordoned(devices: str) -> list[bool]:
            policy.write_text(f'version: 1\ndisks: {{{devices}}}\ntopics: [{{match: "*"}}]\n')
            found = world.cli("disk", "-p", str(policy), "-o", "json", check=0).json()["disks"]
            return [disk["cordoned"] for disk in found]

        assert cordoned(apart) == [False, False]
        assert "×" not in world.cli("disk", check=0).out
        cordon(one)
        wait_until(lambda: cordoned(apart) == [True, False], "one dir that is cordoned")
        together = f"devices: [[{one}, {other}]]"
        assert cordoned(together) == [False], "the other dir of that device takes new replicas"
        cordon(one, other)
        wait_until(lambda: cordoned(together) == [True], "both dirs that are cordoned")
        shown = world.cli("disk", check=0).out
        assert "× cordoned" in shown
