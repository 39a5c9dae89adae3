"""Advice: a line per topic, then the dangers, then the commands to type; for scripts times in ms, sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kretain.render.output import (
    BLANK,
    SHOWN,
    Column,
    Line,
    Part,
    Table,
    heading,
    joined,
    runs,
    shortened,
    show,
    size,
    that_matter_most,
)
from retention_cli.advise.advice import Advice, kafka_configs
from retention_cli.advise.facts import AtMost, Normal, PartitionState, TopicState, in_normal_traffic, span
from retention_cli.advise.reading import Reading
from retention_cli.core.grouping import by_key
from retention_cli.core.model import Maybe, Unknown, known
from retention_cli.core.units import count, exact_duration, some_of, timestamp

_LINES: Final = 10
_NAMED: Final = 4
_NO_LIMIT: Final = -1
_EFFECTS: Final = {
    "sooner": ("data may be deleted sooner than wanted", "bold red"),
    "blocked": ("retention stops there", "red"),
    "longer": ("data stays longer than wanted", "yellow"),
    "larger": ("more space than expected", "yellow"),
}
_EFFECT_OF: Final = {"offsets-expire-first": "a group may skip or repeat records"}
_CSV_COLUMNS: Final = (
    *("topic", "partitions", "wanted_ms", "wanted_by", "at_most_ms", "at_most_readable_ms", "at_most_on_disk_ms"),
    *("normal_least_ms", "normal_most_ms", "normal_by", "records_per_hour", "bytes_per_hour", "dangers"),
    *("kafka_configs", "then_at_most_ms", "policy_entry", "unknown"),
)


def print_advice(
    reading: Reading, found: Sequence[Advice], output: str, *, command_config: str | None, every_row: bool
) -> None:
    """Print the advice for each topic."""
    lines = [
        kafka_configs(one.topic.name, one.changes, reading.bootstrap, command_config) if one.changes else None
        for one in found
    ]
    rows = (row(one, line) for one, line in zip(found, lines, strict=True))
    show(
        output,
        {
            "format": "kretain.advice/v1",
            "read_at": timestamp(reading.now_ms),
            "cluster": {"id": reading.cluster_id, "bootstrap": reading.bootstrap},
            "notes": [asdict(note) for note in reading.notes],
        },
        "topics",
        rows,
        lambda: _advice(found, lines, every_row=every_row),
        _CSV_COLUMNS,
        map(_csv_row, rows),
    )


def _advice(found: Sequence[Advice], lines: Sequence[str | None], *, every_row: bool) -> list[Part]:
    if not found:
        return [Line("No topics: the cluster has none, or this user lacks DESCRIBE on them.", "bold")]
    shown = shortened(found, lambda one: (-len(one.dangers), one.topic.name), every_row=every_row)
    endangered, better = sum(bool(one.dangers) for one in found), sum(bool(one.changes) for one in found)
    unknown = by_key((reason.text, one.topic.name) for one in found for reason in one.unknown)
    return [
        *that_matter_most(shown, len(found), "topics with the most findings"),
        Table(
            (
                Column("topic"),
                *(Column(title, "right") for title in ("wanted", "kept at most", "in normal traffic", "traffic")),
                Column("dangers"),
                Column("advice"),
            ),
            [
                (
                    one.topic.name,
                    _wanted(one.wanted_ms),
                    _at_most(one.at_most),
                    _usual(one),
                    _rate(_traffic(one.topic)),
                    ", ".join(danger.code for danger in one.dangers) or "none" + (" seen" if one.unknown else ""),
                    _in_short(one),
                )
                for one in shown
            ],
            [_EFFECTS[one.dangers[0].effect][1].removeprefix("bold ") if one.dangers else None for one in shown],
        ),
        BLANK,
        Line(f"{count(len(found), 'topic')}: {endangered:,} with dangers, {better:,} with better settings.", "bold"),
        *(Line(text, "dim") for text in _footnotes(found)),
        *_dangers(found, every_row=every_row),
        *_settings(found, lines, every_row=every_row),
        *_policy(found, every_row=every_row),
        heading("Unknown, so not checked") if unknown else None,
        *_some(
            [
                [Line(f"{some_of(names, _NAMED)}: {text}", indent=2)]
                for text, names in sorted(unknown.items(), key=lambda item: -len(item[1]))
            ],
            every_row=every_row,
        ),
    ]


def _footnotes(found: Sequence[Advice]) -> Iterator[str]:
    if parts := [one.at_most for one in found if isinstance(one.at_most, AtMost)]:
        checks = _range(known(one.check_interval_ms) for one in parts)
        delays = _range(known(one.delete_delay_ms) for one in parts)
        yield (
            "At most: retention.ms + segment.ms, because brokers delete complete segments"
            + (f", and {checks} until they check" if checks else "")
            + (f". The bytes leave the disk {delays} later." if delays else ".")
        )
    if any(one.topic.settings.timestamp_type == "CreateTime" for one in found):
        yield (
            "Traffic and age use the records' own timestamps (CreateTime): brokers delete late records sooner, and "
            "keep the segment of a future one longer. LogAppendTime topics use the broker's clock."
        )


def _dangers(found: Sequence[Advice], *, every_row: bool) -> Iterator[Part]:
    dangers = by_key(((danger.code, danger.effect), (danger.text, one)) for one in found for danger in one.dangers)
    yield heading("Dangers") if dangers else None
    for (code, effect), pairs in dangers.items():
        text, style = _EFFECTS[effect]
        texts = sorted(by_key(pairs).items(), key=lambda item: -len(item[1]))
        yield Line(f"{code}: {_EFFECT_OF.get(code, text)}", style, 2)
        yield from _some([[Line(_danger(code, *item), indent=4)] for item in texts], every_row=every_row)


def _danger(code: str, text: str, advices: Sequence[Advice]) -> str:
    topic, names = advices[0].topic, some_of([one.topic.name for one in advices], _NAMED)
    first = next(danger for danger in advices[0].dangers if danger.code == code)
    if len(advices) == 1 and 0 < len(first.partitions) < len(topic.partitions):
        names = f"{topic.name} {runs(first.partitions)}"
    return f"{names}: {text}{f'; {first.remedy}' if first.remedy else ''}."


def _settings(found: Sequence[Advice], lines: Sequence[str | None], *, every_row: bool) -> Iterator[Part]:
    properties = by_key(pair for one in found for pair in one.broker_properties.items())
    items = [
        [Line(f"{one.topic.name}: {_then(one)}", indent=2), _verbatim(line)]
        for one, line in sorted(zip(found, lines, strict=True), key=lambda pair: -len(pair[0].dangers))
        if line is not None
    ]
    yield heading("Settings for the brokers") if items or properties else None
    yield from _some(items, every_row=every_row)
    for key, values in properties.items():
        yield Line("for server.properties of every broker (takes effect at a restart):", indent=2)
        yield _verbatim(f"{key}={max(values)}")


def _verbatim(text: str) -> Line:
    return Line(text, None, 4, "verbatim")


def _policy(found: Sequence[Advice], *, every_row: bool) -> Iterator[Part]:
    """Yield one document that is a valid policy; topics with the same settings share an entry."""
    import yaml

    wanted = [entry for one in found if (entry := _entry(one)) is not None]
    if not wanted:
        return
    grouped = by_key((tuple(one.items())[1:], one["match"]) for one in wanted)
    yield heading("Or exactly, with a kretain policy")
    yield Line(
        "This deletes in-order records, read or unread, at the first run after retention.ms, for any segment.ms:",
        indent=2,
    )
    if not every_row and len(wanted) > SHOWN:
        grouped = {keys: names[:_LINES] for keys, names in list(grouped.items())[:_LINES]}
        if more := len(wanted) - sum(map(len, grouped.values())):
            yield Line(f"({count(more, 'more topic')}: --all, or -o json)", indent=2)
    policy = {
        "version": 1,
        "topics": [{"match": names[0] if len(names) == 1 else names, **dict(keys)} for keys, names in grouped.items()],
    }
    yield from map(_verbatim, yaml.safe_dump(policy, sort_keys=False, default_flow_style=None, width=1000).splitlines())


def _some(items: Sequence[Sequence[Line]], *, every_row: bool) -> list[Part]:
    shown = items if every_row else items[:_LINES]
    more = len(items) - len(shown)
    return [
        *(line for lines in shown for line in lines),
        more > 0 and Line(f"and {more:,} more (--all, or -o json)", "dim", 4),
    ]


def _wanted(ms: Maybe[int | None]) -> str:
    return "?" if isinstance(ms, Unknown) else "forever" if ms is None else span(ms)


def _at_most(value: Maybe[AtMost | str]) -> str:
    if isinstance(value, AtMost):
        return f"{span(value.settings_ms)} + ?" if isinstance(value.readable_ms, Unknown) else span(value.readable_ms)
    return "?" if isinstance(value, Unknown) else value


def _usual(one: Advice) -> str:
    value = one.usual
    if not isinstance(value, Normal):
        return "?" if isinstance(value, Unknown) else value
    check = known(one.topic.settings.check_interval_ms)
    least, most = span(value.least_ms), span(value.most_ms + (check or 0))
    return (
        (least if least == most else f"{least} to {most}")
        + (" + ?" if check is None else "")
        + (" (size)" if value.by == "size" else "")
    )


def _rate(sums: Mapping[str, Any]) -> str:
    records, size_bytes = sums["records_per_hour"], sums["bytes_per_hour"]
    if records == 0 or size_bytes is not None:
        return f"{size(round(size_bytes))}/h" if records != 0 else "none"
    return "?" if records is None else f"{records:,.0f} records/h"


def _in_short(one: Advice) -> str:
    texts = [f"{key} {span(value) if key.endswith('.ms') else size(value)}" for key, value in one.changes.items()]
    before, then = _at_most(one.at_most), _at_most(one.then_at_most)
    return ", ".join(texts) + (f" (keeps {then})" if texts and then != before else "")


def _then(one: Advice) -> str:
    before, then = _at_most(one.at_most), _at_most(one.then_at_most)
    segment_bytes, number = one.topic.changed(one.changes).settings.segment_bytes, len(one.topic.partitions)
    limit, ahead = one.changes.get("retention.bytes"), one.changes.get("message.timestamp.after.max.ms")
    known_already = {danger.code for danger in one.dangers}
    return joined(
        before != then and f"kept at most {then} instead of {before}",
        limit is not None
        and isinstance(segment_bytes, int)
        and f"at most {size(number * (limit + segment_bytes))} in {count(number, 'partition')}",
        ahead is not None and f"records stamped more than {span(ahead)} ahead are refused",
        *(f"but then {danger.text}" for danger in one.then_dangers if danger.code not in known_already),
        by="; ",
    )


def _range(values: Iterable[int | None]) -> str:
    numbers = sorted({one for one in values if one is not None})
    return " to ".join(dict.fromkeys(map(span, (numbers[0], numbers[-1])))) if numbers else ""


def row(one: Advice, line: str | None) -> dict[str, Any]:
    """Return a topic's advice (docs/advise.md); ``line`` applies it, None if there is nothing to change.

    Null means unknown, -1 no limit.
    """
    topic, live = one.topic, one.topic.settings
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "wanted_ms": _plain(one.wanted_ms),
        "wanted_by": one.wanted_by,
        "at_most": _longest(one.at_most),
        "normal": _in_traffic(one.usual),
        "traffic": _traffic(topic),
        "settings": {
            "cleanup.policy": None if isinstance(live.cleanup_policy, Unknown) else sorted(live.cleanup_policy),
            "retention.ms": _plain(live.retention_ms),
            "retention.bytes": _plain(live.retention_bytes),
            "segment.ms": known(live.segment_ms),
            "segment.bytes": known(live.segment_bytes),
            "message.timestamp.type": known(live.timestamp_type),
            "message.timestamp.before.max.ms": _plain(live.before_max_ms),
            "message.timestamp.after.max.ms": _plain(live.after_max_ms),
            "file.delete.delay.ms": known(live.delete_delay_ms),
            "remote.storage.enable": known(live.tiered),
        },
        "brokers": {
            "check_interval_ms": known(live.check_interval_ms),
            "offsets_retention_ms": _plain(live.offsets_retention_ms),
        },
        "dangers": [
            {key: getattr(danger, key) for key in ("code", "effect", "text", "remedy")}
            | {"partitions": list(danger.partitions)}
            for danger in one.dangers
        ],
        "advice": {
            "settings": dict(one.changes),
            "kafka_configs": line,
            "then_at_most": _longest(one.then_at_most),
            "then_dangers": [danger.code for danger in one.then_dangers],
            "broker_properties": dict(one.broker_properties),
            "policy_entry": _entry(one),
            "policy_at_most_ms": one.policy_at_most_ms,
        },
        "unknown": [asdict(reason) for reason in one.unknown],
        "by_partition": [_partition(partition, topic) for partition in topic.partitions],
    }


def _csv_row(report: Mapping[str, Any]) -> dict[str, Any]:
    at_most, normal, advice = report["at_most"] or {}, report["normal"] or {}, report["advice"]
    return {
        **report,
        **report["traffic"],
        "at_most_ms": at_most.get("settings_ms"),
        "at_most_readable_ms": at_most.get("readable_ms"),
        "at_most_on_disk_ms": at_most.get("on_disk_ms"),
        "normal_least_ms": normal.get("least_ms"),
        "normal_most_ms": normal.get("most_ms"),
        "normal_by": normal.get("by"),
        "kafka_configs": advice["kafka_configs"],
        "then_at_most_ms": (advice["then_at_most"] or {}).get("settings_ms"),
        "policy_entry": "; ".join(f"{key}: {value}" for key, value in (advice["policy_entry"] or {}).items()),
    }


def _entry(one: Advice) -> dict[str, str] | None:
    entry = {key: exact_duration(value) for key, value in one.policy_entry.items()}
    return {"match": one.topic.name, **entry} if entry else None


def _traffic(topic: TopicState) -> dict[str, Any]:
    """Return the topic's sums; null if a partition's part is unknown."""
    measured = [_measured(one) for one in topic.partitions]
    found: dict[str, Any] = {
        key: [one[key] for one in measured]
        for key in ("records_per_hour", "bytes_per_hour", "records_last_hour", "records_last_day", "bytes")
    }
    return {key: None if None in values else round(sum(values), 3) for key, values in found.items()}


def _measured(one: PartitionState) -> dict[str, Any]:
    return {
        "bytes": known(one.size_bytes),
        "records_per_hour": known(one.records_per_hour),
        "bytes_per_hour": known(one.bytes_per_hour),
        "records_last_hour": None if isinstance(one.last_hour, Unknown) else one.last_hour.records,
        "records_last_day": None if isinstance(one.last_day, Unknown) else one.last_day.records,
    }


def _partition(one: PartitionState, topic: TopicState) -> dict[str, Any]:
    newest = known(one.newest)
    return {
        "partition": one.number,
        "log_start": known(one.log_start),
        "high_watermark": known(one.high_watermark),
        **{key: None if value is None else round(value, 3) for key, value in _measured(one).items()},
        "newest_offset": None if newest is None else newest.offset,
        "newest_ms": None if newest is None else newest.time_ms,
        "normal": _in_traffic(in_normal_traffic(one, topic)),
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON's own types: null if unknown, -1 if there is no limit, as in Kafka's settings."""
    return _NO_LIMIT if value is None else known(value)


def _longest(value: Any) -> dict[str, Any] | None:
    """Return how long data is kept at most, with its parts; null if unknown, -1 if there is no limit."""
    sums = ("settings_ms", "readable_ms", "on_disk_ms")
    if isinstance(value, AtMost):
        return {
            key: known(getattr(value, key))
            for key in (*sums, "retention_ms", "segment_ms", "ahead_ms", "check_interval_ms", "delete_delay_ms")
        }
    return dict.fromkeys(sums, _NO_LIMIT) if value == "forever" else None


def _in_traffic(value: Any) -> dict[str, Any] | None:
    """Return how long data is kept in normal traffic: -1 without a limit, null without traffic."""
    if isinstance(value, Normal):
        return asdict(value)
    limit = _NO_LIMIT if value == "forever" else None
    return None if isinstance(value, Unknown) else {"least_ms": limit, "most_ms": limit, "by": value}
