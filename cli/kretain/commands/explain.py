"""``kretain explain`` and ``why``: why a partition is decided so, and what a reason code means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kretain.completion.complete import complete_codes, complete_partitions, complete_runs
from kretain.config import resolve
from kretain.errors import UsageError
from kretain.flows.fleet import each_cluster
from kretain.options.common import (
    AllPartitions,
    Common,
    OptionGroup,
    OutputOption,
    argument,
    now_ms,
    option,
    single_command,
    time_ms,
)
from kretain.options.plans import Inventories, InventoryOption, RuleFlags, selection_of, topic_partition


@dataclass(frozen=True, slots=True)
class Then(OptionGroup):
    """When: the present, unless one of these is given."""

    run: Annotated[
        str | None,
        option("--run", metavar="ID", help="Draw it as this run saw it.", autocompletion=complete_runs, of="explain"),
    ] = None
    at: Annotated[
        int | None,
        option("--at", metavar="TIME", parser=time_ms, help="Draw it as the last run up to this time saw it."),
    ] = None
    evidence: Annotated[
        str | None,
        option("--evidence", metavar="URL", of="explain", help="Read evidence here. Default: beside the audit log."),
    ] = None


@single_command
@each_cluster
def explain(
    common: Common,
    topic: Annotated[
        str,
        argument(
            metavar="TOPIC[:PARTITION]", help="A topic, or one of its partitions.", autocompletion=complete_partitions
        ),
    ],
    flags: RuleFlags,
    then: Then = Then(),
    inventory: Inventories = None,
    output: OutputOption = "table",
    all_rows: AllPartitions = False,
) -> None:
    """Draw a partition's log with the floor and each rule's bound, and say why.

    --run and --at draw it from recorded evidence (of a trim, or of plan --evidence) and need no cluster.

    Examples:
      kretain explain -p policy.yaml orders:3

      kretain explain -b localhost:9092 orders --consumed-after 3d

      kretain explain orders:3 --run 20261121T030000Z-3f9a
    """
    from kretain.render.explain import print_explained
    from retention_cli.reports import explain as explaining

    name, partition = topic_partition(topic)
    if not name or any(sign in name for sign in "*?["):
        raise UsageError(f"{topic!r}: explain takes the full name of one topic")
    if then != Then():
        from retention_cli.evidence.replay import recorded
        from retention_cli.reports.past import explain_past

        if flags != RuleFlags():
            raise UsageError("--run and --at draw what was decided: omit one-off rules")
        runs = recorded(
            resolve(common, policy_counts=False).state_dir,
            then.evidence,
            None,
            None if then.at is None else then.at + 1,
        )
        run, past = explain_past(runs, name, partition, then.run)
        print_explained(past, output, every_row=all_rows, run=run)
        return
    settings = resolve(common)
    chosen = selection_of(settings.policy, [name], flags.for_topics([name]))
    with settings.reader() as reader, common.progress() as progress:
        memories = settings.memories(reader, chosen.policy.state)
        found = explaining.explain(
            reader,
            chosen,
            name,
            partition,
            now_ms(),
            memories,
            progress,
            InventoryOption(inventory, chosen.policy).view,
        )
        memories.save(now_ms())
    common.warn(*memories.notes)
    print_explained(found, output, every_row=all_rows)


@single_command
def why(
    common: Common,
    code: Annotated[
        str | None,
        argument(metavar="CODE", help="A reason's code, such as F2. Default: all.", autocompletion=complete_codes),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Explain a reason code: what it means, and what to do.

    Puts your cluster's address into the commands it prints. Connects to nothing.

    Examples:
      kretain why

      kretain why F2 -b localhost:9092
    """
    from kretain.render.why import print_codes

    resolve(common, policy_counts=False)
    print_codes(code, output)
