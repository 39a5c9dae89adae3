"""Edit the contexts in config.yaml, and the default: only their own lines change, so comments and order stay."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kretain.config import ConfigError, config_path, context_of, contexts, default_context
from kretain.errors import UsageError
from kretain.options.common import Common
from retention_cli.brokers.security.client_files import read_properties
from retention_cli.core.files import FileError, write_atomic

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_DEFAULT: Final = re.compile(r"default-context\s*:")
_NEW: Final = "# The clusters that kretain knows: kretain context --help\ncontexts:\n"


def add_context(name: str, common: Common, *, dry_run: bool = False) -> None:
    """Add a context, with a command's options and complete paths, to the configuration file; create a missing file.

    Raises:
        UsageError: no option names a cluster, or the name can be none.
        SettingsError: the client file can't be read.
        ConfigError: there is a context of this name, or the file is wrong or can't be edited.
    """
    if common.bootstrap_server is None and common.command_config is None:
        raise UsageError("no cluster given: pass -b HOST:PORT, or -c FILE with bootstrap.servers")
    if common.command_config is not None:
        read_properties(common.command_config)
    paths = {"command-config": common.command_config, "policy": common.policy, "state-dir": common.state_dir}
    given = {
        "bootstrap-server": common.bootstrap_server,
        **{key: None if path is None else str(path.expanduser().absolute()) for key, path in paths.items()},
        "timeout": common.timeout,
    }
    entry = {key: value for key, value in given.items() if value is not None}
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is not a context name: use letters, digits, '.', '_' and '-'")
    path = config_path()
    there = contexts() if path.exists() else {}
    if name in there:
        raise ConfigError(f"{path}: context {name} exists: choose another name, or kretain context remove {name}")
    with _edited(path, dry_run=dry_run) as (lines, wanted):
        wanted["contexts"] = {**(wanted.get("contexts") or {}), name: entry}
        node = _contexts(lines)
        if node is None:
            lines.append("contexts:")
            node = _contexts(lines)
        if node.value:
            at, indent = _end(node), node.value[0][0].start_mark.column
        else:
            at, indent = node.start_mark.line + 1, 2
            lines[at - 1] = re.sub(r" *\{\s*\}", "", lines[at - 1])
        block = yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True, width=1 << 20)
        lines[at:at] = [" " * indent + line for line in block.splitlines()]
        if not there:
            wanted["default-context"] = name
            default = f"default-context: {yaml.safe_dump(name).splitlines()[0]}"
            lines[:] = [*(line for line in lines if not _DEFAULT.match(line)), default]


def remove_context(name: str, *, dry_run: bool = False) -> bool:
    """Remove a context from the configuration file; return whether it was the default one.

    Raises:
        ConfigError: there is no such context, or the file is wrong or can't be edited.
    """
    context_of(name)
    was_default = default_context() == name
    with _edited(config_path(), dry_run=dry_run) as (lines, wanted):
        del wanted["contexts"][name]
        pairs = [] if (node := _contexts(lines)) is None else node.value
        found = [pair for pair in pairs if pair[0].value == name]  # none if a merge key (<<) brings it
        for key, value in found:
            del lines[key.start_mark.line : _end(value)]
        if found and len(pairs) == 1:
            number = next(n for n, line in enumerate(lines) if re.match(r"contexts\s*:", line))
            lines[number] = f"contexts: {{}}{lines[number].partition(':')[2]}"
        if was_default:
            del wanted["default-context"]
            lines[:] = [line for line in lines if not _DEFAULT.match(line)]
    return was_default


def use_context(name: str) -> None:
    """Make a context the default: replace that line of the configuration file, or add it.

    Raises:
        ConfigError: there is no such context, or the file can't be written, or has the key elsewhere than in a line.
    """
    context_of(name)
    path = config_path()
    with _edited(path) as (lines, wanted):
        there = [number for number, line in enumerate(lines) if _DEFAULT.match(line)]
        if len(there) > 1 or (not there and default_context() is not None):
            raise ConfigError(f"{path.resolve()}: default-context is not on a line of its own: edit it by hand")
        quoted = name if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) else json.dumps(name)
        place = there[0] if there else len(lines)
        lines[place : place + 1] = [f"default-context: {quoted}"]
        wanted["default-context"] = yaml.safe_load(quoted)


def _contexts(lines: list[str]) -> Any:
    """Return the node of ``contexts``, None if there is none. An empty one has no pairs."""
    root: Any = yaml.compose("\n".join(lines), Loader=yaml.SafeLoader)
    found = next((value for key, value in ([] if root is None else root.value) if key.value == "contexts"), None)
    if isinstance(found, yaml.ScalarNode):  # it has no value
        return yaml.MappingNode(found.tag, [], found.start_mark, found.end_mark)
    return found


def _end(node: Any) -> int:
    """Return the line behind a node's last content: comments that follow stay where they are."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.line) + 1
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


@contextlib.contextmanager
def _edited(path: Path, *, dry_run: bool = False) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield the file's lines and its content, to change both; write the lines if they say that content, nothing else.

    A dry run only checks that. The caller has checked the file: :func:`kretain.config.contexts`.

    Raises:
        ConfigError: they do not, as they are none that can be edited; or the file can't be written.
    """
    before = path.read_bytes().decode() if path.exists() else _NEW
    end = "\r\n" if "\r\n" in before else "\n"
    lines, wanted = before.splitlines(), yaml.safe_load(before) or {}
    yield lines, wanted
    text = end.join([*lines, ""])
    try:
        same = yaml.safe_load(text) == wanted
    except yaml.YAMLError:
        same = False
    if not same:
        raise ConfigError(f"{path}: its lines can't be changed one by one: edit it by hand; nothing was changed")
    if dry_run:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path.resolve(), [text], path.stat().st_mode & 0o777 if path.exists() else 0o600)
    except (FileError, OSError) as error:
        raise ConfigError(str(error)) from None
