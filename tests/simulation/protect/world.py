"""Random sequences of what happens to a cluster and to those who protect it, judged by what only the simulation knows."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final, cast

from retention_cli.brokers.errors import BrokerError
from retention_cli.memory.ledger import Ledger
from retention_cli.policy.load import parse_policy
from retention_cli.policy.selection import Selection
from retention_cli.protect.decision import SETTINGS, Protection, Terms
from retention_cli.protect.run import ProtectJob, carry_out, plan_protection, resume
from tests.simulation.clients import KilledError
from tests.simulation.protect.kafka import CHECK_MS, DISK, RECORD, ProtectKafka, ProtectReader
from tests.simulation.scene import Simulated, Step, ViolationError

HOUR: Final = 3_600_000
EVERY_MS: Final = 5 * 60_000
MARGIN_MS: Final = 3 * EVERY_MS + CHECK_MS
MAX_MS: Final = 2 * HOUR
MAX_BYTES: Final = 400 * RECORD
CEILING: Final = 60
TOPICS: Final = ("a", "b", "spared")
OPERATORS: Final = 3
POLICY: Final = f"""
version: 1
disks: {{log.retention.disk.usage.percent: {CEILING}}}
topics:
  - match: a
    retention.until.consumed: {{groups: [g, h], max: 2h}}
  - match: b
    retention.until.consumed: {{groups: [g], max: 2h, max.bytes: {MAX_BYTES}}}
"""
_WEIGHTS: Final = {
    "produce": 8,
    "wait": 10,
    "read": 5,
    "protect": 14,
    "die": 5,
    "meet": 8,
    "by_hand": 2,
    "default": 1,
    "name_defaults": 1,
    "recreate": 1,
    "others": 2,
    "drop_group": 1,
    "hide_group": 1,
    "away": 1,
    "lose": 1,
    "refuse": 1,
    "resume": 1,
    "pause": 1,
    "compact": 2,
}


_NO_LEDGER: Final = Ledger(None)
"""It is never written: what counts is on the cluster, but for what a plan has seen of commits."""


def die(_where: str = "") -> None:
    raise KilledError


def sequence_of(seed: int, length: int = 40) -> list[Step]:
    chance = random.Random(seed)
    names, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    return [(name, chance.randrange(1000), chance.randrange(1000)) for name in chance.choices(names, weights, k=length)]


class ProtectWorld(Simulated):
    """The cluster, its operators, and what people set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka = ProtectKafka()
        self.selection = Selection(parse_policy(POLICY, "simulated", "sha256:0"), ())
        self.hand: dict[tuple[str, str], str | None] = {}
        self.tampered: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.runs = itertools.count(1)
        self.active = 0
        self.ledger = _NO_LEDGER
        for name in TOPICS:
            self.begin(name)

    def begin(self, name: str) -> None:
        self.kafka.create(name)
        self.hand |= {(name, key): None for key in SETTINGS}
        self.tampered.discard(name)
        for group, at in self.kafka.groups.items():
            at.pop(name, None)
            self.kafka.epochs.pop((group, name), None)
        for group in ("g", "h"):
            if group in self.kafka.groups:
                self.kafka.groups[group][name] = 0

    def job(self, operator: int) -> ProtectJob:
        hands: Any = self.kafka
        return ProtectJob(
            reader=cast(Any, ProtectReader(self.kafka)),
            selection=self.selection,
            memories=lambda _cluster: self.ledger,
            state_dir=self.root / str(operator),
            clock_ms=lambda: self.kafka.now_ms,
            terms=Terms(EVERY_MS),
            run=f"run-{next(self.runs)}",
            alterer_for=lambda _reader: hands,
            writer_for=lambda _reader: cast(Any, nullcontext(hands)),
        )

    def carried_out(self, operator: int) -> Protection:
        job = self.job(operator)
        return carry_out(job, *plan_protection(job))

    # -- what happens ------------------------------------------------------------------------

    def do_produce(self, which: int, count: int) -> None:
        self.kafka.topics[TOPICS[which % 3]].stamps += [self.kafka.now_ms - (count % 7) * 1000] * (1 + count % 40)

    def do_wait(self, how_long: int, _more: int) -> None:
        self.kafka.pass_time((1 + how_long % 20) * CHECK_MS)

    def do_pause(self, how_long: int, _more: int) -> None:
        self.kafka.pass_time((1 + how_long % 60) * 10 * CHECK_MS)

    def do_read(self, which: int, share: int) -> None:
        name, group = TOPICS[which % 3], "gh"[share % 2]
        topic, at = self.kafka.topics[name], self.kafka.groups.setdefault(group, {})
        end, now = len(topic.stamps), max(topic.start, at.get(name, 0))
        at[name] = end if share % 3 else now + (end - now) // 2
        if share % 4:
            self.kafka.epochs[group, name] = len(topic.ends)
        else:  # its client sends none
            self.kafka.epochs.pop((group, name), None)

    def do_by_hand(self, which: int, value: int) -> None:
        name, key = TOPICS[which % 3], SETTINGS[value % 2 if value % 5 == 0 else 0]
        own = self.kafka.topics[name].own
        chosen = (
            None if value % 4 == 0 else str((1 + value % 4) * HOUR + 1 if key == "retention.ms" else 90_001 + value)
        )
        if own.get(key) == chosen or chosen in {said for *_, said in self.kafka.altered}:
            return
        own.pop(key, None)
        if chosen is not None:
            own[key] = chosen
        self.hand[name, key] = chosen
        self.tampered.add(name)

    def do_default(self, hours: int, which: int) -> None:
        """The brokers' default changes: mostly back to an hour, or to more, less or no limit; or one broker's alone."""
        chosen = (HOUR, HOUR, HOUR, HOUR, HOUR // 2, MAX_MS, 3 * HOUR, -1)[hours % 8]
        self.kafka.other_limits = self.kafka.limits | {"retention.ms": str(chosen)}
        if which % 3:
            self.kafka.limits = self.kafka.other_limits

    def do_name_defaults(self, which: int, _more: int) -> None:
        self.kafka.names_defaults = which % 3 > 0

    def do_recreate(self, which: int, _more: int) -> None:
        self.begin(TOPICS[which % 3])

    def do_others(self, how_much: int, _more: int) -> None:
        self.kafka.others = how_much % 3 * DISK * 3 // 10

    def do_drop_group(self, which: int, _more: int) -> None:
        self.kafka.groups.pop("gh"[which % 2], None)

    def do_hide_group(self, which: int, _more: int) -> None:
        self.kafka.unreadable ^= {"gh"[which % 2]}

    def do_away(self, which: int, _more: int) -> None:
        self.kafka.topics[TOPICS[which % 3]].away ^= True

    def do_lose(self, which: int, share: int) -> None:
        """An unclean election: the log loses its tail, and others will stand at these offsets."""
        one = self.kafka.topics[TOPICS[which % 3]]
        one.cut(len(one.stamps) - (len(one.stamps) - one.start) * (share % 4) // 4)

    def do_refuse(self, _which: int, _more: int) -> None:
        self.kafka.refused = 1

    def do_resume(self, which: int, how: int) -> None:
        name = TOPICS[which % 2]
        try:
            done = resume(self.job(how % OPERATORS), name, "resume" if how % 2 else "restore")
        except BrokerError:
            return
        self.tampered.discard(name)
        if how % 2:  # what is live counts as the original from now on
            own = self.kafka.topics[name].own
            self.hand |= {
                (name, key): own.get(key)
                for key in SETTINGS
                if any(f"{key} of topic {name}: kretain may" in one for one in done)
            }

    def do_protect(self, operator: int, _more: int) -> None:
        self.protect(operator % OPERATORS)

    def do_compact(self, operator: int, at: int) -> None:
        """Two runs meet, and days later, after a pass that nobody interrupted, the log is compacted: all, or a part."""
        if at % 2:
            self.kafka.compact(self.active)
        self.do_meet(operator, at)
        self.protect(operator % OPERATORS)
        self.active = len(self.kafka.messages)
        if not at % 2:
            self.kafka.compact(self.active)

    def do_die(self, operator: int, at: int) -> None:
        """The process dies right before or after one of its next steps."""
        self.interrupted(operator, at % 12, die)

    def do_meet(self, operator: int, at: int) -> None:
        """Another operator runs, or a person changes a setting or makes a topic again, in the middle of a run."""
        by_hand, again = at % 3 == 0, at % 5 == 1

        def meet(where: str) -> None:
            if by_hand and where != "alter":  # no request can tell that it overwrites what has just been set
                self.do_by_hand(0, operator)
                self.do_by_hand(1, operator)
            elif again and where != "alter":
                self.do_recreate(operator, 0)
            elif not by_hand:
                if where == "alter":  # the request is under way
                    self.kafka.now_ms += 40_000
                elif operator % 2:
                    self.kafka.pass_time((1 + operator % 3) * CHECK_MS)
                self.protect((operator + 1) % OPERATORS, alone=False)
            self.counts["met"] += 1
            if at % 7 == 0:
                raise KilledError

        self.interrupted(operator, at % 12, meet, alone=False)

    def interrupted(self, operator: int, left: int, what: Callable[[str], None], *, alone: bool = True) -> None:
        """Run, and let something happen once after so many steps."""

        def hook(where: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.kafka.hook = lambda _where: None
                what(where)

        self.kafka.hook = hook
        try:
            self.protect(operator % OPERATORS, alone=alone)
        except KilledError:
            self.counts["killed"] += 1
        finally:
            self.kafka.hook = lambda _where: None

    # -- the judge -----------------------------------------------------------------------------

    def protect(self, operator: int, *, alone: bool = True) -> None:
        before = {(name, key): one.own.get(key) for name, one in self.kafka.topics.items() for key in SETTINGS}
        full = self.kafka.used > DISK * CEILING // 100
        made = self.carried_out(operator)
        self.counts.update(row.action for row in made.rows)
        for name, key, value in self.kafka.altered:
            if name == "spared":
                raise ViolationError(f"P1: {key} of a topic that does not ask for it was set to {value}")
        if not alone or made.failed:
            return
        for (name, key), was in before.items():
            self.judge(name, key, was, full=full)

    def judge(self, name: str, key: str, was: str | None, *, full: bool) -> None:
        topic = self.kafka.topics[name]
        now, hand = topic.own.get(key), self.hand[name, key]
        original = int(self.kafka.limits[key] if hand is None else hand)
        if name == "spared" or now == hand:
            limit = original
        else:
            limit = int(now or self.kafka.limits[key])
            known = self.kafka.names_defaults and self.kafka.limits == self.kafka.other_limits
            if known and (limit < original or original < 0 <= limit):
                raise ViolationError(f"P4: {key} of {name} is {limit}, below the original {original}")
            if self.kafka.names_defaults and was is None and not 0 <= int(self.kafka.other_limits[key]) <= limit:
                raise ViolationError(f"P4: {key} of {name} is {limit}, below the default of another broker")
            if key == "retention.ms" and limit > max(MAX_MS, original):
                raise ViolationError(f"P3: {key} of {name} is {limit}, above max")
            if full and limit > max(original, int(was or self.kafka.limits[key])):
                raise ViolationError(f"P4: {key} of {name} was raised while its disk was above the ceiling")
        if key != "retention.ms" or name == "spared" or name in self.tampered or original < 0:
            return
        differ = self.kafka.limits != self.kafka.other_limits
        if differ and not (self.kafka.names_defaults and 0 <= int(self.kafka.other_limits[key]) <= MAX_MS):
            return  # docs/protect.md: one broker's default counts, or the other's is larger than may be set
        room = DISK * CEILING // 100 - self.kafka.used
        bound = (name == "b" and topic.size > MAX_BYTES // 4) or room < DISK // 3
        at = max(topic.start, min(self._read_to(one, name) for one in ("gh" if name == "a" else "g")))
        if not bound and at < len(topic.stamps):
            needed = min(MAX_MS, self.kafka.now_ms - topic.stamps[at] + MARGIN_MS)
            if limit < needed:
                raise ViolationError(f"P2: {key} of {name} is {limit}, and its oldest unread record needs {needed}")

    def _read_to(self, group: str, name: str) -> int:
        """Return up to where a group has certainly read: no further than its commit's leader epoch went."""
        topic = self.kafka.topics[name]
        if group in self.kafka.unreadable or topic.away:
            return 0
        epoch = self.kafka.epochs.get((group, name), len(topic.ends))
        return min([self.kafka.groups.get(group, {}).get(name, 0), *topic.ends[epoch:]])

    def settle(self) -> None:
        """All groups read all, nothing fails any more: what people set last must be live again."""
        self.kafka.refused, self.kafka.others = 0, 0
        self.kafka.unreadable, self.kafka.names_defaults = set(), True
        self.kafka.other_limits = self.kafka.limits
        for name, one in self.kafka.topics.items():
            one.away = False
            for group in ("g", "h"):
                self.kafka.groups.setdefault(group, {})[name] = len(one.stamps)
                self.kafka.epochs[group, name] = len(one.ends)
        for _ in range(2):
            self.kafka.pass_time(CHECK_MS)  # a change that was left open is over
            self.protect(OPERATORS)
        for (name, key), hand in self.hand.items():
            now = self.kafka.topics[name].own.get(key)
            if now != hand:
                raise ViolationError(f"P5: {key} of {name} is {now} in the end, and people set {hand}")
        self.counts["settled"] += 1


def run(sequence: Sequence[Step]) -> ProtectWorld:
    with ProtectWorld() as world:
        world.apply(*sequence)
        world.settle()
        return world
