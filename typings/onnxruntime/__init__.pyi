"""The part of onnxruntime that Tilewright uses, typed: it has no annotations of its own, and need not be installed."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

class GraphOptimizationLevel:
    ORT_DISABLE_ALL: GraphOptimizationLevel
    ORT_ENABLE_ALL: GraphOptimizationLevel

class SessionOptions:
    graph_optimization_level: GraphOptimizationLevel
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int
    def add_session_config_entry(self, key: str, value: str) -> None: ...

class OrtValue:
    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: NDArray[np.generic], onnx_element_type: int) -> OrtValue: ...

class IOBinding:
    def bind_cpu_input(self, name: str, arr_on_cpu: NDArray[np.generic]) -> None: ...
    def bind_output(self, name: str) -> None: ...

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions,
        *,
        providers: Sequence[str],
        disabled_optimizers: Sequence[str],
    ) -> None: ...
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, NDArray[np.generic] | OrtValue], /
    ) -> Sequence[NDArray[np.generic]]: ...
    def io_binding(self) -> IOBinding: ...
    def run_with_iobinding(self, iobinding: IOBinding) -> None: ...
