from kretain.api.cluster import Cluster as Cluster, connect as connect, load_plan as load_plan
from kretain.api.errors import (
    ErrorCode as ErrorCode,
    KretainError as KretainError,
    LockedError as LockedError,
    PolicyError as PolicyError,
    RefusedError as RefusedError,
    RequestError as RequestError,
    SettingsError as SettingsError,
    StateError as StateError,
    UnauthorizedError as UnauthorizedError,
    UnreachableError as UnreachableError,
    UsageError as UsageError,
)
from kretain.api.values import (
    Action as Action,
    InterruptedTrim as InterruptedTrim,
    Outcome as Outcome,
    OutcomeName as OutcomeName,
    Partition as Partition,
    Plan as Plan,
    Report as Report,
    Result as Result,
    Totals as Totals,
)

__version__: str
BEGAN: float
