"""The rules that limit bounds, G1 to G9: one small pure module each.

:data:`GUARDS` limit single bounds. ``untouchable`` (G5) and ``frozen`` (G7) apply to all of a topic, before any trigger
runs; ``limits`` (G6) apply to all of a plan.
"""

from retention_cli.decide.guards.frozen import frozen
from retention_cli.decide.guards.future import Future
from retention_cli.decide.guards.interface import Guard
from retention_cli.decide.guards.log_end import LogEnd
from retention_cli.decide.guards.old_stamps import OldStamps
from retention_cli.decide.guards.our_clock import OurClock
from retention_cli.decide.guards.unconsumed import Unconsumed
from retention_cli.decide.guards.untouchable import untouchable
from retention_cli.decide.guards.wall_clock import WallClock

GUARDS: tuple[Guard, ...] = (LogEnd(), Unconsumed(), WallClock(), Future(), OurClock(), OldStamps())
"""In the rules' order: of two guards with the same limit, the decision names the first."""

__all__ = ["GUARDS", "Guard", "frozen", "untouchable"]
