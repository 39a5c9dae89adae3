"""Headers whose names are no UTF-8."""

from __future__ import annotations

from contextlib import closing

from tests.support.world import World


class Raw(str):
    """A header's name in bytes that are no UTF-8."""

    __slots__ = ()

    def encode(self, *_arguments: object) -> bytes:
        return b"bad\xff\xfe"


def send_raw(world: World, topic: str, name: str) -> None:
    from kafka import KafkaProducer

    with closing(KafkaProducer(bootstrap_servers=world.bootstrap)) as producer:
        producer.send(topic, b"x", headers=[(name, b"2")], partition=0).get(30)
