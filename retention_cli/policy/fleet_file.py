"""``fleet.yaml``: the clusters of a fleet, how to reach each, and the policy that trims it.

::

    version: 1
    policy: shared.yaml                 # of every cluster that names none of its own
    clusters:
      - name: eu
        bootstrap-server: eu-1:9092
        command-config: eu.properties   # paths are relative to this file
      - name: us
        context: us-prod                # of kretain's configuration file
        policy: us.yaml
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Required

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from typing_extensions import TypedDict

from retention_cli.core.files import beside
from retention_cli.core.units import parse_duration_ms
from retention_cli.policy.errors import FileError, PolicyError, PolicyProblem
from retention_cli.policy.load import Models, nearest_key, problems_of, read_text_file
from retention_cli.policy.schema import keys_of
from retention_cli.policy.schema_reports import StrictModel
from retention_cli.policy.values import text_reader
from retention_cli.policy.yaml_file import Document, read_document

CONNECTION: Final = ("bootstrap-server", "command-config", "settings")
"""The keys of the connection to a cluster, for entries without a context."""


class FleetFileError(FileError):
    """The fleet file can't be used."""


def _version(value: object) -> int:
    if value != 1 or isinstance(value, bool):
        raise ValueError("is not 1, the format that this kretain reads")
    return 1


def _duration(value: object) -> int:
    found = parse_duration_ms(value) if isinstance(value, str) else value
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        raise ValueError("is not a duration such as 30s")
    return found


def _settings(value: object) -> dict[str, str]:
    """Return connection keys and values as text. Errors never quote a value: it may be a password."""
    if not isinstance(value, dict):
        raise ValueError("is not a mapping of keys to values")  # noqa: TRY004  (pydantic's way)
    found = {}
    for key, one in value.items():
        if not isinstance(one, (str, int, float)):
            raise ValueError(f"{key} is neither text nor a number")  # noqa: TRY004
        found[str(key)] = str(one).lower() if isinstance(one, bool) else str(one)
    return found


_Text = Annotated[str, BeforeValidator(text_reader(r"(?s).*\S.*", "is not a text"))]
_Settings = Annotated[dict[str, str], BeforeValidator(_settings)]
_Duration = Annotated[int, BeforeValidator(_duration)]
_Name = Annotated[
    _Text,
    AfterValidator(
        text_reader(r"[A-Za-z0-9][A-Za-z0-9._-]*", "is not a name: letters, digits, dots, hyphens and underscores")
    ),
]


ClusterModel = TypedDict(
    "ClusterModel",
    {
        "name": Required[Annotated[_Name, Field(description="Its name here and in plans.")]],
        "context": Annotated[_Text | None, Field(description="A context of the configuration file.")],
        "bootstrap-server": Annotated[_Text | None, Field(description="HOST:PORT,…")],
        "command-config": Annotated[
            _Text | None, Field(description="librdkafka's keys, or a Java client's .properties.")
        ],
        "settings": Annotated[_Settings | None, Field(description="The connection's keys.")],
        "policy": Annotated[_Text | None, Field(description="Its own policy file.")],
        "state-dir": Annotated[_Text | None, Field(description="Audit log, lock and memory.")],
        "timeout": Annotated[_Duration | None, Field(description="For one request.")],
    },
    total=False,
)
ClusterModel.__doc__ = "One cluster of a fleet: a context, or a connection's own keys."


class FleetModel(StrictModel):
    """A fleet: its clusters, and the policy that they share."""

    version: Annotated[int, BeforeValidator(_version)] = Field(description="The fleet file's format: 1.")
    policy: _Text | None = Field(default=None, description="For every cluster without its own.")
    clusters: list[ClusterModel] = Field(min_length=1, description="The clusters, in the order of every output.")


_MODELS: Final[Models] = {(): FleetModel, ("clusters",): ClusterModel}
_TEXTS: Final = {
    "too_short": "is empty: a fleet has clusters",
    "list_type": "is not a list: each starts with '- name: …'",
}


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """One cluster of the file. ``values`` are a context's keys; paths in them are relative to the working directory."""

    name: str
    context: str | None
    values: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FleetFile:
    """A validated fleet file. ``digest`` is a checksum of its content (``sha256:…``)."""

    source: str
    digest: str
    entries: tuple[FleetEntry, ...]


def load_fleet(path: Path) -> FleetFile:
    """Read and validate a fleet file. The files that it names are not read.

    Raises:
        FleetFileError: it can't be read or is invalid; the error has every problem found.
    """
    try:
        text, digest = read_text_file(path)
        return parse_fleet(text, str(path), digest, path.parent)
    except PolicyError as error:
        raise FleetFileError(error.problems) from None


def parse_fleet(text: str, source: str, digest: str, folder: Path) -> FleetFile:
    """Validate a fleet file's text; relative paths in it are relative to ``folder``. See :func:`load_fleet`.

    Raises:
        FleetFileError: it is invalid.
        PolicyError: it is not YAML.
    """
    document = read_document(text, source)
    if not isinstance(document.data, dict):
        raise FleetFileError([PolicyProblem(source, 1, "", "is not a mapping: start with version: 1")])
    problems = [*document.problems]
    model: FleetModel | None = None
    try:
        model = FleetModel.model_validate(document.data)
    except ValidationError as error:
        problems += problems_of(error, document, _MODELS, _hint, _TEXTS)
    else:
        problems += _combinations(model, document)
    if problems or model is None:
        raise FleetFileError(sorted(set(problems), key=lambda one: (one.line or 0, one.key, one.text)))
    entries = []
    for cluster in model.clusters:
        values: dict[str, Any] = {**({} if model.policy is None else {"policy": model.policy}), **cluster}
        name, context = values.pop("name"), values.pop("context", None)
        paths = {key: beside(folder, values[key]) for key in ("command-config", "policy", "state-dir") if key in values}
        entries.append(FleetEntry(name, context, values | paths))
    return FleetFile(source, digest, tuple(entries))


def _hint(name: str, allowed: list[str], at_top: bool) -> str:
    if at_top and name in keys_of(ClusterModel):
        return "is not a key here; it belongs to an entry of clusters"
    return nearest_key(name.replace("_", "-"), allowed)


def _combinations(model: FleetModel, document: Document) -> Iterator[PolicyProblem]:
    """Yield problems between keys: duplicate names or contexts, and clusters with two connections or none."""
    names: dict[str, int | None] = {}
    contexts: dict[str, str] = {}
    for index, one in enumerate(model.clusters):
        name, context, problem = one["name"], one.get("context"), partial(document.problem, ("clusters", index))
        if name in names:
            yield problem("name", f"{name} is given twice (first in line {names[name]})")
        names.setdefault(name, document.line_of(("clusters", index, "name")))
        own = [key for key in CONNECTION if one.get(key) is not None]
        if context is not None:
            if own:
                yield problem(own[0], "can't be combined with context, which names the connection")
            if context in contexts:
                yield problem("context", f"{context} is {contexts[context]}'s already: name each cluster once")
            contexts.setdefault(context, name)
        elif not own:
            yield problem("name", f"{name} can't be reached: give context or {', '.join(CONNECTION)}")
