"""Resolve a command's settings from flags, variables and the contexts of the user's configuration file.

``~/.config/kretain/config.yaml`` (or ``$KRETAIN_CONFIG``)::

    contexts:
      prod:
        bootstrap-server: broker-1:9092
        command-config: prod.properties   # beside this file
        policy: prod.yaml
    default-context: prod
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kretain.errors import UsageError, tell
from kretain.options.common import Common, name_of
from kretain.reach import reaches
from kretain.render.progress import doing
from retention_cli.brokers.errors import SettingsError
from retention_cli.core.commands import kretain
from retention_cli.core.errors import hinted
from retention_cli.core.files import beside, home, read_file
from retention_cli.core.state_dir import default_state_dir
from retention_cli.core.units import UnitError, parse_duration_ms

if TYPE_CHECKING:  # importing these is slow, and --help must be fast
    from retention_cli.brokers.reader import ClusterReader
    from retention_cli.brokers.security.client_files import Setting
    from retention_cli.brokers.security.settings import ConnectionSettings
    from retention_cli.policy.model import Policy
    from retention_cli.state.memories import Kind, Memories

_KEYS = ("bootstrap-server", "command-config", "confirm", "policy", "settings", "state-dir", "timeout")


class ConfigError(Exception):
    """The user's configuration file is invalid; the text names the place."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A command's settings from all sources.

    ``file`` is the client file (``-c``). ``context`` is the context that the address is from, None if it is from
    elsewhere. ``typed`` is what the user types to confirm a trim, instead of ``y``: the name of a context that says so.
    """

    connection: dict[str, Setting]
    policy: Path | None
    state_dir: Path
    timeout_s: float
    file: str | None = None
    typed: tuple[str, ...] = ()
    context: str | None = None

    @property
    def name(self) -> str:
        """The cluster's context, else its address."""
        from retention_cli.brokers.security.client_files import masked

        bootstrap = self.connection.get("bootstrap.servers")
        return self.context or ("" if bootstrap is None else masked("bootstrap.servers", bootstrap.value))

    def settings(self) -> ConnectionSettings:
        """Return the connection settings that the keys specify.

        Raises:
            SettingsError: a key can't be used.
        """
        from retention_cli.brokers.security.client_files import translate

        return translate(self.connection)

    def memories(self, reader: ClusterReader, kind: Kind, *, will_save: bool = True) -> Memories:
        """Return the ledgers of clusters, unopened; ``kind`` is the policy's ``state``."""
        from retention_cli.state.memories import memories_of

        return memories_of(self.state_dir, reader, kind, will_save=will_save)

    def policy_file(self, lack: str = "no policy file") -> Path:
        """Return the policy file.

        Raises:
            UsageError: there is none; ``lack`` says so, and for what.
        """
        if self.policy is None:
            raise UsageError(f"{lack}: give -p FILE (or KRETAIN_POLICY, or a context that names one)")
        return self.policy

    def load(self) -> Policy | None:
        """Return the policy, None if there is no file.

        Raises:
            PolicyError: the file is invalid.
        """
        if self.policy is None:
            return None
        from retention_cli.policy.load import load_policy

        return load_policy(self.policy)

    def load_or_default(self) -> Policy:
        """Return the policy, if there is no file one that has no entry, and the default of everything else.

        Raises:
            PolicyError: the file is invalid.
        """
        from retention_cli.policy.model import Policy

        return self.load() or Policy(source="no policy", digest="")

    def reader(self, *, patient: bool = False) -> ClusterReader:
        """Return an unopened reader of the cluster; a ``patient`` one waits for a broker that restarts."""
        from retention_cli.brokers.reader import ClusterReader

        settings = self.settings()
        doing(f"connecting to {settings.bootstrap}")
        return ClusterReader(settings, self.timeout_s, elsewhere=settings_of, patient=patient)


def config_path() -> Path:
    """Return the configuration file's path, whether or not it exists."""
    if named := os.environ.get("KRETAIN_CONFIG"):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config") / "kretain" / "config.yaml"


def resolve(common: Common, *, policy_counts: bool = True) -> Resolved:
    """Merge flags over variables over the context over defaults; with ``-v``, print the source of each.

    If the cluster is from ``-b`` and the policy from a context, that is printed, too: the policy may be meant for
    another cluster. ``policy_counts`` is false if the command uses no policy.

    Raises:
        ConfigError: the configuration file is wrong, or has no such context.
        SettingsError: the connection's file can't be read.
        UsageError: a variable contradicts a context that the command line names.
    """
    from retention_cli.brokers.reader import DEFAULT_TIMEOUT_S

    given = _Given(common, *(common.chosen or context_of(common.context)))
    if common.chosen is None:
        _refuse_contradictions(common, given.context, given.where)
    file, bootstrap = given.pick("command-config"), given.pick("bootstrap-server")
    connection = _connection(given, file, bootstrap)
    policy, state, timeout = given.policy(), given.pick("state-dir"), given.pick("timeout")
    resolved = Resolved(
        connection=connection,
        policy=None if policy.value is None else Path(policy.value),
        state_dir=default_state_dir() if state.value is None else Path(state.value),
        timeout_s=DEFAULT_TIMEOUT_S if timeout.value is None else _timeout_ms(timeout.value, timeout.origin) / 1000,
        file=None if file.value is None else str(file.value),
        typed=(given.name,) if "confirm" in given.context else (),
        context=(given.name or None) if given.owns(connection.get("bootstrap.servers"), file, bootstrap) else None,
    )
    if common.chosen is None:
        _note_reach(connection, {"-b": bootstrap, "-c": file, "-p": policy, "--state-dir": state}, given.where)
    borrowed = resolved.policy is not None and policy.origin == given.where and bootstrap.origin == "flag"
    if borrowed and policy_counts and not common.quiet:
        tell(
            f"kretain: the cluster is from -b, but the policy {resolved.policy} is from {given.where}: "
            "give -p FILE for another, or --no-policy"
        )
    if common.verbose:
        _tell_origins(
            resolved,
            "" if common.chosen is None else f"{name_of(common.chosen)}: ",
            file=file.origin,
            policy=policy.origin,
            state=state.origin,
            timeout=timeout.origin,
        )
    return resolved


class _Picked(NamedTuple):
    """A setting's value, None if nothing sets it, and what set it."""

    value: Any
    origin: str


class _Given(NamedTuple):
    """What a command was given: flags and variables, and a context with its name (``where``: ``context prod``)."""

    common: Common
    context: Mapping[str, Any]
    where: str

    @property
    def name(self) -> str:
        """The context's name, empty if there is none."""
        return self.where.partition(" ")[2]

    def pick(self, name: str) -> _Picked:
        """Return a setting: a flag's or a variable's value, else the context's."""
        key = name.replace("-", "_")
        if (flag := getattr(self.common, key)) is not None:
            return _Picked(flag, "flag" if self._is_flag(key) else f"KRETAIN_{key.upper()}")
        return _Picked(self.context[name], self.where) if name in self.context else _Picked(None, "default")

    def policy(self) -> _Picked:
        """Return the policy file; none with ``--no-policy``.

        Raises:
            UsageError: ``--policy`` was given, too.
        """
        if not self.common.no_policy:
            return self.pick("policy")
        if self.common.policy is not None and self._is_flag("policy"):
            raise UsageError("--policy names a policy file, and --no-policy excludes one: omit one of them")
        return _Picked(None, "--no-policy")

    def owns(self, address: Setting | None, file: _Picked, bootstrap: _Picked) -> bool:
        """Return whether the address is the context's."""
        return address is not None and self.where in (address.origin, file.origin if bootstrap.value is None else "")

    def _is_flag(self, key: str) -> bool:
        return self.common.given_by.get(key, "flag") == "flag"


def _connection(given: _Given, file: _Picked, bootstrap: _Picked) -> dict[str, Setting]:
    """Return the connection's keys: the address over the file over the context's ``settings``.

    Raises:
        SettingsError: the file can't be read.
    """
    from retention_cli.brokers.security.client_files import Setting, read_properties

    connection = {
        str(key): Setting(str(value), given.where) for key, value in (given.context.get("settings") or {}).items()
    }
    if file.value is not None:
        connection |= read_properties(Path(file.value))
    # The address in a file given for this run wins over the context's.
    by_file = "bootstrap.servers" in connection and bootstrap.origin == given.where != file.origin
    if bootstrap.value is not None and not by_file:
        connection["bootstrap.servers"] = Setting(str(bootstrap.value), bootstrap.origin)
    return connection


def _tell_origins(resolved: Resolved, of: str, *, file: str, policy: str, state: str, timeout: str) -> None:
    """Print each setting with what set it (``-v``), and the connection's keys that have no effect."""
    from retention_cli.brokers.security.client_files import masked

    origins = [
        *([] if resolved.file is None else [("command-config", resolved.file, file)]),
        *((key, masked(key, one.value), one.origin) for key, one in sorted(resolved.connection.items())),
        ("policy", "none" if resolved.policy is None else str(resolved.policy), policy),
        ("state-dir", str(resolved.state_dir), state),
        ("timeout", f"{resolved.timeout_s:g} s", timeout),
    ]
    for key, value, origin in origins:
        tell(f"kretain: {of}{key} = {value} ({origin})")
    if left_out := (resolved.settings().left_out if resolved.connection else ()):
        tell(f"kretain: {of}no effect here: {', '.join(left_out)}")


def _note_reach(connection: Mapping[str, Setting], picked: Mapping[str, _Picked], where: str) -> None:
    """Note how the cluster is reached, for the command lines that this command prints.

    ``picked`` has the value and the origin of each option that says which cluster, policy and memory are meant;
    ``where`` is the context.
    """
    from retention_cli.brokers.security.client_files import masked

    if (bootstrap := connection.get("bootstrap.servers")) is None or not bootstrap.value.strip(" ,"):
        return
    in_context = any(origin == where for _value, origin in picked.values()) or bootstrap.origin == where
    given = [
        *([("--context", where.partition(" ")[2])] if in_context and where != "default" else []),
        *(
            (name, masked("bootstrap.servers", str(value)))
            for name, (value, origin) in picked.items()
            if value is not None and origin != where
        ),
    ]
    file, address = picked["-c"].value, masked("bootstrap.servers", bootstrap.value)
    reaches(address, None if file is None else str(file), given, secured=len(connection) > 1)


def _refuse_contradictions(common: Common, context: Mapping[str, Any], where: str) -> None:
    """Check that no variable overrides a context named on the command line: it may be meant for another cluster.

    Raises:
        UsageError: one does.
    """
    if common.context is None or common.given_by.get("context", "flag") != "flag":
        return
    own = dict(context)
    if (inner := (context.get("settings") or {}).get("bootstrap.servers")) is not None:
        own.setdefault("bootstrap-server", inner)
    connects = context.keys() & {"bootstrap-server", "command-config", "settings"}
    for name, has_own in (("bootstrap-server", connects), ("command-config", connects), ("policy", "policy" in own)):
        key = name.replace("-", "_")
        value = getattr(common, key)
        if value is None or not has_own or common.given_by.get(key, "flag") == "flag" or str(value) == own.get(name):
            continue
        variable = f"KRETAIN_{key.upper()}"
        raise UsageError(
            f"{variable} is {value}, and --context names {where}, whose {name} is {own.get(name, 'not that')}: "
            f"unset {variable}, or give --{name}"
        )


def settings_of(context: str) -> ConnectionSettings:
    """Return a context's connection settings, without this command's flags and variables.

    Raises:
        SettingsError: there is no such context, or it can't be used.
    """
    try:
        return resolve(Common(context=context), policy_counts=False).settings()
    except ConfigError as error:
        raise SettingsError(str(error)) from None


def of_typed(typed: Mapping[str, Any]) -> Resolved:
    """Return the settings of a command typed so far, for completion."""
    given: dict[str, Any] = {
        name: typed.get(name) or os.environ.get(f"KRETAIN_{name.upper()}")
        for name in ("bootstrap_server", "command_config", "context", "state_dir")
    }
    return resolve(Common(**given), policy_counts=False)


def _timeout_ms(value: Any, origin: str) -> int:
    try:
        milliseconds = value if type(value) is int else parse_duration_ms(str(value))
    except UnitError as error:
        raise ConfigError(f"{origin}: timeout: {error}") from None
    if milliseconds <= 0:
        if origin == "flag":
            raise UsageError("--timeout must be more than 0s")
        raise ConfigError(f"{origin}: timeout: must be more than 0")
    return milliseconds


def contexts_at(bootstrap: str) -> list[str]:
    """Return the names of the contexts with this address; empty if no context has it."""
    found = []
    for name in contexts():
        with contextlib.suppress(ConfigError, SettingsError, UsageError):  # a mistake in another context
            common = Common(chosen=context_of(name))
            address = resolve(common, policy_counts=False).connection.get("bootstrap.servers")
            if address is not None and address.value == bootstrap:
                found.append(name)
    return found


def contexts() -> dict[str, dict[str, Any]]:
    """Return the contexts by name; empty if there is no file.

    Raises:
        ConfigError: the file is wrong.
    """
    return {str(name): dict(entry) for name, entry in (_file_content().get("contexts") or {}).items()}


def context_of(name: str | None) -> tuple[dict[str, Any], str]:
    """Return a context's keys (None: of the default one), paths relative to the working directory, and its name.

    Raises:
        ConfigError: the configuration file is wrong, or has no such context.
    """
    path = config_path()
    name = default_context() if name is None else name
    if name is None:
        return {}, "default"
    known = contexts()
    if name not in known:
        raise hinted(
            ConfigError(f"{path}: no context {name!r}; {nearest(name, known)}"),
            f"{kretain('context', 'add', name)} adds it",
        )
    entry = known[name]
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(f"{path}: contexts.{name}.{key}: unknown key; {nearest(str(key), _KEYS, 'keys are')}")
    for key in ("command-config", "policy", "state-dir"):
        if key in entry:
            entry[key] = beside(path.parent, str(entry[key]))
    if not isinstance(entry.get("settings", {}), dict):
        raise ConfigError(f"{path}: contexts.{name}.settings: is not a mapping of keys to values")
    if entry.get("confirm", "name") != "name":
        raise ConfigError(f"{path}: contexts.{name}.confirm: write name, or omit it")
    return entry, f"context {name}"


def nearest(name: str, known: Collection[str], all_are: str = "it has") -> str:
    """Return a hint: the known name that looks like the wrong one, in any case of letters, else all known names."""
    by_lower = {one.lower(): one for one in known}
    similar = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean {by_lower[similar[0]]}?" if similar else f"{all_are} {', '.join(known) or 'none'}"


def default_context() -> str | None:
    """Return the name of the default context, None if there is none."""
    name = _file_content().get("default-context")
    return None if name is None else str(name)


def _file_content() -> dict[str, Any]:
    path = config_path()
    if not path.exists():
        if "KRETAIN_CONFIG" in os.environ:
            raise ConfigError(f"{path} (KRETAIN_CONFIG) does not exist")
        return {}
    import yaml

    try:
        content = yaml.safe_load(read_file(path).decode("utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        from retention_cli.core.file_problems import yaml_problem

        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise ConfigError(f"{path}{line}: {yaml_problem(str(error))}") from None
    if not isinstance(content, dict) or not isinstance(content.get("contexts", {}), dict):
        raise ConfigError(f"{path}: is not a mapping with contexts")
    for key in content:
        if key not in ("contexts", "default-context"):
            raise ConfigError(f"{path}: {key}: unknown key; keys are contexts and default-context")
    for name, entry in (content.get("contexts") or {}).items():
        if not isinstance(entry, dict):
            raise ConfigError(f"{path}: contexts.{name}: is not a mapping of keys to values")
    return content
