"""Timing on a GPU."""

from dataclasses import dataclass
from statistics import quantiles

import numpy as np
from cuda.bindings import runtime
from numba import cuda

LAUNCHES = 10  # in a graph
REPLAYS = 20  # timed one by one


@dataclass(frozen=True)
class Timing:
    """Microseconds of one launch: median over replays, and interquartile range / median."""

    us: float
    spread: float


def _call(function, *arguments):
    status, *results = function(*arguments)
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"{function.__name__} failed: {runtime.cudaGetErrorString(status)[1].decode()}")
    return results[0] if results else None


def time_plan(plan, *inputs):
    """The `Timing` of a plan on the "cuda" backend: replays of a captured graph, L2 warm.

    inputs: as for `plan`, in host memory. Copies them to the device first, once. Checks nothing: check
    before.
    """
    stream = cuda.stream()
    operands = [cuda.to_device(x, stream=stream) for x in plan.flat(*inputs)]
    operands.append(cuda.device_array(plan.result_size, np.float32, stream=stream))
    plan.launch(*operands, stream=stream)  # compiles
    stream.synchronize()
    handle = int(stream.handle)
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    _call(runtime.cudaStreamBeginCapture, handle, mode)
    try:
        for _ in range(LAUNCHES):
            plan.launch(*operands, stream=stream)
    finally:
        graph = _call(runtime.cudaStreamEndCapture, handle)
    executable = _call(runtime.cudaGraphInstantiate, graph, 0)
    times = [_replay(executable, handle, stream) for _ in range(REPLAYS + 2)][2:]
    _call(runtime.cudaGraphExecDestroy, executable)
    _call(runtime.cudaGraphDestroy, graph)
    low, middle, high = quantiles(times, n=4)
    return Timing(middle, (high - low) / middle)


def _replay(executable, handle, stream):
    start, stop = cuda.event(), cuda.event()
    start.record(stream)
    _call(runtime.cudaGraphLaunch, executable, handle)
    stop.record(stream)
    stop.synchronize()
    return start.elapsed_time(stop) * 1e3 / LAUNCHES
