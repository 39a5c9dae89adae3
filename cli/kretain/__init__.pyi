from kretain.api.cluster import Cluster as Cluster
from kretain.api.cluster import connect as connect
from kretain.api.cluster import load_plan as load_plan
from kretain.api.errors import KretainError as KretainError
from kretain.api.errors import RefusedError as RefusedError
from kretain.api.values import InterruptedTrim as InterruptedTrim
from kretain.api.values import Outcome as Outcome
from kretain.api.values import Partition as Partition
from kretain.api.values import Plan as Plan
from kretain.api.values import Report as Report
from kretain.api.values import Totals as Totals

BEGAN: float
