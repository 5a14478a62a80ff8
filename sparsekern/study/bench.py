"""Timing on a GPU: replays of a captured CUDA graph, with events between them.

Replays are queued one behind the other without waiting, so that the GPU always has the next one before it
ends the last: what the host takes to queue one is not in the time.
"""

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import quantiles

import numpy as np
from cuda.bindings import runtime
from numba import cuda

LAUNCHES = 10  # in a graph; fewer if that took longer than GRAPH_US
GRAPH_US = 10_000
BUDGET_US = 40_000  # of GPU time for the replays of one timing ...
REPLAYS = range(5, 101)  # ... within these numbers of them
WARM_US = 1_500  # of replays that are not timed, before those that are
FLUSH = 2  # times the L2 cache: the memory written between launches


@dataclass(frozen=True)
class Timing:
    """Microseconds of one launch: median over replays, and interquartile range / median."""

    us: float
    spread: float


def time_plan(plan, *inputs):
    """The `Timing` of a plan on the "cuda" backend: replays of a captured graph, L2 warm.

    inputs: as for `plan`, in host memory. Copies them to the device first, once. Checks nothing: check
    before.
    """
    stream = cuda.stream()
    operands = [cuda.to_device(x) for x in plan.flat(*inputs)]
    operands.append(cuda.device_array(plan.result_size, np.float32))
    return time_launches(lambda: plan.launch(*operands, stream=stream), stream)


def time_launches(launch, stream, flush=None):
    """The `Timing` of `launch()`, which queues the same work on `stream`, a Numba stream, at each call.

    flush: None for an L2 cache that is warm from the launch before; or a device array from
    `flushing_buffer`, which is written before each launch. Then each launch is timed alone, and its time
    includes the start of a graph, which a warm one shares with up to LAUNCHES others.
    """
    launch()  # compiles, and loads what loads lazily
    stream.synchronize()
    with ExitStack() as stack:
        timer = _Timer(stream, stack)
        alone = timer.once(launch)
        launches = 1 if flush is not None else max(1, min(LAUNCHES, int(GRAPH_US / alone)))
        replay = stack.enter_context(captured(launch, stream, launches))
        graph_us = max(timer.once(replay), 1.0)
        replays = min(max(int(BUDGET_US / graph_us), REPLAYS.start), REPLAYS.stop - 1)
        for _ in range(min(max(int(WARM_US / graph_us), 1), 100)):
            replay()
        if flush is None:
            times = timer.back_to_back(replay, replays)
        else:
            times = timer.apart(replay, replays, lambda: fill(flush, 0, stream))
    low, middle, high = (t / launches for t in quantiles(times, n=4))
    return Timing(middle, (high - low) / middle)


def flushing_buffer():
    """A device array FLUSH times as large as the L2 cache of the current device."""
    attribute = runtime.cudaDeviceAttr.cudaDevAttrL2CacheSize
    size = call(runtime.cudaDeviceGetAttribute, attribute, cuda.get_current_device().id)
    return cuda.device_array(FLUSH * size, np.uint8)


def fill(array, byte, stream):
    """Queues writing `byte` to all bytes of a device array; 255 makes floats NaN."""
    call(runtime.cudaMemsetAsync, address(array), byte, array.nbytes, int(stream))


def address(array):
    """Where a device array starts."""
    return array.__cuda_array_interface__["data"][0]


@contextmanager
def captured(launch, stream, launches):
    """A function that queues `launches` calls of `launch` on `stream` as one graph, for a `with` block."""
    handle = int(stream)
    # Relaxed: memory that Python frees in between is no reason to fail, since the graph does not use it.
    mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
    with ExitStack() as stack:
        call(runtime.cudaStreamBeginCapture, handle, mode)
        try:
            for _ in range(launches):
                launch()
        except BaseException:
            _, graph = runtime.cudaStreamEndCapture(handle)  # its error would hide the one raised here
            if graph is not None and int(graph):
                runtime.cudaGraphDestroy(graph)
            raise
        graph = call(runtime.cudaStreamEndCapture, handle)
        stack.callback(call, runtime.cudaGraphDestroy, graph)
        executable = call(runtime.cudaGraphInstantiate, graph, 0)
        stack.callback(call, runtime.cudaGraphExecDestroy, executable)
        yield lambda: call(runtime.cudaGraphLaunch, executable, handle)


class _Timer:
    """Events on a stream. Times in microseconds."""

    def __init__(self, stream, stack):
        self.stream, self.stack, self.events = stream, stack, []

    def _record(self, number):
        """Records event `number` of this timer."""
        while len(self.events) <= number:
            event = call(runtime.cudaEventCreate)
            self.stack.callback(call, runtime.cudaEventDestroy, event)
            self.events.append(event)
        call(runtime.cudaEventRecord, self.events[number], int(self.stream))

    def _between(self, pairs):
        self.stream.synchronize()
        milliseconds = [call(runtime.cudaEventElapsedTime, self.events[i], self.events[j]) for i, j in pairs]
        return [t * 1e3 for t in milliseconds]

    def once(self, work):
        return self.apart(work, 1)[0]

    def back_to_back(self, work, times):
        """Time of each of several runs of `work`, from the end of the one before."""
        self._record(0)
        for number in range(times):
            work()
            self._record(number + 1)
        return self._between([(i, i + 1) for i in range(times)])

    def apart(self, work, times, before=lambda: None):
        """Time of each of several runs of `work`, each after a run of `before`, which is not timed."""
        for number in range(times):
            before()
            self._record(2 * number)
            work()
            self._record(2 * number + 1)
        return self._between([(2 * i, 2 * i + 1) for i in range(times)])


def call(function, *arguments):
    """The result of a function of the CUDA runtime. Raises RuntimeError with its name and the reason."""
    status, *results = function(*arguments)
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"{function.__name__} failed: {runtime.cudaGetErrorString(status)[1].decode()}")
    return results[0] if results else None
