"""``kretain policy new``, ``check``, ``show``, ``set``, ``unset``, ``list`` and ``schema``."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from kretain.completion.complete import (
    complete_live_keys,
    complete_live_pairs,
    complete_recipes,
    complete_topics,
)
from kretain.completion.quick import QuickCommand
from kretain.config import nearest, resolve
from kretain.errors import UsageError
from kretain.options.common import Common, OutputOption, argument, command, new_app, now_ms, option
from kretain.options.plans import RuleFlags

_MINIMUM: Final = "log.retention.min.timestamp"
_FIX: Final = "fix what each problem names"
policy = new_app("Write, check and show the policy; change live settings; print the schema.")


@command(policy)
def new(
    common: Common,
    name: Annotated[
        str | None,
        argument(metavar="RECIPE", help="Default: list the recipes.", autocompletion=complete_recipes),
    ] = None,
    out: Annotated[
        Path | None, option("--out", metavar="FILE", of="policy new", help="Write to this new file instead of stdout.")
    ] = None,
) -> None:
    """Write a commented policy to start from. Needs no cluster.

    Recipes: consumed, event-time, min-timestamp, disk-ceiling, legal-hold. Put your own names in, then check it.
    Overwrites no file.

    Examples:
      kretain policy new

      kretain policy new consumed > policy.yaml

      kretain policy new legal-hold --out policy.yaml
    """
    from kretain.texts import RECIPES, recipe, write_new

    if name is None:
        for one in RECIPES:
            print(f"{one:14} {recipe(one).splitlines()[0].removeprefix('# ')}")
        return
    if name not in RECIPES:
        raise UsageError(f"there is no recipe {name!r}; {nearest(name, RECIPES, 'recipes are')}")
    if out is None:
        sys.stdout.write(recipe(name))
        return
    write_new(out, recipe(name))
    common.warn(f"wrote {out}; put in your own names, then: kretain policy check {out} -b HOST:PORT")


@command(policy)
def check(
    common: Common,
    file: Annotated[
        Path | None,
        argument(metavar="FILE", help="The policy file. Default: -p, KRETAIN_POLICY, or the context's."),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Check the policy file; with a cluster (-b), also against its topics.

    Examples:
      kretain policy check policy.yaml

      kretain policy check -p policy.yaml -b localhost:9092
    """
    from kretain.render.setup import print_checked
    from retention_cli.core.errors import hinted
    from retention_cli.policy.errors import PolicyError
    from retention_cli.policy.load import load_policy
    from retention_cli.reports.policy_check import check_against, check_alone

    settings = resolve(common if file is None else replace(common, policy=file))
    path = settings.policy_file()
    try:
        policy = load_policy(path)
    except PolicyError as error:
        hinted(error, _FIX)
        raise
    if "bootstrap.servers" in settings.connection:
        with settings.reader() as reader:
            findings = check_against(policy, reader)
    else:
        findings = check_alone(policy)
        findings.notes.append("not checked against a cluster: pass -b or --context to do so")
    common.warn(*findings.notes)
    if findings.problems:
        raise hinted(PolicyError(findings.problems), _FIX)
    print_checked(path, len(policy.entries), findings, output)


@command(policy)
def show(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    flags: RuleFlags,
    output: OutputOption = "table",
) -> None:
    """Show the effective settings of a topic, and where each comes from.

    Examples:
      kretain policy show orders -p policy.yaml

      kretain policy show orders -p policy.yaml --older-than 7d

      kretain policy show orders -p policy.yaml -b localhost:9092
    """
    from kretain.render.setup import print_settings
    from retention_cli.policy.load import load_policy
    from retention_cli.policy.selection import NothingMatchesError
    from retention_cli.state.own_topics import with_live

    resolved = resolve(common)
    policy = load_policy(resolved.policy_file()).with_one_off(flags.for_topics([topic]))
    if policy.any_live and "bootstrap.servers" in resolved.connection:
        with resolved.reader() as reader:
            policy = with_live(reader, policy)
    origins = policy.origins(topic)
    settings = policy.settings_for(topic)
    if origins is None or settings is None:
        raise NothingMatchesError(f"{policy.source}: no entry matches topic {topic}")
    print_settings(topic, origins, settings, policy, output)
    if "bootstrap.servers" in resolved.connection and settings.unsettled is not None:
        common.warn(*settings.unsettled.reasons)


@command(policy, "set")
def set_(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    settings: Annotated[
        list[str],
        argument(
            metavar="KEY=VALUE",
            help="Settings, written as in the policy file.",
            show_default=False,
            autocompletion=complete_live_pairs,
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", help="Show the result; write nothing.")] = False,
    output: OutputOption = "table",
) -> None:
    """Change a topic's live settings in the policy topic.

    The policy file must mark each key as cluster for the topic. kretain cluster init creates the policy topic.

    Examples:
      kretain policy set journal log.retention.min.timestamp=2026-11-01T00:00:00Z -p policy.yaml -b localhost:9092

      kretain policy set orders retention.ms=7d unconsumed=hold -p policy.yaml --context prod
    """
    from kretain.render.setup import print_changed
    from retention_cli.brokers.writer import ClusterWriter
    from retention_cli.policy.live import POLICY_TOPIC, check_settings, check_topic, check_value
    from retention_cli.policy.load import load_policy
    from retention_cli.policy.model import merged
    from retention_cli.state.own_topics import change

    check_topic(topic)
    new = _read_pairs(settings)
    resolved = resolve(common)
    policy = load_policy(resolved.policy_file())
    check_settings(policy, topic, new)
    with resolved.reader() as reader, ClusterWriter(reader.pinned_settings, {POLICY_TOPIC}, reader.timeout_s) as writer:
        there = topic in reader.metadata([topic]).topics
        done = change(reader, writer, policy, topic, lambda before: merged(before, new), dry_run=dry_run)
    print_changed(done, output)
    common.warn(*(f"replaced: {text}" for text in done.corrected))
    if not there:
        common.warn(f"the cluster has no topic {topic}, or this user lacks DESCRIBE on it")
    today = None if common.quiet else policy.settings_for(topic)
    must_keep_some = today is not None and not today.allow_empty
    if _MINIMUM in new and must_keep_some and check_value(_MINIMUM, new[_MINIMUM]) > now_ms():
        common.warn(f"{_MINIMUM} is in the future: until then it holds, unless the policy file says allow.empty: true")


@command(policy)
def unset(
    common: Common,
    topic: Annotated[str, argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    keys: Annotated[
        list[str] | None,
        argument(
            metavar="KEY",
            help="Settings to remove. Default: all.",
            show_default=False,
            autocompletion=complete_live_keys,
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show the result; write nothing.")] = False,
    output: OutputOption = "table",
) -> None:
    """Remove live settings of a topic from the policy topic.

    Examples:
      kretain policy unset journal -b localhost:9092

      kretain policy unset orders retention.ms -p policy.yaml -b localhost:9092
    """
    from kretain.render.setup import print_changed
    from retention_cli.brokers.writer import ClusterWriter
    from retention_cli.policy.live import POLICY_TOPIC, without
    from retention_cli.state.own_topics import change

    resolved = resolve(common)
    policy = resolved.load()
    with resolved.reader() as reader, ClusterWriter(reader.pinned_settings, {POLICY_TOPIC}, reader.timeout_s) as writer:
        done = change(reader, writer, policy, topic, lambda before: without(before, topic, keys or ()), dry_run=dry_run)
    print_changed(done, output)
    common.warn(*(f"replaced: {text}" for text in done.corrected))


@command(policy, "list")
def list_(
    common: Common,
    output: OutputOption = "table",
) -> None:
    """List the policy topic's settings, and which of them count.

    Examples:
      kretain policy list -p policy.yaml -b localhost:9092

      kretain policy list -b localhost:9092 -o json
    """
    from kretain.render.setup import print_live
    from retention_cli.policy.live import list_settings
    from retention_cli.state.own_topics import read_messages

    resolved = resolve(common)
    policy = resolved.load()
    with resolved.reader() as reader:
        cluster_id = reader.metadata([]).cluster_id
        found = list_settings(read_messages(reader), policy)
    print_live(cluster_id, reader.settings.bootstrap, found, output)
    if policy is None and found.rows:
        common.warn("only the policy file says whether these count: pass -p FILE")


@policy.command(cls=QuickCommand)
def schema() -> None:
    """Print the policy's JSON Schema, for editors.

    Editors with the YAML language server find it by the first line of the policy file:
    # yaml-language-server: $schema=policy.schema.json

    Examples:
      kretain policy schema > policy.schema.json
    """
    from retention_cli.policy.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


def _read_pairs(pairs: list[str]) -> dict[str, Any]:
    """Return KEY=VALUE pairs with values as JSON types: numbers, true or false where they parse as such, else text.

    Raises:
        UsageError: a pair has no =, or a key is given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not KEY=VALUE")
        if key in found:
            raise UsageError(f"{key} is given twice")
        is_number = re.fullmatch(r"-?[0-9]{1,30}", text)
        found[key] = int(text) if is_number else {"true": True, "false": False}.get(text, text)
    return found
