"""The types of what is named in this package (``__init__.py`` loads it when it is first used)."""

from tilewright import te as te
from tilewright.api import compile as compile
from tilewright.base.checks import Checks as Checks
from tilewright.base.errors import BadArtifact as BadArtifact
from tilewright.base.errors import BadDTypes as BadDTypes
from tilewright.base.errors import BadFeed as BadFeed
from tilewright.base.errors import BadInput as BadInput
from tilewright.base.errors import BadProgram as BadProgram
from tilewright.base.errors import CorruptArtifact as CorruptArtifact
from tilewright.base.errors import CorruptRecord as CorruptRecord
from tilewright.base.errors import IndexOutOfRange as IndexOutOfRange
from tilewright.base.errors import InternalError as InternalError
from tilewright.base.errors import InvalidModel as InvalidModel
from tilewright.base.errors import MeasureError as MeasureError
from tilewright.base.errors import NotEquivalent as NotEquivalent
from tilewright.base.errors import OutOfBounds as OutOfBounds
from tilewright.base.errors import OutOfMemory as OutOfMemory
from tilewright.base.errors import ParseError as ParseError
from tilewright.base.errors import ResourceLimit as ResourceLimit
from tilewright.base.errors import ScheduleError as ScheduleError
from tilewright.base.errors import TilewrightError as TilewrightError
from tilewright.base.errors import Timeout as Timeout
from tilewright.base.errors import Unsupported as Unsupported
from tilewright.base.errors import UnsupportedDType as UnsupportedDType
from tilewright.base.errors import UnsupportedKernel as UnsupportedKernel
from tilewright.base.errors import UnsupportedModel as UnsupportedModel
from tilewright.base.errors import UnsupportedTarget as UnsupportedTarget
from tilewright.base.errors import UntrustedData as UntrustedData
from tilewright.base.numerics import Math as Math
from tilewright.base.numerics import Precision as Precision
from tilewright.base.settings import Settings as Settings
from tilewright.base.superopt import Superopt as Superopt
from tilewright.isolation import Isolation as Isolation
from tilewright.model import CompiledModel as CompiledModel
from tilewright.networks.models import tune_models as tune_models
from tilewright.quantization.quantizer import QuantizedModel as QuantizedModel
from tilewright.quantization.quantizer import quantize as quantize
from tilewright.runtime.runnable import RunnableModel as RunnableModel
from tilewright.runtime.runnable import load as load
from tilewright.specialize import Dynamic as Dynamic
from tilewright.specialize import SpecializingModel as SpecializingModel
from tilewright.target.target import Target as Target
from tilewright.tune.kernel import TunedKernel as TunedKernel
from tilewright.tune.kernel import tune_kernel as tune_kernel

__version__: str
