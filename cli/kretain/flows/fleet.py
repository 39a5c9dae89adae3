"""Several clusters (``--fleet FILE``, or a ``--context`` that is a glob): select them, plan them, look at each."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from kretain.completion.complete import complete_clusters
from kretain.config import ConfigError, Resolved, config_path, context_of, contexts, nearest, resolve, settings_of
from kretain.errors import (
    Exit,
    UsageError,
    as_engine_error,
    code_of,
    exit_code_for,
    line_of,
    lines_of,
    of_many,
    tell,
    tell_error,
    warn,
    worst,
)
from kretain.flows.spark import SharedSpark, fleet_engine
from kretain.options.common import CONNECTION, Common, OptionGroup, now_ms, option
from kretain.options.plans import PlanFlags, SparkFlags, selection_of

if TYPE_CHECKING:  # importing these is slow, and --help must be fast
    from retention_cli.engines.fleet.plan import Failure, FleetPlan
    from retention_cli.engines.fleet.planning import Member
    from retention_cli.plan.value import Plan
    from retention_cli.policy.settings import OneOff


@dataclass(frozen=True, slots=True)
class FleetFlags(OptionGroup):
    """The options that select among several clusters."""

    fleet: Annotated[
        Path | None,
        option("--fleet", metavar="FILE", panel=CONNECTION, help="Use the clusters in this fleet file."),
    ] = None
    cluster: Annotated[
        str | None,
        option(
            "--cluster",
            metavar="NAME",
            panel=CONNECTION,
            help="Use only this cluster of the fleet.",
            autocompletion=complete_clusters,
        ),
    ] = None


One = TypeVar("One", Common, Resolved)


@dataclass(frozen=True, slots=True)
class Fleet(Generic[One]):
    """Several clusters by name, in the order of their file, each with its options or with its settings.

    ``digest`` is the file's, if any.
    """

    source: str
    digest: str | None
    clusters: dict[str, One]

    def members(self: Fleet[Resolved], topics: list[str] | None, one_off: OneOff) -> list[Member]:
        """Return the clusters as the engine's members, after reading every policy and every client file once.

        Raises:
            UsageError: a cluster has no policy, and there is no one-off rule.
            PolicyError, SettingsError: a policy or a connection's settings are invalid.
            SameClusterError: two clusters have the same address.
        """
        from retention_cli.brokers.errors import SettingsError
        from retention_cli.engines.fleet.planning import Member, check_addresses

        found = []
        for name, resolved in self.clusters.items():
            if resolved.policy is None and not one_off.any_trigger:
                raise UsageError(f"{name} has no policy: {self.source} names none; add one there, or pass -p FILE")
            selection = functools.partial(selection_of, resolved.policy, topics, one_off)
            selection()
            try:
                settings = resolved.settings()
            except SettingsError as error:
                raise SettingsError(f"{name}: {error}") from None
            found.append(Member(name, settings, resolved.timeout_s, resolved.state_dir, selection, settings_of))
        check_addresses(found)
        return found


def chosen(common: Common, flags: FleetFlags) -> Resolved | Fleet[Resolved]:
    """Return the cluster that the options select, or the fleet.

    Raises:
        UsageError: the options select clusters in more than one way.
        NothingMatchesError: --cluster matches none.
        FleetFileError, ConfigError: a file is invalid, or no context matches.
    """
    several = selected(common, flags)
    if isinstance(several, Common):
        return resolve(several)
    return Fleet(several.source, several.digest, {name: resolve(one) for name, one in several.clusters.items()})


def selected(common: Common, flags: FleetFlags) -> Common | Fleet[Common]:
    """Return the clusters that the options select, or the command's options for one.

    Raises:
        UsageError, NothingMatchesError, FleetFileError, ConfigError: see :func:`chosen`.
    """
    from retention_cli.policy.selection import NothingMatchesError

    several = _several(common, flags)
    if flags.cluster is None:
        return several or common
    if several is None:
        raise UsageError("--cluster names one of several: give --fleet FILE too, or a --context such as 'prod-*'")
    if flags.cluster not in several.clusters:
        raise NothingMatchesError(
            f"{several.source} has no cluster {flags.cluster!r}; {nearest(flags.cluster, several.clusters)}"
        )
    return several.clusters[flags.cluster]


def _several(common: Common, flags: FleetFlags) -> Fleet[Common] | None:
    from fnmatch import fnmatchcase

    if flags.fleet is not None:
        from retention_cli.policy.fleet_file import load_fleet

        _alone(common, "--fleet", "bootstrap_server", "command_config", "context")
        file = load_fleet(flags.fleet)
        if common.policy is not None and any("policy" in one.values for one in file.entries):
            raise UsageError(f"{file.source} names policies: omit {_spelled(common, 'policy')}, or remove them there")
        of = {one.name: {} if one.context is None else context_of(one.context)[0] for one in file.entries}
        return Fleet(
            file.source,
            file.digest,
            {
                one.name: replace(common, chosen=({**of[one.name], **one.values}, f"{file.source}: {one.name}"))
                for one in file.entries
            },
        )
    pattern = common.context
    if pattern is None or not any(sign in pattern for sign in "*?[") or pattern in (known := contexts()):
        return None
    _alone(common, f"--context {pattern}", "bootstrap_server", "command_config")
    names = [name for name in known if fnmatchcase(name, pattern)]
    if not names:
        raise ConfigError(f"{config_path()}: no context matches {pattern!r}; {nearest(pattern, known)}")
    return Fleet(f"context {pattern}", None, {name: replace(common, chosen=context_of(name)) for name in names})


def _alone(common: Common, given: str, *others: str) -> None:
    for key in others:
        if getattr(common, key) is not None:
            raise UsageError(f"{given} names several clusters and {_spelled(common, key)} one: omit one of them")


def _spelled(common: Common, key: str) -> str:
    return f"KRETAIN_{key.upper()}" if common.given_by.get(key) == "variable" else "--" + key.replace("_", "-")


def planned(fleet: Fleet[Resolved], members: list[Member], now_ms: int, shared: SharedSpark) -> FleetPlan:
    """Plan all clusters, and print why the failed ones failed."""
    from kretain.render.progress import shown_by_name
    from retention_cli.engines.fleet.planning import make_fleet_plan

    with shown_by_name() as watch:
        made = make_fleet_plan(
            fleet_engine(shared), members, now_ms, source=fleet.source, digest=fleet.digest, watch=watch
        )
    tell_failures(made.failures)
    return made


def tell_notes(plans: Mapping[str, Plan], is_new: Callable[[str, str], bool] = lambda *_: True) -> None:
    """Print the plans' notes: those that are new to a cluster, by its name and the text."""
    warn(*(f"{name}: {one.text}" for name, plan in plans.items() for one in plan.notes if is_new(name, one.text)))


def tell_failures(failures: dict[str, Failure]) -> None:
    """Print why each cluster failed, one line each, even if warnings are off."""
    for name, failure in failures.items():
        tell_error(
            code_of_failure(failure),
            "failed" if failure.cause is None else code_of(failure.cause),
            f"{name}: {failure.error}",
        )


def code_of_failure(failure: Failure) -> Exit:
    """Return the exit code of a cluster's failure, as if it were the only cluster."""
    return Exit.FAILED if failure.cause is None else exit_code_for(failure.cause)


def plan_fleet(
    fleet: Fleet[Resolved],
    topics: list[str] | None,
    one_off: OneOff,
    spark: SparkFlags,
    flags: PlanFlags,
    *,
    quiet: bool = False,
) -> Exit:
    """Plan several clusters, save and show it."""
    from kretain.flows.plans import once_a_day, save_plan, signed
    from kretain.render.plan import print_plan

    if flags.output == "delete-records":
        raise UsageError("-o delete-records is for one cluster: name it with --cluster NAME")
    members = fleet.members(topics, one_off)
    with SharedSpark(spark) as shared:
        made = planned(fleet, members, now_ms(), shared)
    made = replace(
        made, clusters={**made.clusters, **{name: signed(one, flags.key) for name, one in made.plans.items()}}
    )
    if flags.out is not None and made.plans:
        save_plan(made, flags.out)
        if not quiet:
            warn(f"saved in {flags.out}; to carry it out, with the same --fleet or --context and the same policies:")
            tell(f"  kretain trim --plan {shlex.quote(str(flags.out))}")
    with ExitStack() as stack:
        new = {
            one.name: stack.enter_context(once_a_day(one.state_dir, made.plans[one.name].cluster_id, now_ms()))
            for one in members
            if one.name in made.plans
        }
        every = flags.all_rows or flags.output == "markdown"
        tell_notes({} if quiet else made.plans, lambda name, text: every or new[name](text))
        clocks = [is_new("clock") for is_new in new.values()]
        print_plan(made, flags.output, every_row=flags.all_rows, is_new=lambda _: every or any(clocks))
    return worst(
        of_many([code_of_failure(one) for one in made.failures.values()] + [Exit.DONE] * len(made.plans)),
        flags.code_of(made.totals),
    )


Command = Callable[..., Exit | None]


def each_cluster(function: Command) -> Command:
    """Return a command that also takes several clusters: it is run for one after the other, and prints one result.

    A cluster that fails is reported, and the others continue.
    """
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def run(common: Common, *, clusters: FleetFlags, **values: Any) -> Exit | None:
        several = selected(common, clusters)
        if isinstance(several, Common):
            return function(several, **values)
        from kretain.render.output import by_cluster

        codes = []
        with by_cluster(values["output"]) as results:
            for name, one in several.clusters.items():
                results.append({"name": name})
                try:
                    codes.append(function(one, **values) or Exit.DONE)
                except Exception as error:
                    known = as_engine_error(error)
                    results[-1] = {"name": name, "error": line_of(known)}
                    if exit_code_for(known) is Exit.USAGE:
                        raise
                    codes.append(exit_code_for(known))
                    tell_error(codes[-1], code_of(known), [f"{name}: {line}" for line in lines_of(known)])
        return of_many(codes)

    parameters = [
        *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()),
        inspect.Parameter("clusters", inspect.Parameter.KEYWORD_ONLY, annotation=FleetFlags),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
