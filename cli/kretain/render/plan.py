"""The plan of a cluster and of a fleet: tables for people, rows for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kretain.render.output import (
    BLANK,
    MOST,
    NAMED,
    SHOWN,
    Column,
    Line,
    Part,
    Table,
    amounts,
    heading,
    hinted,
    joined,
    number,
    print_table,
    reasons,
    shortened,
    show,
    size,
    that_matter_most,
)
from retention_cli.core.model import Decision
from retention_cli.core.printable import name_in_text
from retention_cli.core.units import count, exact_duration, format_age, format_duration, format_time, some_of
from retention_cli.engines.fleet.plan import Failure, FleetPlan, fleet_lines
from retention_cli.plan.value import (
    NAMES,
    NO_FILE,
    Plan,
    TopicRows,
    Totals,
    by_topic,
    delete_records_json,
    having,
    head_as_json,
    held_back_by,
    most_important,
    row_as_json,
)
from retention_cli.policy.settings import TRIGGER_FLAGS

if TYPE_CHECKING:  # only plans with disks need it
    from retention_cli.disks.disk import Space

_YOUNG_MS: Final = 7 * 86_400_000
"""Brokers forget a group's offsets after a week by default: what expired before the first look is unknown."""
_STYLES: Final = {"trim": "yellow", "hold": "magenta", "keep": None, "skip": "dim"}


def print_plan(
    plan: Plan | FleetPlan, output: str, *, every_row: bool, is_new: Callable[[str], bool] = lambda _: True
) -> None:
    """Print the plan in the wanted format. A fleet's rows for scripts have a first column: the cluster's name.

    Args:
        plan: the plan.
        output: the format.
        every_row: list the partitions that are up to date or skipped, too. They are counted otherwise.
        is_new: returns whether to print a note that is the same in every plan of the cluster.
    """
    if isinstance(plan, FleetPlan):
        show(
            output,
            {},
            "",
            ({"cluster": name, **row_as_json(row)} for name, one in plan.plans.items() for row in one.decisions),
            lambda: _fleet(plan, every_row=every_row, is_new=is_new),
            ("cluster", *NAMES),
            lines=fleet_lines(plan),
        )
    else:
        head = head_as_json(plan) if output in ("json", "yaml") else {}
        if output == "delete-records":
            head, output = delete_records_json(plan), "json"
        show(
            output,
            head,
            "partitions",
            head.pop("partitions", map(row_as_json, plan.decisions)),
            lambda: _plan(plan, every_row=every_row, is_new=is_new),
            NAMES,
        )


def _plan(plan: Plan, *, every_row: bool, is_new: Callable[[str], bool]) -> list[Part]:
    more = 0 if every_row else sum(1 for _ in having(plan.decisions, "keep", reasons=True))
    have = count(more, "partition that is up to date has notes", "partitions that are up to date have notes")
    return [
        *refused([f"this plan (exit 6): {one.text} ({one.code})" for one in plan.refusals]),
        *_table(plan, every_row=every_row),
        *paragraphs(_totals(plan, is_new)),
        *hinted(_why("On hold", having(plan.decisions, "hold"), "magenta")),
        *_why("Worth knowing", having(plan.decisions, "trim", *(["keep"] if every_row else ()), reasons=True)),
        *_why(
            "Skipped",
            (one for one in having(plan.decisions, "skip") if every_row and not one.topic.startswith("__")),
            "dim",
        ),
        *((BLANK, Line(f"{have}: add --all.", "dim")) if more else ()),
    ]


def refused(whys: Sequence[str]) -> list[Part]:
    """Return what trim would refuse, as the first lines of what is printed."""
    return [*paragraphs([Line(f"trim would refuse {why}.", "bold red") for why in whys]), BLANK] if whys else []


def _table(plan: Plan, *, every_row: bool) -> Iterator[Part]:
    """Yield the rows that trim or are held, or all; of many, those that matter most."""
    rows: Sequence[Decision] = plan.decisions
    if not every_row:
        rows = list(islice(having(rows, "trim", "hold"), SHOWN + 1))
    if not rows:
        return
    if len(rows) > SHOWN and not every_row:
        rows = [one for one in most_important(plan.decisions, MOST) if one.action in ("trim", "hold")]
        yield from that_matter_most(rows, plan.totals.trim + plan.totals.hold, "partitions that matter most")
    yield Table(
        (
            Column("partition"),
            Column("action", unbroken=True),
            Column("log start → trim to", "right"),
            Column("records", "right"),
            Column("bytes", "right"),
            Column("rule"),
            Column("held back by"),
        ),
        [
            (
                str(one.tp),
                one.action,
                number(one.log_start) + ("" if one.trim_to is None else f" → {number(one.trim_to)}"),
                "" if one.trim_to is None else number(one.records),
                "" if one.trim_to is None else size(one.size_bytes),
                one.rule or "",
                ", ".join(map(name_in_text, held_back_by(one))),
            )
            for one in rows
        ],
        [_STYLES[one.action] for one in rows],
    )
    yield BLANK


def _why(title: str, rows: Iterable[Decision], style: str | None = None) -> Iterable[Part]:
    return reasons(title, ((one.tp, one.reasons) for one in rows), style)


def paragraphs(lines: Iterable[Line | None]) -> list[Line]:
    """Return lines, in Markdown with a blank one between them."""
    *earlier, last = [one for one in lines if one is not None]
    return [*(one._replace(kind="paragraph") for one in earlier), last]


def summary(totals: Totals, where: str = "") -> str:
    """Return the one sentence on a plan: what it trims (``where``: in which clusters), and how many partitions stay."""
    stay = {"up to date": totals.keep, "on hold": totals.hold, "skipped": totals.skip}
    if totals.trim:
        return joined(f"Trim {going(totals)}{where}", any(stay.values()) and f"; {amounts(stay)}", ".")
    first = next((amount for amount in stay.values() if amount), 0)
    noun = " partition " if first == 1 else " partitions "
    return f"No changes{where}. {amounts(stay).replace(' ', noun, 1) if first else 'No partitions'}."


def going(totals: Totals) -> str:
    """Return what a trim deletes: ``1,200 records (about 1.21 MiB) from 3 partitions``."""
    return joined(
        count(totals.records, "record"),
        totals.size_bytes is not None and f" ({'' if totals.size_exact else 'about '}{size(totals.size_bytes)})",
        f" from {count(totals.trim, 'partition')}",
    )


def would_lose(plan: Plan, form: str) -> list[str]:
    """Return the groups that have yet to read records that go, and how many; in this form, most first.

    If there are any, records on partitions of an unknown floor are another row: whose they are is not known.
    """
    if not plan.unconsumed_by:
        return []
    unclear = sum(row.unconsumed for row in plan.decisions if row.action == "trim" and row.min_commit is None)
    found = {**plan.unconsumed_by, **({"unknown consumers": unclear} if unclear else {})}
    return [
        form.format(name_in_text(name.removeprefix("group:")), records)
        for name, records in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]


def _totals(plan: Plan, is_new: Callable[[str], bool]) -> list[Line | None]:
    """Return the totals, which groups would lose unread records, and the notes that are new."""
    totals, space, age_ms = plan.totals, plan.space, plan.created_at_ms - (plan.memory_since_ms or 0)
    clock = "a trim verifies it" if plan.memory == "cluster" else "using this machine's clock"
    young = (
        f"First look at this cluster{f' {format_age(age_ms)} ago' if age_ms > 0 else ''}: kretain does not know groups "
        "whose offsets had already expired (offsets.retention.minutes), so they protect nothing. Run plans for a few "
        "days before the first trim, or name these groups in groups.require (F6)."
    )
    freed = given_back(space) if totals.trim or (space is not None and space.dead_bytes) else ""
    return [
        Line(summary(totals), "bold"),
        Line(read_by(totals.unconsumed, some_of(would_lose(plan, "{} {:,}"), NAMED))) if totals.trim else None,
        Line(freed) if freed and (space is not None or is_new(freed)) else None,
        rules_off([plan]),
        Line(f"Broker clock not verified; {clock} (G8).", "dim") if is_new("clock") else None,
        Line(young, "dim")
        if plan.memory_since_ms is not None and age_ms < _YOUNG_MS and is_new("first look")
        else None,
    ]


def read_by(unread: int, named: str = "") -> str:
    """Return a sentence on who has read what a trim deletes; ``named`` are the groups that have not."""
    return (
        f"{count(unread, 'record has', 'records have')} not been read by every group{named and f': {named}'}."
        if unread
        else "Every group that counts has read them."
    )


def rules_off(plans: Iterable[Plan]) -> Line | None:
    """Return a sentence on the rules that one-off flags turn off; None if there is no policy file or no such flag."""
    chosen = [one for one in plans if one.rules == "one-off" and one.policy_source != NO_FILE]
    if not chosen:
        return None
    given = chosen[0].flags
    files = list(dict.fromkeys(one.policy_source for one in chosen))
    flags = " ".join(
        f"{name} {_typed(name, given[name])}" for name in (*TRIGGER_FLAGS, "--unconsumed") if name in given
    )
    return Line(
        f"One-off rules: {flags}. The rules of {some_of(files, 3)} are off for this run; "
        f"{'its' if len(files) == 1 else 'their'} guards, holds and limits stay."
    )


def _typed(name: str, value: int | str) -> str:
    """Return a flag's value as it may have been typed: ``7d``."""
    return value if isinstance(value, str) else format_time(value) if name == "--before" else exact_duration(value)


def given_back(space: Space | None) -> str:
    """Return how much disk space brokers free, and when, as a text; without disk rules, how they free it."""
    if space is None:
        return (
            "Brokers free complete segments, file.delete.delay.ms after their next retention check "
            "(log.retention.check.interval.ms)."
        )
    check, delay = space.check_interval_ms, space.delete_delay_ms
    when = (
        f"within {'log.retention.check.interval.ms' if check is None else format_duration(check)} "
        f"(their next retention check) plus {'file.delete.delay.ms' if delay is None else format_duration(delay)} "
        "(file delete delay)"
    )
    about, up_to = ("about ", "up to ") if space.estimated else ("", "")
    both = joined(
        space.freed_bytes and f"{about}{size(space.freed_bytes)} of disk space, counting all replicas",
        space.dead_bytes and f"{up_to}{size(space.dead_bytes)} that are already dead",
        by=", and ",
    )
    return joined(
        f"Brokers free {both}, {when}." if both else "It deletes no complete segment, so it frees no disk space.",
        space.disks != space.disks_known and f" Unknown for {count(space.disks - space.disks_known, 'disk')}.",
    )


def _fleet(fleet: FleetPlan, *, every_row: bool, is_new: Callable[[str], bool]) -> Iterator[Part]:
    yield from refused(
        [
            f"the plan of {name} (exit 6): {why.text} ({why.code})"
            for name, one in fleet.plans.items()
            for why in one.refusals
        ]
    )
    yield _clusters([(name, one.totals) for name, one in fleet.plans.items()], fleet.failures)
    if not every_row:
        yield from _topics(fleet)
    yield BLANK
    # asked after the tables are printed: a note counts as read once it is asked for
    yield from paragraphs(_fleet_totals(fleet, is_new))
    yield from failed("Could not be planned", fleet.failures)
    if every_row:
        for name, one in fleet.plans.items():
            yield heading(name)
            yield from _plan(one, every_row=True, is_new=lambda _: True)
    else:
        yield from hinted(
            part
            for name, one in fleet.plans.items()
            for part in _why(f"On hold in {name}", having(one.decisions, "hold"), "magenta")
        )


def print_saved_fleet(plans: Mapping[str, Callable[[], Plan]]) -> None:
    """Print a saved plan's totals, cluster by cluster."""
    print_table(_clusters([(name, give().totals) for name, give in plans.items()], {}))


def _clusters(planned: Sequence[tuple[str, Totals]], failures: Mapping[str, Failure]) -> Table:
    titles = ("partitions", "trim", "keep", "hold", "skip", "records", "bytes", "of them unread")
    return Table(
        (Column("cluster"), *(Column(title, "right") for title in titles)),
        [
            *[
                (
                    name,
                    *map(number, (one.partitions, one.trim, one.keep, one.hold, one.skip, one.records)),
                    size(one.size_bytes),
                    number(one.unconsumed),
                )
                for name, one in planned
            ],
            *((name, *["—"] * len(titles)) for name in failures),
        ],
        [None] * len(planned) + ["bold red"] * len(failures),
    )


def _topics(fleet: FleetPlan) -> Iterator[Part]:
    """Yield a table of the topics; of many, those that matter most."""
    topics = [
        (name, topic)
        for name, one in fleet.plans.items()
        for topic in by_topic(one.decisions)
        if topic.totals.trim or topic.totals.hold
    ]
    if not topics:
        return
    most = shortened(
        range(len(topics)), lambda at: (-topics[at][1].totals.records, -topics[at][1].totals.hold), every_row=False
    )
    shown = [topics[at] for at in sorted(most)]
    yield BLANK
    yield from that_matter_most(shown, len(topics), "topics that matter most")
    yield Table(
        (
            Column("cluster"),
            Column("topic"),
            *(Column(title, "right") for title in ("partitions", "trim", "hold", "records", "bytes")),
            Column("held back by"),
        ),
        [
            (
                cluster,
                one.topic,
                *map(number, (one.totals.partitions, one.totals.trim, one.totals.hold, one.totals.records)),
                size(one.totals.size_bytes),
                _most_held(one),
            )
            for cluster, one in shown
        ],
        ["yellow" if one.totals.trim else "magenta" if one.totals.hold else None for _, one in shown],
    )


def _most_held(one: TopicRows) -> str:
    most = sorted(one.held, key=lambda part: (-one.held[part], part))
    return ", ".join(most[:3]) + (", …" if len(most) > 3 else "")


def _fleet_totals(fleet: FleetPlan, is_new: Callable[[str], bool]) -> list[Line | None]:
    if not fleet.plans:
        return [Line(f"None of {count(len(fleet.clusters), 'cluster')} could be planned.", "bold")]
    totals, lost = fleet.totals, len(fleet.failures)
    where = f" in {count(len(fleet.plans), 'cluster')}"
    return [
        Line(joined(summary(totals, where), lost and f" {count(lost, 'cluster')} could not be planned."), "bold"),
        Line(read_by(totals.unconsumed)) if totals.trim else None,
        rules_off(fleet.plans.values()),
        Line("Broker clocks not verified; using this machine's clock (G8).", "dim") if is_new("clock") else None,
    ]


def failed(title: str, failures: Mapping[str, Failure]) -> list[Part]:
    """Return a heading, then each cluster that failed and why; nothing if none did."""
    lines = [part for name, one in failures.items() for part in (Line(name, "bold red", 2), Line(one.error, indent=4))]
    return [heading(title), *lines] if lines else []
