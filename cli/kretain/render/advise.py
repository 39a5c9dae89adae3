"""Print advice: a line per topic, then the dangers, then the commands to type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from kretain.options.common import Output
from kretain.render import data
from kretain.render.advise_data import CSV_COLUMNS, FORMAT, csv_row, entry, line, row, traffic
from kretain.render.kit import screen
from kretain.render.kit.screen import Column
from kretain.render.kit.text import count, runs
from retention_cli.advise.advice import Advice
from retention_cli.advise.format import span
from retention_cli.advise.kept import AtMost, Normal
from retention_cli.advise.reading import Reading
from retention_cli.core.model import Maybe, Unknown, known
from retention_cli.core.units import format_bytes, timestamp

T = TypeVar("T")

SHOWN = 40
"""A table has no more topics than this: beyond that, only those with the most advice are shown."""
MOST = 20
_LINES = 10
_EFFECTS = {
    "sooner": ("data may be deleted sooner than wanted", "bold red"),
    "blocked": ("retention stops there", "red"),
    "longer": ("data stays longer than wanted", "yellow"),
    "larger": ("more space than one may think", "yellow"),
}


def print_advice(
    reading: Reading, found: Sequence[Advice], output: Output, *, command_config: str | None, every_row: bool
) -> None:
    """Print the advice for each topic."""
    if output == Output.table:
        _print_table(found, every_row=every_row)
        _print_dangers(found, every_row=every_row)
        _print_settings(found, reading.bootstrap, command_config, every_row=every_row)
        _print_policy(found, every_row=every_row)
        _print_unknown(found, every_row=every_row)
        return
    head = {
        "format": FORMAT,
        "read_at": timestamp(reading.now_ms),
        "cluster": {"id": reading.cluster_id, "bootstrap": reading.bootstrap},
        "notes": [{"code": note.code, "text": note.text} for note in reading.notes],
    }
    rows = (row(one, reading.bootstrap, command_config) for one in found)
    match output:
        case Output.json:
            data.print_json(head, "topics", rows)
        case Output.yaml:
            data.print_yaml({**head, "topics": list(rows)})
        case Output.csv:
            data.print_csv(CSV_COLUMNS, map(csv_row, rows))


def _print_table(found: Sequence[Advice], *, every_row: bool) -> None:
    shown = found
    if not every_row and len(found) > SHOWN:
        shown = sorted(found, key=lambda one: (-len(one.dangers), one.topic.name))[:MOST]
        screen.say(f"The {MOST} of {len(found):,} topics with most to say (all of them: --all, or -o csv):")
        screen.say()
    screen.print_table(
        (
            Column("topic"),
            Column("wanted", "right"),
            Column("kept at most", "right"),
            Column("in normal traffic", "right"),
            Column("traffic", "right"),
            Column("dangers"),
            Column("advice"),
        ),
        [
            (
                one.topic.name,
                _wanted(one),
                _at_most(one.at_most),
                _usual(one),
                _rate(one),
                ", ".join(danger.code for danger in one.dangers) or "none" + (" seen" if one.unknown else ""),
                _in_short(one),
            )
            for one in shown
        ],
        [_EFFECTS[one.dangers[0].effect][1].removeprefix("bold ") if one.dangers else None for one in shown],
    )
    endangered = sum(bool(one.dangers) for one in found)
    better = sum(bool(one.changes) for one in found)
    screen.say()
    screen.say(f"{count(len(found), 'topic')}: {endangered:,} with dangers, {better:,} with better settings.", "bold")
    for text in _footnotes(found):
        screen.say(text, "dim")


def _footnotes(found: Sequence[Advice]) -> Iterable[str]:
    parts = [one.at_most for one in found if isinstance(one.at_most, AtMost)]
    if parts:
        checks = _range(known(one.check_interval_ms) for one in parts)
        delays = _range(known(one.delete_delay_ms) for one in parts)
        yield (
            "At most: retention.ms + segment.ms, since brokers delete whole segments"
            + (f", and {checks} until they look" if checks else "")
            + (f". The bytes leave the disk {delays} later." if delays else ".")
        )
    if any(one.topic.settings.timestamp_type == "CreateTime" for one in found):
        yield (
            "Traffic and age go by the records' own timestamps (CreateTime): one stamped late goes sooner, one stamped "
            "ahead keeps its segment longer. LogAppendTime topics go by the broker's clock."
        )


def _print_dangers(found: Sequence[Advice], *, every_row: bool) -> None:
    """Print each danger once, with its topics."""
    about: dict[tuple[str, str], dict[str, list[Advice]]] = {}
    for one in found:
        for danger in one.dangers:
            about.setdefault((danger.code, danger.effect), {}).setdefault(danger.text, []).append(one)
    if about:
        screen.heading("Dangers")
    for (code, effect), texts in about.items():
        words, style = _EFFECTS[effect]
        screen.bullet(f"{code}: {words}", style)
        items = sorted(texts.items(), key=lambda item: -len(item[1]))
        for text, advices in _some(items, every_row=every_row):
            remedy = next(d.remedy for d in advices[0].dangers if d.code == code)
            screen.bullet(f"{_names(advices, code)}: {text}{f'; {remedy}' if remedy else ''}.", indent=4)


def _names(advices: Sequence[Advice], code: str) -> str:
    if len(advices) == 1:
        one = advices[0]
        numbers = next(danger.partitions for danger in one.dangers if danger.code == code)
        some = numbers and len(numbers) < len(one.topic.partitions)
        return f"{one.topic.name} {runs(numbers)}" if some else one.topic.name
    return _listed([one.topic.name for one in advices])


def _print_settings(found: Sequence[Advice], bootstrap: str, command_config: str | None, *, every_row: bool) -> None:
    lines = [
        (one.topic.name, _then(one), text)
        for one in sorted(found, key=lambda one: -len(one.dangers))
        if (text := line(one, bootstrap, command_config)) is not None
    ]
    properties: dict[str, int] = {}
    for one in found:
        for key, value in one.broker_properties.items():
            properties[key] = max(value, properties.get(key, 0))
    if lines or properties:
        screen.heading("Settings for the brokers")
    for name, then, text in _some(lines, every_row=every_row):
        screen.bullet(f"{name}: {then}", indent=2)
        screen.verbatim(text)
    for key, value in properties.items():
        screen.bullet("for server.properties of every broker (they take it at a restart, not live):")
        screen.verbatim(f"{key}={value}")


def _print_policy(found: Sequence[Advice], *, every_row: bool) -> None:
    """Print one document that is a valid policy; topics with the same settings share an entry."""
    import yaml

    grouped: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in found:
        if (wanted := entry(one)) is not None:
            name = wanted.pop("match")
            grouped.setdefault(tuple(wanted.items()), []).append(name)
    if not grouped:
        return
    screen.heading("Or exactly, by kretain's policy")
    screen.bullet(
        "In-order records are then kept that long and one run of kretain, read or not, whatever segment.ms is:"
    )
    listed = sum(len(names) for names in grouped.values())
    if not every_row and listed > SHOWN:
        grouped = {keys: names[:_LINES] for keys, names in list(grouped.items())[:_LINES]}
        left = listed - sum(len(names) for names in grouped.values())
        screen.bullet(f"({count(left, 'more topic')}: --all, or -o json)")
    entries = [{"match": names[0] if len(names) == 1 else names, **dict(keys)} for keys, names in grouped.items()]
    text = yaml.safe_dump({"version": 1, "topics": entries}, sort_keys=False, default_flow_style=None, width=1000)
    for one_line in text.splitlines():
        screen.verbatim(one_line)


def _print_unknown(found: Sequence[Advice], *, every_row: bool) -> None:
    about: dict[str, list[str]] = {}
    for one in found:
        for reason in one.unknown:
            about.setdefault(reason.text, []).append(one.topic.name)
    if about:
        screen.heading("Not known, and so not judged")
        for text, names in _some(sorted(about.items(), key=lambda item: -len(item[1])), every_row=every_row):
            screen.bullet(f"{_listed(names)}: {text}")


def _some(items: Sequence[T], *, every_row: bool) -> Iterable[T]:
    yield from items if every_row else items[:_LINES]
    if not every_row and len(items) > _LINES:
        screen.bullet(f"and {len(items) - _LINES:,} more (--all, or -o json)", "dim", indent=4)


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _wanted(one: Advice) -> str:
    value = one.wanted_ms
    return "?" if isinstance(value, Unknown) else "forever" if value is None else span(value)


def _at_most(value: Maybe[AtMost | str]) -> str:
    if isinstance(value, AtMost):
        readable = value.readable_ms
        return f"{span(value.settings_ms)} + ?" if isinstance(readable, Unknown) else span(readable)
    return "?" if isinstance(value, Unknown) else value


def _usual(one: Advice) -> str:
    value = one.usual
    if not isinstance(value, Normal):
        return "?" if isinstance(value, Unknown) else value
    check = known(one.topic.check_interval_ms)
    least, most = span(value.least_ms), span(value.most_ms + (check or 0))
    between = least if least == most else f"{least} to {most}"
    return between + (" + ?" if check is None else "") + (" (size)" if value.by == "size" else "")


def _rate(one: Advice) -> str:
    sums = traffic(one.topic)
    if sums["records_per_hour"] == 0:
        return "none"
    size, records = sums["bytes_per_hour"], sums["records_per_hour"]
    if size is not None:
        return f"{format_bytes(round(size))}/h"
    return "?" if records is None else f"{records:,.0f} records/h"


def _in_short(one: Advice) -> str:
    if not one.changes:
        return ""
    words = []
    for key, value in one.changes.items():
        words.append(f"{key} {span(value) if key.endswith('.ms') else format_bytes(value)}")
    before, then = _at_most(one.at_most), _at_most(one.then_at_most)
    return ", ".join(words) + (f" → {then}" if then != before else "")


def _then(one: Advice) -> str:
    """Return how long data is kept with the advised settings, as a text."""
    before, then = _at_most(one.at_most), _at_most(one.then_at_most)
    words = [f"kept at most {then} instead of {before}"] if before != then else []
    changed, number = one.topic.changed(one.changes).settings, len(one.topic.partitions)
    if "retention.bytes" in one.changes and isinstance(changed.segment_bytes, int):
        limit = one.changes["retention.bytes"]
        words.append(
            f"at most {format_bytes(number * (limit + changed.segment_bytes))} in {count(number, 'partition')}"
        )
    if (ahead := one.changes.get("message.timestamp.after.max.ms")) is not None:
        words.append(f"records stamped more than {span(ahead)} ahead are refused")
    known_already = {danger.code for danger in one.dangers}
    words += [f"but then {danger.text}" for danger in one.then_dangers if danger.code not in known_already]
    return "; ".join(words)


def _range(values: Iterable[int | None]) -> str:
    numbers: list[Any] = sorted({one for one in values if one is not None})
    return (
        "" if not numbers else span(numbers[0]) if len(numbers) == 1 else f"{span(numbers[0])} to {span(numbers[-1])}"
    )
