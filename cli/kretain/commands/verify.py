"""``kretain verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from kretain.completion.complete import complete_runs
from kretain.errors import Exit, tell
from kretain.options.common import Common, OutputOption, option, single_command


@single_command
def verify(
    common: Common,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            show_default=False,
            autocompletion=complete_runs,
            help="The trims to verify, as kretain history names them.",
        ),
    ],
    evidence: Annotated[
        str | None,
        option(
            "--evidence", metavar="URL", help="Folder with the runs' folders. Default: beside the log, or as logged."
        ),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        option("--public-key", metavar="KEY", help="Have each run signed by this key (or another one given)."),
    ] = None,
    output: OutputOption = "table",
) -> Exit:
    """Prove that a trim deleted only what was allowed.

    Decides every partition again from the facts that the trim rested on, and compares all of it with the audit log.
    Needs no cluster and no policy file. Exits with 1 if anything differs, and names the file, the line or the row.

    Examples:
      kretain verify 20261121T030000Z-3f9a

      kretain verify 20261121T030000Z-3f9a --evidence s3://backup/evidence/CLUSTER_ID -o json
    """
    from kretain.config import resolve
    from kretain.render.verify import print_verdicts
    from retention_cli.core.signing import public_keys
    from retention_cli.evidence.verify import verify_runs

    keys = public_keys(public_key or ()).values()
    found = verify_runs(resolve(common, policy_counts=False).state_dir, list(dict.fromkeys(runs)), evidence, keys)
    print_verdicts(found, output)
    if not (wrong := [one for one in found if one.findings]):
        return Exit.DONE
    tell(f"kretain: {len(wrong)} of {len(found)} runs can't be proven: docs/evidence.md says what each finding means")
    return Exit.FAILED
