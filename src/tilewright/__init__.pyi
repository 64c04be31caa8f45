from tilewright import te as te
from tilewright.api import compile as compile
from tilewright.base.errors import BadInput as BadInput
from tilewright.base.errors import InternalError as InternalError
from tilewright.base.errors import MeasureError as MeasureError
from tilewright.base.errors import OutOfBounds as OutOfBounds
from tilewright.base.errors import ScheduleError as ScheduleError
from tilewright.base.errors import TilewrightError as TilewrightError
from tilewright.base.errors import Unsupported as Unsupported
from tilewright.base.settings import Settings as Settings
from tilewright.isolation import Isolation as Isolation
from tilewright.model import CompiledModel as CompiledModel
from tilewright.runtime.runnable import RunnableModel as RunnableModel
from tilewright.runtime.runnable import load as load
from tilewright.specialize import Dynamic as Dynamic
from tilewright.specialize import SpecializingModel as SpecializingModel
from tilewright.target.target import Target as Target
from tilewright.tune.kernel import TunedKernel as TunedKernel
from tilewright.tune.kernel import tune_kernel as tune_kernel

__version__: str
