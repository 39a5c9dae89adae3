"""``kretain report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kretain.errors import UsageError
from kretain.options.common import Common, TimeRange, argument, now_ms, option, single_command

if TYPE_CHECKING:
    from retention_cli.memory.disk import Look


@single_command
def report(
    common: Common,
    out: Annotated[
        Path,
        option("--out", of="report", metavar="FILE.html", help="Write the page here, replacing the file."),
    ],
    plan: Annotated[
        Path | None,
        argument(metavar="FILE", show_default=False, help="A saved plan. Default: past trims."),
    ] = None,
    times: TimeRange = TimeRange(),  # noqa: B008  (a frozen value)
    forecast: Annotated[
        Path | None,
        option("--forecast", metavar="FILE", help="Also show this output of kretain forecast -o json."),
    ] = None,
) -> None:
    """Write an HTML page of a saved plan or of past trims. Needs no cluster.

    The page is one file without scripts, and loads nothing. A plan's page shows what would go, what is on hold and
    which command helps, the largest topics, and who holds back the most.

    Examples:
      kretain report plan.json --out plan.html

      kretain report plan.json --forecast forecast.json --out plan.html

      kretain report --last 30d --out history.html
    """
    from kretain.config import contexts_at, resolve
    from kretain.render.page.forecast import forecast_parts, read_forecast_file
    from kretain.render.page.pages import history_page, plan_page
    from retention_cli.core.files import write_whole
    from retention_cli.core.state_dir import cluster_folder
    from retention_cli.engines.fleet.saved import read_any
    from retention_cli.memory.ledger_file import FILE_NAME
    from retention_cli.plan.saved import SavedPlanError
    from retention_cli.plan.value import Plan
    from retention_cli.trim.history import Choice, read_history, select

    if plan is not None and times.given:
        raise UsageError("a plan is of one moment: leave --since, --until and --last out")
    state_dir = resolve(common, policy_counts=False).state_dir
    saved = None if plan is None else read_any(plan)
    if not isinstance(saved, Plan | None):
        raise SavedPlanError(f"{plan} is the plan of a fleet: a page is of one cluster's plan")
    if saved is None:
        runs = select(read_history(state_dir), Choice(*times.bounds(now_ms())))
        folders = [one.parent for one in sorted(state_dir.glob(f"*/{FILE_NAME}"))]
    else:
        folders = [cluster_folder(state_dir, saved.cluster_id)]
    disks, notes = _disks(folders)
    cluster_id = None if saved is None else saved.cluster_id
    more = [] if forecast is None else forecast_parts(read_forecast_file(forecast, cluster_id))
    if saved is None:
        at = {run.begun["cluster"]["id"]: run.begun["cluster"].get("bootstrap", "") for run in runs}
        named = {cluster: ", ".join(contexts_at(address)) for cluster, address in at.items()}
        text = history_page(runs, disks, notes, str(state_dir), more, named)
    else:
        text = plan_page(saved, disks, notes, more, ", ".join(contexts_at(saved.bootstrap)))
    write_whole(out, [text])
    common.warn(f"written to {out}")


def _disks(folders: list[Path]) -> tuple[dict[str, tuple[Look, ...]], list[str]]:
    """Return the looks at disks of these clusters, by name, and why some can't be read."""
    from retention_cli.core.state_dir import StateError
    from retention_cli.memory.ledger import disk_looks

    found: dict[str, tuple[Look, ...]] = {}
    notes = []
    for folder in folders:
        try:
            looks = disk_looks(folder)
        except StateError as error:
            notes.append(str(error))
            continue
        several = f" ({folder.name})" if len(folders) > 1 else ""
        found |= {f"{name}{several}": one for name, one in looks.items()}
    return found, notes
