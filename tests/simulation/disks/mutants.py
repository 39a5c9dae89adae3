"""Mutants of R6: after how many sequences the simulated disks find each (run it as a module)."""

from __future__ import annotations

import sys
from typing import Final

from tests.simulation.trying import main
from tests.support.mutate import Mutant

_WALK: Final = "disks/solve/oldest_first.py"
_LEAVING: Final = "disks/solve/leaving.py"
_UNCOUNTED: Final = "disks/solve/uncounted.py"
_ESTIMATED: Final = "disks/solve/estimated.py"
_SIZES: Final = "disks/replica_sizes.py"

MUTANTS: Final = (
    Mutant("dead segments are not leaving", _WALK, "excess - dead - possible)", "excess - possible)"),
    Mutant("what may be leaving stays", _WALK, "possible[n] = away.uncertain_bytes", "possible[n] = 0"),
    Mutant("what leaves sizes is gone at once", _WALK, "dead[n] += away.known_bytes", "pass"),
    Mutant("what other rules trim is not counted", _WALK, "max(log_starts.get(tp, 0), decided.get(tp, 0))", "log_starts.get(tp, 0)"),
    Mutant("limits are not looked at", _WALK, "limit[number] = allowed.offset", "limit[number] = 2**62"),
    Mutant("who is on hold goes", _WALK, "broken = {**broken_partitions(segment_table.incomplete), **held}", "broken: dict[TopicPartition, Unknown] = {}"),
    Mutant("all that is unexplained is somebody else's", _LEAVING, "max(0, disk.unexplained_bytes - stays_bytes - known_bytes)", "0"),
    Mutant("an inventory says for ever what stays", _LEAVING, "<= SAYS_FOR_MS:", "<= 10**15:"),
    Mutant("what is leaving at the scan stays", _LEAVING, '_EXPLAINED: Final = ("log_bytes", "pending_bytes",', '_EXPLAINED: Final = ("log_bytes",'),
    Mutant("looks since the scan say nothing", _LEAVING, "Scanned(min([others, *(one.used_bytes for one in since)]), file.scanned_at_ms)", "Scanned(others, file.scanned_at_ms)"),
    Mutant("what came after the scan is not dead", _UNCOUNTED, "    if bound == 0:", "    if True:"),
    Mutant("what was never scanned is not dead", _UNCOUNTED, "    if one is None:\n        return size_bytes", "    if one is None:\n        return 0"),
    Mutant("indexes stay", _UNCOUNTED, "found[disk.name] = found.get(disk.name, 0) + size_bytes", "pass"),
    Mutant("an inventory is always believed", "disks/solve/borne_out.py", "    if why is not None:\n            doubts", "    if why is None and False:\n            doubts"),
    Mutant("other logs are not looked at", "disks/elsewhere.py", "    if not wanted:", "    if True:"),
    Mutant("sizes hold no dead bytes", "memory/replica.py", "return self.log_start <= max(0, self.swept)", "return True"),
    Mutant("files are gone once they are swept", _SIZES, "row.leaving_bytes(self._now_ms, self._sweeping(broker, tp))", "0"),
    Mutant("the estimate forgets what is dead", _ESTIMATED, "self._excess - self._dead - self._doubtful", "self._excess - self._doubtful"),
    Mutant("the estimate forgets what is doubtful", _ESTIMATED, "self._excess - self._dead - self._doubtful", "self._excess - self._dead"),
    Mutant("the estimate's last step is taken whole", "disks/solve/estimate.py", "self._no_more_than_enough()[driving]", "self._offset[driving]"),
    Mutant("each dir is a device", "disks/solve/devices.py", "return named == twin", "return False"),
    Mutant("a ledger says at once what stays", "disks/usage.py", "lowest(known.looks, now, over_ms)", "lowest(known.looks, now, 0)"),
    Mutant("a broker that says nothing holds nothing", "disks/measure.py", "return {tp: named(one, one.room) for one in self.absent if", "return {tp: named(one, one.room) for one in () if"),
    Mutant("the newest go first", "disks/solve/walk.py", 'order = np.argsort(found.age, kind="stable")', 'order = np.argsort(-found.age, kind="stable")'),
    Mutant("one segment too many", "disks/solve/walk.py", "going = before < remaining[found.disk]", "going = before <= remaining[found.disk]"),
)  # fmt: skip
ELSEWHERE: Final = {
    "looks since the scan say nothing": "tests/unit/disks/test_leaving.py",
    "an inventory is always believed": "tests/unit/disks/test_borne_out.py",
    "files are gone once they are swept": "tests/unit/disks/test_disk_sizes.py",
    "the estimate's last step is taken whole": "test_kept_disk_sequence_breaks_no_rule[704]",
    "one segment too many": "tests/unit/disks/test_water_level.py",
}
"""Which test finds those that random sequences meet too seldom."""


if __name__ == "__main__":
    sys.exit(main(__doc__, "tests.simulation.disks.run", MUTANTS, ELSEWHERE, steps=20_000, first=5_000))
