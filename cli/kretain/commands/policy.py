"""``kretain policy check``, ``show`` and ``schema``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kretain.completing import complete_topics
from kretain.exits import Exit, UsageError
from kretain.options import COMMON, Common, Output, command, option

app = typer.Typer(
    rich_markup_mode="rich", add_completion=False, no_args_is_help=True,
    help="Check and show the policy; its JSON schema for editors.",
)  # fmt: skip


@command(app)
def check(
    common: Common,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The policy file; default: -p, KRETAIN_POLICY, the context's.")] = None,
) -> Exit:
    """Check the policy file; with a cluster (-b, --context), also against its topics and their live settings.

    [bold]Examples[/bold]

      kretain policy check policy.yaml

      kretain policy check -p policy.yaml -b localhost:9092
    """
    from kretain.config import resolve
    from kretain.render.screen import say, warn
    from kretain.render.words import count
    from retention_cli.policy.errors import PolicyError
    from retention_cli.policy.load import load_policy
    from retention_cli.policy_check import check_against, check_alone

    settings = resolve(common)
    path = _path(file or settings.policy)
    try:
        policy = load_policy(path)
    except PolicyError as error:
        return _report([str(problem) for problem in error.problems])
    if "bootstrap.servers" in settings.connection:
        with settings.reader() as reader:
            findings = check_against(policy, reader)
    else:
        findings = check_alone(policy)
        findings.notes.append("not checked against a cluster: give -b or --context for that")
    for note in () if common.quiet else findings.notes:
        warn(note)
    if findings.problems:
        return _report([str(problem) for problem in findings.problems])
    seen = f", {count(findings.managed, 'topic')} managed" if findings.managed else ""
    seen += f", {findings.skipped:,} of them never touched (G5)" if findings.skipped else ""
    seen += f", {findings.frozen:,} on hold (G7)" if findings.frozen else ""
    entries = count(len(policy.entries), "entry", "entries")
    say(f"{path}: good: {entries}{seen}.")
    return Exit.DONE


@command(app)
def show(
    common: Common,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic's name.", autocompletion=complete_topics)],
    output: Annotated[Output, option("--output", "-o", panel=COMMON, help="How to print it.")] = Output.table,
) -> Exit:
    """Show what the policy comes to for one topic, and where each value comes from.

    [bold]Examples[/bold]

      kretain policy show orders -p policy.yaml
    """
    from kretain.config import resolve
    from kretain.render.policy import print_settings
    from retention_cli.planning import NothingMatchesError
    from retention_cli.policy.load import load_policy

    policy = load_policy(_path(resolve(common).policy))
    origins = policy.origins(topic)
    settings = policy.settings_for(topic)
    if origins is None or settings is None:
        raise NothingMatchesError(f"{policy.source}: no entry matches topic {topic}")
    print_settings(topic, origins, settings, policy, output)
    return Exit.DONE


@app.command()
def schema() -> None:
    """Print the policy's JSON Schema, for editors.

    [bold]Example[/bold]

      kretain policy schema > policy.schema.json   # then, in policy.yaml's first line: # yaml-language-server: $schema=policy.schema.json
    """
    from retention_cli.policy.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


def _path(path: Path | None) -> Path:
    if path is None:
        raise UsageError("there is no policy file: give -p FILE (KRETAIN_POLICY, or a context's)")
    return path


def _report(problems: list[str]) -> Exit:
    for problem in problems:
        print(problem, file=sys.stderr)
    return Exit.FAILED
