"""Faults put in on purpose: which test of ``make test-all`` finds each. ``python -m tests.mutants``, some hours.

Unit tests run first, those of its room before all, then the simulation, then the file on real brokers that is nearest;
each stops at its first failure.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS as OF_SEQUENCES
from tests.support.mutate import ROOT, Mutant, mutated, run_in, try_each

_ANSWERS: Final = "brokers/log_offsets.py"
_COMMITS: Final = "brokers/commits.py"
_RECONCILE: Final = "plan/reconcile.py"
_CHECKS: Final = "evidence/checks.py"
_VERIFY: Final = "evidence/verify.py"
_LIMITS: Final = "decide/guards/limits.py"
_APPROVAL: Final = "plan/approval.py"
_ARCHIVE: Final = "trim/archive_gate.py"
_OUTSIDE: Final = "observe/floors/outside.py"
_CHECKPOINT: Final = "observe/floors/sources/checkpoint.py"
_POSITIONS: Final = "observe/floors/sources/stored.py"
_REPLICA: Final = "observe/floors/sources/replica.py"
_PROOF: Final = "observe/floors/sources/proof.py"
_TASK: Final = "engines/spark/tasks.py"
_PLANS: Final = "engines/spark/plans.py"
_FOLD: Final = "observe/floors/fold.py"

MUTANTS: Final = (
    *OF_SEQUENCES,
    Mutant("look-ups: -1 is an offset", _ANSWERS, "_NOT_FOUND if offset < 0 else", "_NOT_FOUND if False else"),
    Mutant("look-ups: an error is an answer", _ANSWERS, "    if error_code:\n", "    if False:\n"),
    Mutant(
        "records: over Kerberos all is read at once",
        "brokers/records.py",
        "ended |= {tp: Ended(span.start, why) for tp, span in chunk.items()}",
        "ended |= {tp: Ended(span.end) for tp, span in chunk.items()}",
    ),
    Mutant(
        "R2: a record may lose its event time",
        "observe/event_times.py",
        "elif time_ms is None and self._had_a_time(offset):",
        "elif False:",
    ),
    Mutant(
        "look-ups: a broker's answer about remote segments is believed",
        "observe/times.py",
        "(on_disks and answer.timestamp is not None",
        "(answer.timestamp is not None",
    ),
    Mutant(
        "look-ups: MAX_TIMESTAMP knows remote segments",
        "observe/times.py",
        "newest = newest if self.facts[tp].topic.on_disks else _NO_ANSWER",
        "newest = newest",
    ),
    Mutant(
        "F5: with its epoch a commit is another one",
        "memory/positions.py",
        "found &= (own == theirs) | (own == NONE) | (theirs == NONE)",
        "found &= own == theirs",
    ),
    Mutant(
        "F6: what a consumer left is forgotten with a log that was cut",
        "memory/group.py",
        "| (some.of_topics(cut) & ~(some.within(now) & ~some.is_proven))",
        "",
    ),
    Mutant(
        "F6: what may be a leftover is worth nothing once it is gone",
        "memory/group.py",
        "same = refused.where(refused.within(last.refused) | refused.same_in(known))",
        "same = refused",
    ),
    Mutant(
        "F5: a cut refuses no open commit of a group that can't be read",
        "memory/ledger_rows.py",
        "and group.refuse_unread(logs)",
        "and False",
    ),
    Mutant(
        "F2: R6's looks hide that a topic has grown",
        "disks/run.py",
        "remembered.memory.ages(widths, (), remembered.now_ms)",
        "widths.clear()",
    ),
    Mutant(
        "F2: a part of a ledger knows no topic that has not grown",
        "state/memories.py",
        "WHERE topic_id NOT IN (SELECT",
        "WHERE 0 AND topic_id NOT IN (SELECT",
    ),
    Mutant(
        "F6: an executor's clock says how long a group is gone",
        "observe/cluster.py",
        "now_ms = min(request.now_ms, request.clock_ms())",
        "now_ms = request.clock_ms()",
    ),
    Mutant(
        "F6: a group is remembered as of when the run began",
        "observe/recall.py",
        "return self.memory.saw_group(name, commits, self.clock_ms(), self.since_ms, partly=bool(unread))",
        "return self.memory.saw_group(name, commits, self.now_ms, self.since_ms, partly=bool(unread))",
    ),
    Mutant(
        "F9: a listing of ignored groups shows that there are no others",
        "observe/floors/kafka_groups.py",
        "_is_hidden(reader, before, listed, rules)",
        "_is_hidden(reader, before, counted, rules)",
    ),
    Mutant(
        "R2: all records of a block may become older",
        "observe/event_times.py",
        "if self.by_schema and newest_ms is not None and newest_ms >= self.cutoff_ms:",
        "if False:",
    ),
    Mutant(
        "R2: an answer without a schema is of another type",
        "brokers/schemas.py",
        'if not isinstance(content.get("schema"), str):',
        "if False:",
    ),
    Mutant("R2: a key that a map lacks is 0", "brokers/schemas.py", "if name not in found:", "if False:"),
    Mutant(
        "F8, F9: nobody need be required where groups may be missing",
        "observe/floors/kafka_groups.py",
        "for reason in listing.may_lack:",
        "for reason in ():",
    ),
    Mutant(
        "F8, F9: a required group that is gone is there, though groups may be missing",
        _FOLD,
        "if listed or not self.may_lack:",
        "if True:",
    ),
    Mutant(
        "F2: who is not asked starts back by now",
        "observe/floors/kafka_groups.py",
        "None if name in unasked else back_ms",
        "back_ms",
    ),
    Mutant(
        "F2, G8: with a wrong clock no group starts back",
        "observe/cluster.py",
        "start=tuple((name, None) for name, _ in groups.start)",
        "start=()",
    ),
    Mutant(
        "F8: any group that can't be read is outside the scope",
        "observe/floors/kafka_groups.py",
        "if not one.name.startswith(scope)]",
        "]",
    ),
    Mutant("commits: a row's error is let be", _COMMITS, "if not answer.failed:", "if True:"),
    Mutant(
        "commits: a group's error is an empty group",
        _COMMITS,
        "if answer.error_code == GROUP_ID_NOT_FOUND:",
        "if answer.error_code:",
    ),
    Mutant("recheck: a rewind is let be", _RECONCILE, "if fresh.min_commit < planned.min_commit:", "if False:"),
    Mutant("recheck: a lost floor is let be", _RECONCILE, "        if fresh.min_commit is None:", "        if False:"),
    Mutant("recheck: more unread than planned", _RECONCILE, "if unread > planned.unconsumed:", "if False:"),
    Mutant("recheck: a cut since the plan", _RECONCILE, "if epoch_end < target:", "if False:"),
    Mutant(
        "evidence: any request is within the facts",
        _CHECKS,
        "fact.allowed is None or requested > fact.allowed",
        "False",
    ),
    Mutant("evidence: any floor follows from commits", _CHECKS, "if floor.offset > counts:", "if False:"),
    Mutant("evidence: any order of reads is safe", _CHECKS, "if later < at:", "if False:"),
    Mutant("evidence: any cluster's will do", _VERIFY, "if folder_name(cluster) != folder or (", "if (False and "),
    Mutant(
        "evidence: a request of no line is let be", _VERIFY, "for row in requests.filter(alone)", "for row in alone[:0]"
    ),
    Mutant(
        "evidence: of another batch will do",
        _VERIFY,
        'row_indexes(announced, requests, "batch")',
        'row_indexes(announced, requests, "partition")',
    ),
    Mutant(
        "evidence: a line that is not there is found",
        _VERIFY,
        "found = np.append(others, NONE)[at] == keys",
        "found = at >= 0",
    ),
    Mutant("G6: the last day does not count", _LIMITS, "both.records > limits.max_records", "run.records > 2**62"),
    Mutant(
        "G6: unknown bytes are within",
        _LIMITS,
        "        if both.size_bytes is None:\n",
        "        if both.size_bytes is None:\n            pass\n        elif False:\n",
    ),
    Mutant("G6: no percentage is too much", _LIMITS, "run.records * 100 >", "0 >"),
    Mutant(
        "restore: a group skips the record that it would have read next",
        "archive/positions.py",
        "self._left[-1] <= archived",
        "self._left[-1] < archived",
    ),
    Mutant(
        "restore: a position in a lost log counts",
        "archive/positions.py",
        "other = epoch is not None and",
        "other = False and",
    ),
    Mutant(
        "restore: a group skips what was trimmed before it started over",
        "archive/positions.py",
        "    return start < end and any(low < end and start < high for low, high in covered)",
        "    return False",
    ),
    Mutant(
        "restore: a group without a position stands where it last did",
        "archive/positions.py",
        "= Behind(start if position is None else position, epoch)",
        "= stood.get(key, Behind(start, epoch)) if position is None else Behind(position, epoch)",
    ),
    Mutant(
        "restore: a group that may not have been named did not exist",
        "archive/positions.py",
        "if one.unlisted is not None:",
        "if False:",
    ),
    Mutant(
        "restore: an earlier position is as of now",
        "archive/restore_groups.py",
        "plan.behind.get((row.group, number), now).epoch",
        "now.epoch",
    ),
    Mutant(
        "restore: a group continues at its newest position",
        "archive/restore_groups.py",
        "if was is not None and was.position < archived:",
        "if False:",
    ),
    Mutant(
        "disks: a capacity without its unit is one",
        "disks/devices.py",
        "if capacity < max(1, kafka):",
        "if not capacity:",
    ),
    Mutant(
        "disks: dirs with capacities of their own are one device",
        "disks/devices.py",
        "self.sized == other.sized and not (self.own and other.own)",
        "self.sized == other.sized",
    ),
    Mutant(
        "disks: one capacity is for all that look alike",
        "disks/devices.py",
        "if setting_for(rules.capacity, broker, paths) is None:",
        "if True:",
    ),
    Mutant(
        "disks: the first of several capacities counts",
        "disks/devices.py",
        "if sum(_has_own(rules.capacity, broker, path) for path in paths) > 1:",
        "if False:",
    ),
    Mutant(
        "archive: keeps a position beyond the end",
        "trim/recheck.py",
        "offset is None or offset > end",
        "offset is None",
    ),
    Mutant("archive: goes on without positions", _ARCHIVE, "failures[url, topic] = error", "pass"),
    Mutant(
        "approval: no trim needs one", "trim/batches.py", "if self.deleter is not None and run.records:", "if False:"
    ),
    Mutant(
        "approval: the last day does not count",
        "decide/guards/approval.py",
        "    both = run + past_day\n",
        "    both = run\n",
    ),
    Mutant(
        "approval: of any plan",
        _APPROVAL,
        "isinstance(one, dict) and shown.entry.items() <= one.items()",
        "isinstance(one, dict)",
    ),
    Mutant(
        "approval: any signature", _APPROVAL, "if not check(statement(content), signed, keys[signed.key]):", "if False:"
    ),
    Mutant("approval: one's own", _APPROVAL, "if requester.key == approver:", "if False:"),
    Mutant("archive: trims beyond the copy", _ARCHIVE, "replace(target, offset=copied.end)", "target"),
    Mutant(
        "archive: another topic's copy counts",
        _ARCHIVE,
        "elif target.decision.topic_id != copied.source.topic_id:",
        "elif False:",
    ),
    Mutant(
        "archive: a copy that begins later counts",
        _ARCHIVE,
        "elif start is None or start < copied.start:",
        "elif False:",
    ),
    Mutant(
        "archive: values are not in the checksum",
        "archive/segment.py",
        "_NULL if value is None else length(len(value)) + value",
        "_NULL",
    ),
    Mutant(
        "R6: what is leaving counts as staying",
        "disks/water_level.py",
        "    remaining = excess - already\n",
        "    remaining = excess\n",
    ),
    Mutant(
        "R6: unknown does not hold",
        "decide/decision.py",
        'action: Action = "hold" if decision.action == "keep" else decision.action',
        "action: Action = decision.action",
    ),
    Mutant(
        "R6: an election meanwhile is let be",
        "disks/run.py",
        "tp: _CHANGED for tp in tps if",
        "tp: _CHANGED for tp in () if",
    ),
    Mutant("R7: a mark is above itself", "disks/disk.py", "if percent >= Fraction", "if percent > Fraction"),
    Mutant("saved plan: a target beyond H", "plan/saved.py", "if not start <= target <= end:", "if False:"),
    Mutant(
        "audit log: an edited line is let be",
        "audit/chain.py",
        "elif not follows and self._reported != self._at:",
        "elif False:",
    ),
    Mutant(
        "shared ledger: others are not asked again",
        "state/cluster_ledger.py",
        "                self._sync()\n                with self._errors():\n                    self.lost = self._in_doubt()",
        "                with self._errors():\n                    self.lost = self._in_doubt()",
    ),
    Mutant(
        "Spark: a ledger that comes back drops what others wrote",
        "memory/ledger.py",
        'if self._meta("revision") != revision:',
        "if False:",
    ),
    Mutant("Spark: the highest commit is the floor", _FOLD, "least < low[n] or", "least > low[n] or"),
    Mutant("Spark: failures are lost", _FOLD, "        self.failed |= other.failed\n", ""),
    Mutant("Spark: who is gone is lost", _FOLD, "            self.at(*tp).take(one)\n", "            pass\n"),
    Mutant(
        "Spark: a row is missing",
        _PLANS,
        "(list(range(slices)), slices, giant.shares):",
        "(sorted(parts), len(found.slices), len(found.shares)):",
    ),
    Mutant(
        "Spark: what it reads again is judged",
        _PLANS,
        "return all(one.runs == runs for one in self.slices)",
        "return True",
    ),
    Mutant("Spark: parts are of two revisions", _PLANS, "        if not memory.others_wrote:", "        if True:"),
    Mutant("Spark: a cut is not told", _PLANS, "[TopicPartition(*tp) for one in slices for tp in one.cuts]", "[]"),
    Mutant(
        "Spark: what others saw since is let be",
        "memory/ledger_rows.py",
        'apart = self._outdated or self._meta("revision") != self._revision',
        "apart = False",
    ),
    Mutant(
        "Spark: a group is not seen again",
        "memory/ledger_rows.py",
        "            self.saw_again(name, listed_ms)\n",
        "            pass\n",
    ),
    Mutant(
        "Spark: a cut counts only if the log stays",
        _TASK,
        "special = {**ledger.cut, **logs.special}",
        "special = {**logs.special}",
    ),
    Mutant(
        "Spark: an executor's clock may be behind",
        _TASK,
        "if (behind_ms := sent_ms - SYSTEM.wall_ms()) > MAX_SKEW_MS:",
        "if False:",
    ),
    Mutant(
        "Spark: what a task has seen is not remembered",
        _PLANS,
        '    take_back(memories, cluster, bytes(row["ledger"] or b""), memory.revision, job.now_ms)\n',
        "",
    ),
    Mutant(
        "F2: a share group that has read nothing is no group",
        "brokers/commits.py",
        "unset.setdefault(topic.topic_name, {})[one.partition_index] = one.start_offset",
        "pass",
    ),
    Mutant(
        "G8: a wrong clock forgets groups",
        "observe/cluster.py",
        "if request.clock is not None:",
        "if False:",
    ),
    Mutant(
        "F7: a position that is gone is let be",
        _OUTSIDE,
        "recall.saw(key, rows, {*one.unreadable, *one.unread})",
        "recalled",
    ),
    Mutant(
        "F5: what one of two sources has not met is forgotten",
        _OUTSIDE,
        "{*one.unreadable, *one.unread}",
        "{*one.unreadable}",
    ),
    Mutant(
        "F7: a source that failed is let be",
        _OUTSIDE,
        "        fold.fail(key_of(source.kind, source.name), text, _topics_of(source, ours, fold, recall))",
        "        bool(text)",
    ),
    Mutant(
        "F7: a foreign row is passed over",
        _OUTSIDE,
        "topic for topic in one.positions if topic not in topics",
        "topic for topic in ()",
    ),
    Mutant("F7: old positions are good", _POSITIONS, "now_ms - at_ms > max_age_ms:", "False:"),
    Mutant(
        "F7: a batch under way is done",
        _CHECKPOINT,
        '_last_batch(checkpoint, "commits")',
        '_last_batch(checkpoint, "offsets")',
    ),
    Mutant("F7: the source ahead counts", _CHECKPOINT, "min(offset, before[n])", "max(offset, before[n])"),
    Mutant(
        "F7: a batch cut short is whole", _CHECKPOINT, "if not highest < len(sources) <= _MAX_SOURCES:", "if False:"
    ),
    Mutant(
        "F7: a source that has not met a partition is let be",
        _CHECKPOINT,
        ".union(topic for topic, _partition in torn)",
        "",
    ),
    Mutant(
        "F7: what a source first reads in the batch under way is let be",
        _CHECKPOINT,
        "_first_read(under_way.offsets, stands))",
        "set())",
    ),
    Mutant("F7: a commit of before a set back counts", _CHECKPOINT, "begun_ms > committed_ms", "False"),
    Mutant("F7: a copy that is lost counts", _PROOF, "if not there.start <= sync.downstream < there.end:", "if False:"),
    Mutant("F7: any record is a copy", _PROOF, "return self[1:] == other[1:]", "return True"),
    Mutant("F7: what is lost on the way is let be", _PROOF, "    if matched < len(ours):", "    if False:"),
    Mutant("F7: a sync is a commit", _REPLICA, "return min(sync.upstream, committed) + 1", "return sync.upstream + 1"),
    Mutant("F7: of two rows the last counts", _POSITIONS, "        if partition in here:", "        if False:"),
)

NEAREST: Final = {
    "archive/restore_groups": ("tests/kafka/archive/test_restore.py",),
    "archive/": ("tests/kafka/archive/test_archive.py",),
    "trim/archive_gate": ("tests/kafka/archive/test_archive.py",),
    "trim/": (
        "tests/kafka/trim/test_trim.py",
        "tests/kafka/trim/test_approval.py",
    ),
    "decide/guards/approval": ("tests/kafka/trim/test_approval.py",),
    "decide/guards": ("tests/kafka/plan/test_time_guards.py", "tests/kafka/trim/test_trim.py"),
    "decide/": ("tests/kafka/plan/test_scenarios.py",),
    "observe/floors": (
        *(
            "tests/kafka/floors/test_floors.py",
            "tests/kafka/floors/test_lineage.py",
            "tests/kafka/plan/test_observe.py",
            "tests/kafka/brokers/test_security.py",
        ),
        "tests/kafka/trim/test_failures.py",
    ),
    "observe/event": ("tests/kafka/plan/test_event_time.py", "tests/kafka/floors/test_lineage.py"),
    "observe/cluster": (
        "tests/kafka/plan/test_time_guards.py",
        "tests/kafka/plan/test_lookups.py",
        "tests/kafka/plan/test_observe.py",
    ),
    "observe/": (
        "tests/kafka/plan/test_lookups.py",
        "tests/kafka/plan/test_time_guards.py",
        "tests/kafka/plan/test_observe.py",
    ),
    "memory/": ("tests/kafka/floors/test_lineage.py", "tests/kafka/floors/test_floors.py"),
    "state/": ("tests/kafka/floors/test_cluster_ledger.py",),
    "brokers/": (
        "tests/kafka/plan/test_lookups.py",
        "tests/kafka/plan/test_observe.py",
        "tests/kafka/floors/test_floors.py",
    ),
    "disks/": ("tests/kafka/disks/test_disks.py", "tests/kafka/plan/test_observe.py"),
    "plan/approval": ("tests/kafka/trim/test_approval.py",),
    "plan/": ("tests/kafka/trim/test_trim.py",),
    "audit/": ("tests/kafka/trim/test_trim.py",),
    "engines/spark/plans": (
        "tests/simulation/test_spark_runs.py",
        "tests/spark/test_local.py",
    ),
    "engines/spark/": ("tests/simulation/test_spark_runs.py", "tests/spark/test_local.py"),
}
"""Which tests on brokers are nearest, by how a file's path begins."""

PARTS: Final = (
    "tests",
    "docs",
    "tools",
    "completions",
    "man",
    "bench",
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
"""What tests look at beside the code."""

_PYTEST: Final = ("pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", "not long")
HOUSE: Final = "tests/unit/house/"
"""Tests of the text of the code, the docs and the packaging: no mutant is theirs, and in a copy some fail anyway."""


def tests_of(mutant: Mutant) -> list[list[str]]:
    """Return what runs, one step after the other: the room's unit tests, kept sequences, all that is left, brokers."""
    unit = sorted(str(one.relative_to(ROOT)) for one in (ROOT / "tests/unit").rglob("test_*.py"))
    unit = [one for one in unit if not one.startswith(HOUSE)]
    room = [one for one in unit if one.startswith(f"tests/unit/{mutant.file.partition('/')[0]}/")]
    near = [[one] for one in next((files for start, files in NEAREST.items() if mutant.file.startswith(start)), ())]
    if mutant.file.startswith("engines/"):
        return [room, *near]
    steps = [room, ["tests/simulation/test_kept.py"], [one for one in unit if one not in room], ["tests/simulation"]]
    return [one for one in steps if one] + near


def found_by(mutant: Mutant, _given: argparse.Namespace) -> tuple[bool, str]:
    """Return whether a test fails on the mutant, and the first one."""
    with mutated(PARTS, mutant) as copy:
        for files in tests_of(mutant):
            done = run_in(copy, *_PYTEST, *files)
            if done.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):  # a file may have long tests alone
                named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return True, named[1] if named else f"exit {done.returncode}: {done.stdout.strip()[-200:]}"
    return False, "NOT FOUND"


if __name__ == "__main__":
    sys.exit(try_each(argparse.ArgumentParser(description=__doc__), MUTANTS, found_by))
