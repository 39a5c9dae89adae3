from kretain.api.cluster import Cluster as Cluster
from kretain.api.cluster import connect as connect
from kretain.api.cluster import load_plan as load_plan
from kretain.api.errors import ErrorCode as ErrorCode
from kretain.api.errors import KretainError as KretainError
from kretain.api.errors import LockedError as LockedError
from kretain.api.errors import PolicyError as PolicyError
from kretain.api.errors import RefusedError as RefusedError
from kretain.api.errors import RequestError as RequestError
from kretain.api.errors import SettingsError as SettingsError
from kretain.api.errors import StateError as StateError
from kretain.api.errors import UnauthorizedError as UnauthorizedError
from kretain.api.errors import UnreachableError as UnreachableError
from kretain.api.errors import UsageError as UsageError
from kretain.api.values import Action as Action
from kretain.api.values import InterruptedTrim as InterruptedTrim
from kretain.api.values import Outcome as Outcome
from kretain.api.values import OutcomeName as OutcomeName
from kretain.api.values import Partition as Partition
from kretain.api.values import Plan as Plan
from kretain.api.values import Report as Report
from kretain.api.values import Result as Result
from kretain.api.values import Totals as Totals

__version__: str
BEGAN: float
