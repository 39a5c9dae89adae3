"""The rules that ask for a bound, R1 to R5 and R7: one small pure module each. For R6, see ``disks/``."""

from retention_cli.decide.triggers.consumed import Consumed
from retention_cli.decide.triggers.event_time import EventTime
from retention_cli.decide.triggers.forced_age import ForcedAge
from retention_cli.decide.triggers.interface import Ask, Bound, NotEnabled, Trigger
from retention_cli.decide.triggers.min_timestamp import MinTimestamp
from retention_cli.decide.triggers.size import Size
from retention_cli.decide.triggers.watermarks import PressedAge, PressedConsumed

TRIGGERS: tuple[Trigger, ...] = (
    Consumed(),
    EventTime(),
    MinTimestamp(),
    ForcedAge(),
    Size(),
    PressedConsumed(),
    PressedAge(),
)
"""In the rules' order: of two triggers with the same bound, the decision names the first."""

__all__ = ["TRIGGERS", "Ask", "Bound", "NotEnabled", "Trigger"]
