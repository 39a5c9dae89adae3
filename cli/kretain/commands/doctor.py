"""``kretain doctor``."""

from __future__ import annotations

from kretain.errors import Exit
from kretain.flows.fleet import each_cluster
from kretain.options.common import Common, OutputOption, single_command
from kretain.options.rules import Topics


@single_command
@each_cluster
def doctor(
    common: Common,
    topics: Topics = None,
    output: OutputOption = "table",
) -> Exit:
    """Check permissions, broker versions and the clock; name what each command lacks.

    Changes nothing. Exits with 1 if plan or trim cannot work. TOPIC limits the check.

    Examples:
      kretain doctor -b localhost:9092

      kretain doctor -c client.properties -p policy.yaml -o json
    """
    from kretain.config import resolve
    from kretain.render.setup import print_diagnosis
    from retention_cli.policy.model import matches
    from retention_cli.reports.doctor import diagnose

    settings = resolve(common)
    policy = settings.load()

    def of_interest(name: str) -> bool:
        return (not topics or matches(topics, name)) and (policy is None or policy.settings_for(name) is not None)

    with settings.reader() as reader:
        found = diagnose(reader, settings.state_dir, of_interest, policy, named=bool(topics))
    print_diagnosis(found, output)
    verdicts = found.commands()
    return Exit.FAILED if "missing" in (verdicts["plan"], verdicts["trim"]) else Exit.DONE
