"""Mutants of R6: after how many sequences the simulated disks find each (run it as a module)."""

from __future__ import annotations

import sys
from typing import Final

from tests.support.mutate import Mutant, try_by_simulation

_LEVEL: Final = "disks/water_level.py"
_RUN: Final = "disks/run.py"
_LEAVING: Final = "disks/pending_deletes.py"
_ESTIMATE: Final = "disks/estimate.py"
_SIZES: Final = "disks/replica_sizes.py"

MUTANTS: Final = (
    Mutant("dead segments are not leaving", _LEVEL, " - dead - possible\n", " - possible\n"),
    Mutant("what may be leaving stays", _LEVEL, "[*(one.uncertain_bytes for one in leaving), 0]", "[0 for _ in leaving] + [0]"),
    Mutant("what leaves sizes is gone at once", _LEVEL, "[*(one.known_bytes for one in leaving), 0]", "[0 for _ in leaving] + [0]"),
    Mutant("what other rules trim is not counted", _RUN, "{**starts, **decided}", "starts"),
    Mutant("limits are not looked at", _LEVEL, "-1 if isinstance(one, Unknown) else one.offset for one in allowed", "-1 if isinstance(one, Unknown) else 2**62 for one in allowed"),
    Mutant("who is on hold goes", _RUN, "stopped = {**inventory.broken(), **self._held()}", "stopped: dict[TopicPartition, Unknown] = {}"),
    Mutant("all that is unexplained is somebody else's", _LEAVING, "max(0, disk.unexplained_bytes - stays_bytes - known_bytes)", "0"),
    Mutant("an inventory says for ever what stays", _LEAVING, "<= SAYS_FOR_MS:", "<= 10**15:"),
    Mutant("what is leaving at the scan stays", _LEAVING, '_EXPLAINED: Final = ("log_bytes", "pending_bytes",', '_EXPLAINED: Final = ("log_bytes",'),
    Mutant("looks since the scan say nothing", _LEAVING, "Scanned(min([others, *(one.used_bytes for one in since)]), file.scanned_at_ms)", "Scanned(others, file.scanned_at_ms)"),
    Mutant("what came after the scan is not dead", _LEAVING, "    if bound == 0:", "    if True:"),
    Mutant("what was never scanned is not dead", _LEAVING, "    if one is None:\n        return size_bytes", "    if one is None:\n        return 0"),
    Mutant("indexes stay", _LEAVING, "found[disk.name] = found.get(disk.name, 0) + size_bytes", "pass"),
    Mutant("an inventory is always believed", "disks/inventory_view.py", "    if why is not None:\n                doubts", "    if why is None and False:\n                doubts"),
    Mutant("other logs are not looked at", _RUN, "    if not wanted:", "    if True:"),
    Mutant("sizes hold no dead bytes", "memory/replica.py", "return self.log_start <= max(0, self.swept)", "return True"),
    Mutant("files are gone once they are swept", _SIZES, "row.leaving_bytes(self._now_ms, self._sweeping(broker, tp))", "0"),
    Mutant("the estimate forgets what is dead", _ESTIMATE, "dead[n] += gone", "pass"),
    Mutant("the estimate forgets what is doubtful", _ESTIMATE, "doubtful[n] += unsure", "pass"),
    Mutant("the estimate's segments are all that is closed", _ESTIMATE, "max(_LEAST_ROWS, MOST_ROWS // max(1, len(disk)))", "1"),
    Mutant("each dir is a device", "disks/devices.py", "return self.device == other.device", "return False"),
    Mutant("a ledger says at once what stays", "disks/devices.py", "    if not old or any(one[1:] != now[1:] for one in since):\n        return False\n    return old[-1][1:] in (now[1:], (~now.used_bytes, now.total_bytes))", "    return True"),
    Mutant("a replica that comes back never left", _SIZES, "before.seen_ms < since_ms - _SAME_SAMPLE_MS", "False"),
    Mutant("what growth hides was not swept", "disks/devices.py", "disk.unexplained_bytes - may_leave_bytes", "disk.unexplained_bytes"),
    Mutant("a broker that says nothing holds nothing", _RUN, "absent = [(one, one.room) for one in self.disks if not one.dirs]", "absent: list[tuple[Disk, object]] = []"),
    Mutant("what is in remote storage goes", "decide/decision.py", "    if topic.tiered and not", "    if False and not"),
    Mutant("what is diskless goes", "decide/decision.py", "    if topic.diskless:", "    if False:"),
    Mutant("the newest go first", _LEVEL, "np.lexsort((age, segments.disk[rows]))", "np.lexsort((-age, segments.disk[rows]))"),
    Mutant("one segment too many", _LEVEL, "np.repeat(before[first], count) < remaining[disk]", "np.repeat(before[first], count) <= remaining[disk]"),
    Mutant("a second look asks those leaders alone", _RUN, "sized, self._leaders, remembered", "sized, leaders, remembered"),
    Mutant("a time that cannot be looked up is young", _ESTIMATE, "self.unanswered[tp] = str(answer)", "pass"),
    Mutant("a recreated topic has the id of a second look", _RUN, "ids = {tp: known(one.topic.topic_id) for tp, one in self._facts.items()}", "ids = self._topic_ids()"),
)  # fmt: skip
_YOUNG: Final = "test_young_records_do_not_go_for_old_ones_of_a_partition_whose_times_are_unknown"
ELSEWHERE: Final = {
    "looks since the scan say nothing": "tests/unit/disks/test_disk_sizes.py",
    "an inventory is always believed": "tests/unit/disks/test_segments_scan.py",
    "files are gone once they are swept": "tests/unit/disks/test_disk_sizes.py",
    "the estimate's segments are all that is closed": "test_kept_disk_sequence_breaks_no_rule[704]",
    "one segment too many": "tests/unit/disks/test_water_level.py",
    "a second look asks those leaders alone": f"{_YOUNG}[elects]",
    "a time that cannot be looked up is young": f"{_YOUNG}[loses]",
    "a recreated topic has the id of a second look": "test_topic_recreated_between_two_looks_is_not_trimmed_by_r6",
}
"""Which test finds those that random sequences meet too seldom."""


if __name__ == "__main__":
    sys.exit(try_by_simulation(__doc__, "tests.simulation.disks.run", MUTANTS, ELSEWHERE, steps=20_000, first=5_000))
