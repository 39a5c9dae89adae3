"""A policy file becomes a :class:`Policy`, or a list of what is wrong with it and where."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from retention_cli.core.errors import hinted
from retention_cli.core.files import beside, read_file
from retention_cli.core.model import Watermark
from retention_cli.policy.errors import MOST_REPORTED, ItemsError, PolicyError, PolicyProblem, value_problem
from retention_cli.policy.model import ENABLE, LIVE, Entry, Policy
from retention_cli.policy.schema import (
    CLUSTER,
    LIVE_KEYS,
    DisksModel,
    EntryModel,
    FileModel,
    FloorModel,
    GroupsModel,
    LimitsModel,
    UntilConsumedModel,
    WatermarkModel,
    keys_of,
)
from retention_cli.policy.schema_reports import (
    AboveModel,
    ApproveModel,
    AuditModel,
    CostModel,
    EvidenceModel,
    NotifyModel,
)
from retention_cli.policy.settings import ApproveRules, AuditRules, DiskRules, FloorSource, GroupRules, Limits, Prices
from retention_cli.policy.urls import NotifyRules
from retention_cli.policy.yaml_file import Document, read_document

_UNKNOWN: Final = "is not a key here"
_NO_HINT: Final = f"{_UNKNOWN}; keys are"
_PAGES: Final = {
    "match": "docs/policy.md#entries",
    "cost": "docs/policy.md#the-top-level",
    "by.commits": "docs/policy.md#groups",
    "offset.syncs": "docs/policy.md#floors",
}
"""Where mappings with many keys are described, by one of their keys."""
_FORCED_AGE: Final = (
    "retention.commitoffset.hours (read records), or retention.ms with a unit, such as 3h (all records)"
)
Models = Mapping[tuple[str, ...], type[Any]]
"""The model of each mapping in a file, by the keys that lead to it."""
_MAPPINGS: Final[dict[str, type[BaseModel]]] = {
    "groups": GroupsModel,
    "limits": LimitsModel,
    "disks": DisksModel,
    "audit": AuditModel,
    "approve": ApproveModel,
    "evidence": EvidenceModel,
    "notify": NotifyModel,
    "cost": CostModel,
}
_MODELS: Final[Models] = {
    (): FileModel,
    **{(key,): model for key, model in _MAPPINGS.items()},
    ("approve", "above"): AboveModel,
    ("disks", "watermarks"): WatermarkModel,
    ("topics",): EntryModel,
    ("topics", "retention.until.consumed"): UntilConsumedModel,
    ("floors",): FloorModel,
}

_TEXTS: Final = {
    "too_short": "is empty: an empty policy would match nothing",
    "list_type": "is not a list: each entry starts with a dash",
}
"""kretain's own texts for some of the schema's errors in a policy."""


def load_policy(path: Path) -> Policy:
    """Read and check a policy file.

    Raises:
        PolicyError: it can't be read or isn't right; every problem that was found, in the file's order.
    """
    text, digest = read_text_file(path)
    return parse_policy(text, str(path), digest)


def read_text_file(path: Path) -> tuple[str, str]:
    """Return a file's text and its checksum (``sha256:…``).

    Raises:
        PolicyError: it can't be read, or is not UTF-8.
    """
    source = str(path)
    try:
        raw = read_file(path)
    except OSError as error:
        problem = PolicyProblem(source, None, "", f"cannot be read: {error.strerror}")
        raise hinted(PolicyError([problem]), "") from error
    try:
        return raw.decode("utf-8-sig"), "sha256:" + hashlib.sha256(raw).hexdigest()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PolicyError([PolicyProblem(source, line, "", "is not UTF-8 text: is it the right file?")]) from None


def parse_policy(text: str, source: str, digest: str) -> Policy:
    """Check a policy's text; see :func:`load_policy`."""
    document = read_document(text, source)
    problems = list(document.problems)
    if document.data is None:
        raise PolicyError([PolicyProblem(source, None, "", "is empty: an empty policy would match nothing")])
    if not isinstance(document.data, dict):
        raise PolicyError([PolicyProblem(source, 1, "", "is not a mapping: start with version: 1")])
    problems += _enabled_without_time(document)
    model: FileModel | None = None
    data, marked = _without_live(document.data)
    try:
        model = FileModel.model_validate(data)
    except ValidationError as error:
        found = problems_of(error, document, _MODELS, _hint, _TEXTS)
        similar = [one for one in found if one.text.startswith(f"{_UNKNOWN}; ") and _NO_HINT not in one.text]
        if not similar and not {"version", "topics"} & document.data.keys():
            text = "is not a policy: it has neither version nor topics; is it the right file?"
            raise PolicyError([PolicyProblem(source, 1, "", text)]) from None
        problems += found
    problems += [] if model is None else _without_groups(model, document)
    if problems or model is None:
        raise PolicyError(sorted(set(problems), key=lambda p: (p.line or 0, p.key, p.text)))
    return _policy(model, document, digest, marked)


def _without_groups(model: FileModel, document: Document) -> list[PolicyProblem]:
    """A scope, or data kept until it is read, where nothing says which groups must have read."""
    if model.groups.require or any(entry.get("groups.require") for entry in model.topics):
        return []
    key, text = "retention.until.consumed", "needs groups, or groups.require: name who must have read"
    found = [
        document.problem(("topics", index), key, text)
        for index, entry in enumerate(model.topics)
        if (rule := entry.get("retention.until.consumed")) is not None and rule["max"] and not rule.get("groups")
    ]
    if model.groups.scope is not None:
        text = "needs groups.require: kretain can't see groups outside it, so name every group that must have read"
        found.append(PolicyProblem(document.source, document.line_of(("groups", "scope")), "groups.scope", text))
    return found


def _without_live(data: dict[Any, Any]) -> tuple[dict[Any, Any], dict[int, list[str]]]:
    """Take out the values that are ``cluster``: they live in the policy topic. Return which, by entry."""
    topics = data.get("topics")
    if not isinstance(topics, list):
        return data, {}
    marked = {
        index: [key for key, value in entry.items() if value == CLUSTER and key in LIVE_KEYS]
        for index, entry in enumerate(topics)
        if isinstance(entry, dict)
    }
    entries = [
        {key: value for key, value in entry.items() if key not in marked[index]} if index in marked else entry
        for index, entry in enumerate(topics)
    ]
    return {**data, "topics": entries}, marked


def _policy(model: FileModel, document: Document, digest: str, marked: dict[int, list[str]]) -> Policy:
    entries = []
    for index, entry in enumerate(model.topics):
        set_here = {**entry, **dict.fromkeys(marked.get(index, ()), LIVE)}
        del set_here["match"]
        lines = {key: document.line_of(("topics", index, key)) for key in ("match", *set_here)}
        entries.append(Entry(document.line_of(("topics", index)), tuple(entry["match"]), set_here, lines))
    folder = Path(document.source).absolute().parent
    return Policy(
        source=document.source,
        digest=digest,
        groups=GroupRules(
            tuple(model.groups.ignore),
            tuple(model.groups.require),
            tuple(model.groups.latest),
            model.groups.remember,
            tuple(_source(one, folder, model.groups) for one in model.floors),
            model.groups.share,
            tuple(model.groups.by_commits),
            tuple(model.groups.stale_epochs),
            model.groups.offsets_topic == "hidden",
            None if model.groups.scope is None else model.groups.scope[:-1],
            tuple(model.groups.start.items()),
            model.groups.watch_first,
        ),
        limits=Limits(model.limits.max_records, model.limits.max_bytes, model.limits.max_percent),
        scan_records=model.scan_records,
        disks=_disks(model.disks),
        audit=AuditRules(
            model.audit.max_bytes,
            model.audit.topic,
            model.evidence.url,
            None if model.evidence.sign is None else beside(folder, model.evidence.sign),
        ),
        approve=None if model.approve is None else _approve(model.approve, folder),
        notify=NotifyRules()
        if model.notify is None
        else NotifyRules(model.notify.url, tuple(dict.fromkeys(model.notify.events)), folder),
        prices=None
        if model.cost is None
        else Prices(model.cost.per_gib_month, model.cost.replication == "excluded", model.cost.currency),
        state=model.state,
        entries=tuple(entries),
        archive_keys=tuple(str(beside(folder, one)) for one in model.archive_key),
    )


def _approve(model: ApproveModel, folder: Path) -> ApproveRules:
    above = model.above or AboveModel()
    amounts = (above.records, above.bytes, above.unconsumed)
    if amounts == (None, None, None):  # every trim
        amounts = (0, None, None)
    return ApproveRules(tuple(map(str.strip, model.keys)), tuple(map(str.strip, model.requesters)), *amounts, folder)


def _source(model: FloorModel, folder: Path, groups: GroupsModel) -> FloorSource:
    """Return the source that an entry of ``floors`` stands for; relative paths are of the policy file's folder."""
    kind, name = model.label
    place, command = model.zookeeper or model.replica or "", tuple(model.command or ())
    if (path := model.file or model.checkpoint) is not None:
        place = path if "://" in path else str(beside(folder, path))
    elif command:
        place = str(folder)
        command = (str(beside(folder, command[0])) if "/" in command[0] else command[0], *command[1:])
    of_replica: dict[str, Any] = {
        "remote_topics": model.remote_topics,
        "alias": model.source_alias,
        "offset_syncs": model.offset_syncs,
        "connect_offsets": model.connect_offsets,
        "syncs_at": model.offset_syncs_location,
    }
    return FloorSource(
        kind,
        name,
        place=place,
        command=command,
        topics=None if model.topics is None else tuple(model.topics),
        max_age_ms=None if kind == "checkpoint" and "max_age" not in model.model_fields_set else model.max_age,
        timeout_ms=model.timeout,
        groups=("*",) if model.groups is None else tuple(model.groups),
        ignored=tuple(groups.ignore) if kind == "zookeeper" else (),
        auth_file="" if model.auth_file is None else str(beside(folder, model.auth_file)),
        **{key: value for key, value in of_replica.items() if value is not None},
    )


def _disks(model: DisksModel) -> DiskRules:
    return DiskRules(
        percent=None if model.percent == 100 else model.percent,
        capacity=model.capacity or {},
        inventory=tuple(model.inventory or ()),
        reserved=model.reserved or {},
        devices=tuple(frozenset(one) for one in model.devices or ()),
        shared=bool(model.shared),
        watermarks=tuple(Watermark(one.percent, one.factor, one.minimum) for one in model.watermarks or ()),
    )


def _enabled_without_time(document: Document) -> list[PolicyProblem]:
    """R1 enabled in a file where no entry has a time at all; per topic, ``settings_for`` says it."""
    topics = document.data.get("topics")
    entries = [one if isinstance(one, dict) else {} for one in (topics if isinstance(topics, list) else ())]
    if any(str(key).startswith("retention.commitoffset.") and key != ENABLE for entry in entries for key in entry):
        return []
    text = "is true but no time is set: add retention.commitoffset.hours, .minutes or .ms"
    return [
        document.problem(("topics", index), ENABLE, text)
        for index, entry in enumerate(entries)
        if entry.get(ENABLE) in (True, CLUSTER)
    ]


def _hint(key: str, allowed: list[str], at_top: bool) -> str:
    if at_top:
        head, _, rest = key.partition(".")
        if head in _MAPPINGS and rest in keys_of(_MAPPINGS[head]):
            return f"is not a key here; write {head}: {{{rest}: …}}"
        if key in keys_of(DisksModel):
            return f"is not a key here; write disks: {{{key}: …}}"
        if key in keys_of(EntryModel):
            return "is not a key here; it belongs to an entry of topics"
    elif key in keys_of(DisksModel) and "match" in allowed:
        return f"is not a key here; it belongs to the file's top level, under disks: {{{key}: …}}"
    elif key in keys_of(FileModel):
        return "is not a key here; it belongs to the file's top level"
    return nearest_key(
        key.lower().removeprefix("log."), allowed
    )  # KIP-68 names the broker-wide settings Log.retention.…


def nearest_key(key: str, allowed: list[str]) -> str:
    """Return a hint for an unknown key: the one that was perhaps meant, or all that are allowed."""
    key = key.lower()
    similar = [one for one in allowed if one.endswith(f".{key}")]
    if len(similar) != 1 and not (similar := difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)):
        return _no_hint(allowed)
    meant = similar[0]
    if meant.endswith(".ms") and not key.endswith("ms"):  # its number, 3 for 3 hours, must not become 3 ms
        meant = _FORCED_AGE if meant == "retention.ms" else f"{meant} with a unit, such as 3h"
    return f"{_UNKNOWN}; did you mean {meant}?"


def _no_hint(allowed: list[str]) -> str:
    page = next((page for key, page in _PAGES.items() if key in allowed), None)
    return f"{_NO_HINT} {', '.join(allowed)}" if page is None else f"{_UNKNOWN} ({page})"


def problems_of(
    error: ValidationError,
    document: Document,
    models: Models,
    hint: Callable[[str, list[str], bool], str],
    texts: Mapping[str, str],
) -> list[PolicyProblem]:
    """Return what the schema found wrong, each with its line.

    Args:
        error: what pydantic found.
        document: the file.
        models: the file's models.
        hint: returns a hint from an unknown key, the keys of its mapping, and whether it is at the file's top.
        texts: texts for some kinds of errors.
    """
    found: list[PolicyProblem] = []
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if isinstance(part, (str, int)))
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        wrong = item.get("ctx", {}).get("error")
        if item["type"] in ("extra_forbidden", "invalid_key"):
            key, above = str(path[-1]), path[:-1]
            allowed = keys_of(models[tuple(part for part in above if isinstance(part, str))])
            # Finding a hint takes long.
            text = hint(key, allowed, not above) if len(found) < MOST_REPORTED else _no_hint(allowed)
            found.append(document.problem(above, key, text))
        elif isinstance(wrong, ItemsError):
            found += [
                PolicyProblem(document.source, document.line_of((*path, *at)), key, text) for at, text in wrong.items
            ]
        elif item["input"] is not None:
            text = texts.get(item["type"]) or value_problem(item)
            found.append(PolicyProblem(document.source, document.line_of(path), key, text))
        elif not path or isinstance(path[-1], int):  # else the key's own problem says that it has no value
            text = "an entry is empty: remove its dash, or fill it in"
            found.append(PolicyProblem(document.source, document.line_of(path), key, text))
    return found
