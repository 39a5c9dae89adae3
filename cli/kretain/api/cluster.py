"""Connect to a cluster, plan and trim from Python (docs/python.md). Nothing here asks, prints or handles signals."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self, Unpack

from kretain.api.arguments import Duration, Rules, duration_ms, group_patterns, patterns, positive, rules_of
from kretain.api.errors import RefusedError, translated, usage
from kretain.api.values import InterruptedTrim, Origin, Plan, Report, Result, origin_of, plan_value, report_value
from kretain.config import Resolved, resolve
from kretain.errors import line_of
from kretain.flows.plans import forecasts, plan_now, read_saved
from kretain.flows.spark import SharedSpark, planner
from kretain.flows.trims import exit_codes, todays_rules
from kretain.options.common import Common, now_ms
from kretain.options.plans import InventoryOption, SparkFlags, selection_of, selection_or_all
from kretain.render.consumers import groups_document, positions_document
from kretain.render.explain import explained_document
from kretain.render.forecast import forecast_head, topic_rows
from kretain.render.history import HISTORY_FORMAT, partitions_of, run_row
from retention_cli.brokers.reader import ClusterReader
from retention_cli.core.model import Reason
from retention_cli.core.progress import silent
from retention_cli.forecast.steady import Terms
from retention_cli.plan.approval import offered
from retention_cli.policy.selection import Selection
from retention_cli.policy.settings import OneOff
from retention_cli.reports.explain import explain
from retention_cli.reports.groups import list_all
from retention_cli.reports.offsets import read_positions
from retention_cli.state.memories import Memories
from retention_cli.trim.history import Choice, find_run, read_past, select, select_changes
from retention_cli.trim.report import TrimReport
from retention_cli.trim.run import TrimJob, carry_out, check_cluster, shipped


def connect(
    *,
    context: str | None = None,
    bootstrap_servers: str | Sequence[str] | None = None,
    command_config: str | Path | None = None,
    policy: str | Path | None = None,
    no_policy: bool = False,
    state_dir: str | Path | None = None,
    timeout: Duration | None = None,
) -> Cluster:
    """Connect to one cluster. Use it in a ``with`` block, or close it.

    Only what is named counts: neither the default context nor any ``KRETAIN_…`` variable is used.

    Args:
        context: a context of the configuration file: its connection, policy, state directory and time-out.
        bootstrap_servers: HOST:PORT of a broker, or several; in place of a context.
        command_config: connection settings, as of ``-c``; in place of a context's.
        policy: the policy file; in place of the context's.
        no_policy: no policy file, the context's neither.
        state_dir: audit log, lock and what is remembered; by default the context's, else the command's.
        timeout: of one request; 30 s by default.

    Raises:
        KretainError: the arguments don't go together, a file is wrong, or the cluster can't be reached.
    """
    if context is None and bootstrap_servers is None and command_config is None:
        raise usage("name the cluster: context=…, bootstrap_servers=… or command_config=…")
    if context is not None and not (bootstrap_servers is None and command_config is None):
        raise usage("a context names its cluster and policy: leave bootstrap_servers and command_config out")
    with translated():
        common = Common(
            bootstrap_server=(
                bootstrap_servers if isinstance(bootstrap_servers, str | None) else ",".join(bootstrap_servers)
            ),
            command_config=None if command_config is None else Path(command_config),
            context=context,
            # Without a name, not the default context: its policy may be meant for another cluster.
            chosen=({}, "default") if context is None else None,
            policy=None if policy is None else Path(policy),
            no_policy=no_policy,
            state_dir=None if state_dir is None else Path(state_dir),
            timeout=None if timeout is None else duration_ms("timeout", timeout),
            quiet=True,
        )
        settings = resolve(common)
        reader = settings.reader().__enter__()
    return Cluster(settings, reader)


def load_plan(path: str | Path, *, cluster: str | None = None) -> Plan:
    """Read a saved plan, JSON or Parquet; ``cluster`` is one of a fleet's.

    Raises:
        KretainError: it is not an executable plan; the text names the place.
    """
    with translated():
        return plan_value(Origin(read_saved(Path(path), cluster), None, str(path)))


class Cluster:
    """A connection to one cluster, from :func:`connect`. Calls from several threads take turns."""

    def __init__(self, settings: Resolved, reader: ClusterReader) -> None:
        self._settings = settings
        self._reader = reader
        self._turn = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. May be called repeatedly."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._reader.__exit__(None, None, None)

    def plan(
        self,
        *topics: str,
        inventory: Sequence[str | Path] = (),
        **one_off: Unpack[Rules],
    ) -> Plan:
        """Decide what may be trimmed. The cluster is not changed; what is seen is remembered in the state directory.

        Args:
            topics: names, globs or ``re:^…$``; none: all that the policy matches.
            inventory: Parquet files of ``kretain segments scan``.
            one_off: rules in place of the policy file's.

        Raises:
            KretainError: the policy is missing or wrong, nothing matches, or the cluster can't be read.
        """
        given = rules_of(patterns(topics), one_off)
        with self._opened():
            selection = self._selection(given)
            engine = planner(
                SharedSpark(SparkFlags()), InventoryOption([Path(one) for one in inventory] or None, selection.policy)
            )
            with contextlib.closing(self._memories(selection)) as memories:
                made = plan_now(self._settings, self._reader, selection, engine, memories, silent)
            return plan_value(Origin(made, given, None))

    def trim(
        self,
        plan: Plan,
        *topics: str,
        yes: bool = False,
        dry_run: bool = False,
        max_age: Duration = "1h",
        approval: str | Path | None = None,
        max_partitions: int | None = None,
        wait_lock: Duration = 0,
        inventory: Sequence[str | Path] = (),
        **one_off: Unpack[Rules],
    ) -> Report:
        """Carry a plan out as ``kretain trim --plan`` does: decide afresh, delete what both allow, read back.

        Nothing is deleted unless ``yes=True``. A partition that fails is in the report, not an exception.

        Args:
            plan: of :meth:`plan`, which remembers its topics and rules, or of :func:`load_plan`.
            topics: for a loaded plan with one-off rules: the same again, as the file alone is not trusted.
            yes: delete. Only ``True`` itself counts.
            dry_run: rehearse: do everything but the deletes, even with ``yes=True``.
            max_age: how old the plan may be, when it is carried out; its approval, too.
            approval: a second person's approval of a loaded plan; by default the file next to the plan's.
            max_partitions: trim these few first.
            wait_lock: wait this long for another trim of this cluster to end.
            inventory: as in :meth:`plan`.
            one_off: for a loaded plan with one-off rules: the same again, for the same reason.

        Raises:
            RefusedError: not confirmed, another cluster, too old, other rules, or a limit; nothing was trimmed.
            KretainError: nothing could be rechecked, and nothing was trimmed.
            InterruptedTrim: Ctrl-C; it carries the report. A second one during a request is a KeyboardInterrupt, and
                the audit log alone says what was sent.
        """
        origin = origin_of(plan)
        if not dry_run and yes is not True:
            raise RefusedError("pass yes=True to trim or dry_run=True to rehearse; nothing was trimmed", "refused")
        most, age_ms = positive("max_partitions", max_partitions), duration_ms("max_age", max_age)
        lock_ms = duration_ms("wait_lock", wait_lock)
        given = rules_of(patterns(topics), one_off)
        if origin.rules is not None and not topics and not given.any_rule:
            given = origin.rules
        with self._opened():
            today = todays_rules(origin.made, given, partial(self._selection, given), age_ms)
            check_cluster(origin.made, self._reader.metadata([]).cluster_id)
            files = InventoryOption([Path(one) for one in inventory] or None, today.policy, require_all=True)
            sent: list[TrimReport] = []
            with contextlib.closing(self._memories(today)) as memories:
                job = TrimJob(
                    reader=self._reader,
                    plan=origin.made,
                    selection=partial(self._selection, given),
                    state_dir=self._settings.state_dir,
                    clock_ms=now_ms,
                    exit_code_for=exit_codes(),
                    dry_run=bool(dry_run),
                    max_partitions=most,
                    wait_lock_s=lock_ms / 1000,
                    max_age_ms=age_ms,
                    source=origin.source,
                    offered=offered(origin.made, origin.source, None if approval is None else Path(approval), age_ms),
                    memories=memories,
                    inventory=files.view,
                    audit=today.policy.audit,
                    on_report=sent.append,
                )
                return self._carried_out(job, memories, sent)

    def offsets(
        self, *topics: str, groups: Sequence[str] = (), unread: Literal["topics", "partitions"] | None = None
    ) -> Result:
        """Return each partition's floor and lag, as ``kretain offsets`` does.

        Args:
            topics: names, globs or ``re:^…$``; none: all that the policy matches, without a policy all.
            groups: a row per partition and group that one of these names or patterns matches.
            unread: what each consumer has not read, a row per topic or partition.

        Raises:
            KretainError: the policy is wrong, nothing matches, or the cluster can't be read.
        """
        named, consumers = patterns(topics), group_patterns(groups)
        wanted = consumers or (("*",) if unread else ())
        with self._opened():
            chosen = selection_or_all(self._settings.policy, list(named) or None)
            memories = self._settings.memories(self._reader, chosen.policy.state, will_save=False)
            found = read_positions(
                self._reader, chosen, now_ms(), groups=wanted, unread=unread, memories=memories, progress=silent
            )
        return Result(*positions_document(found, unread, of_groups=bool(wanted)), memories.notes)

    def groups(self, *names: str) -> Result:
        """Return consumer groups: which count, how far behind they are, and what they hold, as ``kretain groups`` does.

        Args:
            names: names, globs or ``re:^…$``; none: all.

        Raises:
            KretainError: the policy is wrong, or the cluster can't be read.
        """
        wanted = group_patterns(names) or ("*",)
        with self._opened():
            policy = self._settings.load_or_default()
            memories = self._settings.memories(self._reader, policy.state, will_save=False)
            found = list_all(self._reader, policy.groups, wanted, memories=memories, now_ms=now_ms(), progress=silent)
        return Result(*groups_document(found), filter(None, [*memories.notes, found.incomplete]))

    def explain(
        self,
        topic: str,
        partition: int | None = None,
        *,
        inventory: Sequence[str | Path] = (),
        **one_off: Unpack[Rules],
    ) -> Result:
        """Return why a topic's partitions, or one of them, are decided as they are, as ``kretain explain`` does.

        Args:
            topic: a topic's full name.
            partition: one of its partitions; None: all.
            inventory: as in :meth:`plan`.
            one_off: as in :meth:`plan`.

        Raises:
            KretainError: the policy is missing or wrong, there is no such partition, or the cluster can't be read.
        """
        given = rules_of(patterns([topic]), one_off)
        with self._opened():
            chosen = self._selection(given)
            view = InventoryOption([Path(one) for one in inventory] or None, chosen.policy).view
            with contextlib.closing(self._memories(chosen)) as memories:
                found = explain(self._reader, chosen, topic, partition, now_ms(), memories, silent, view)
                memories.save(now_ms())
            return Result(*explained_document(found), memories.notes)

    def history(
        self,
        run: str | None = None,
        *,
        since: Duration | None = None,
        limit: int | None = None,
        outcome: Literal["trimmed", "held", "failed", "unverified"] | None = None,
    ) -> Result:
        """Return this cluster's past trims from the audit log, or one run's partitions, as ``kretain history`` does.

        ``head["settings"]`` has the settings that ``protect`` changed.

        Args:
            run: a run's name; the result has a row per partition and batch.
            since: only runs of this last period.
            limit: only the newest runs, at most this many.
            outcome: only runs in which a partition had this outcome.

        Raises:
            KretainError: there is no such run, or the audit log can't be read.
        """
        choice = Choice(
            None if since is None else now_ms() - duration_ms("since", since),
            None,
            outcome,
            limit=positive("limit", limit),
        )
        with self._opened():
            cluster_id = self._reader.metadata([]).cluster_id
            runs, changed = read_past(self._settings.state_dir)
            past = [one for one in runs if one.begun["cluster"]["id"] == cluster_id]
            if run is not None:
                found = find_run(past, run)
                return Result({"format": HISTORY_FORMAT, **run_row(found)}, "partitions", partitions_of(found))
            return Result(
                {
                    "format": HISTORY_FORMAT,
                    "settings": select_changes([one for one in changed if one["cluster"] == cluster_id], choice),
                },
                "runs",
                map(run_row, select(past, choice)),
            )

    def forecast(
        self, *topics: str, every: Duration = "5m", least: Duration = "1h", **one_off: Unpack[Rules]
    ) -> Result:
        """Return what the policy will keep, topic by topic, as ``kretain forecast`` does.

        ``head`` has the totals, the disks, and the groups that lose data next. Nothing is remembered.

        Args:
            topics: names, globs or ``re:^…$``; none: all that the policy matches.
            every: assume a trim this often.
            least: measure rates over at least this long.
            one_off: rules in place of the policy file's.

        Raises:
            KretainError: the policy is missing or wrong, nothing matches, or the cluster can't be read.
        """
        given = rules_of(patterns(topics), one_off)
        terms = Terms(duration_ms("every", every), duration_ms("least", least), now_ms())
        with self._opened():
            [found] = forecasts(self._settings, self._reader, [self._selection(given)], terms, silent)
        return Result(forecast_head(found, None), "topics", topic_rows(found, None), found.notes)

    def _carried_out(self, job: TrimJob, memories: Memories, sent: list[TrimReport]) -> Report:
        """Trim. Return the report even if something fails after a request was sent."""
        failed: list[Reason] = []
        report: TrimReport | None = None
        interrupted = False
        try:
            report = carry_out(job)
            memories.save(now_ms())
            report = shipped(job, report)
        except KeyboardInterrupt:
            report, interrupted = report or next(iter(sent), None), True
            if report is None:
                raise
        except Exception as error:
            report = report or next(iter(sent), None)
            if report is None or not report.sent:
                raise
            failed.append(Reason("trim", f"after the deletes: {line_of(error)}"))
        value = report_value(report, (*memories.notes, *failed), failed=bool(failed))
        if interrupted or report.interrupted:
            raise InterruptedTrim(value)
        return value

    def _selection(self, given: OneOff) -> Selection:
        if self._settings.policy is None and not (given.any_trigger and given.patterns):
            raise usage(
                "there is no policy: connect with policy=FILE or a context that has one, or name topics and a one-off "
                "rule, such as plan('orders', consumed_after='3d')"
            )
        return selection_of(self._settings.policy, list(given.patterns), given)

    def _memories(self, selection: Selection) -> Memories:
        return self._settings.memories(self._reader, selection.policy.state)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        """Let a call take its turn, and raise errors as the API's own."""
        with self._turn, translated():
            if self._closed:
                raise usage("this connection is closed: call kretain.connect again")
            yield
