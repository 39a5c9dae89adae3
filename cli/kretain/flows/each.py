"""Run a command that only looks once for each of several clusters (``--fleet FILE``, a ``--context`` with a glob)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kretain.error_codes import code_of
from kretain.errors import Exit, as_engine_error, exit_code_for, lines_of, of_many, tell_error
from kretain.flows.fleet import FleetFlags, selected
from kretain.options.common import Common

Command = Callable[..., Exit | None]


def each_cluster(function: Command) -> Command:
    """Return a command that also takes several clusters: it is run for one after the other, and prints one result.

    A cluster that fails is reported, and the others continue.
    """
    signature = inspect.signature(function, eval_str=True)
    flags = inspect.Parameter("clusters", inspect.Parameter.KEYWORD_ONLY, annotation=FleetFlags)

    @functools.wraps(function)
    def run(common: Common, *, clusters: FleetFlags, **values: Any) -> Exit | None:
        several = selected(common, clusters)
        if several is None:
            return function(common, **values)
        if clusters.cluster is not None:
            return function(replace(common, chosen=several.clusters[clusters.cluster]), **values)
        from kretain.render.output import by_cluster

        codes = []
        with by_cluster(values["output"]) as of:
            for name, chosen in several.clusters.items():
                try:
                    with of(name):
                        codes.append(function(replace(common, chosen=chosen), **values) or Exit.DONE)
                except Exception as error:
                    known = as_engine_error(error)
                    if exit_code_for(known) is Exit.USAGE:
                        raise
                    codes.append(exit_code_for(known))
                    tell_error(codes[-1], code_of(known), [f"{name}: {line}" for line in lines_of(known)])
        return of_many(codes)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=[*parameters, flags])  # type: ignore[attr-defined]
    return run
