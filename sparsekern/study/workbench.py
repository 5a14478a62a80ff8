"""One problem at a time on a GPU: operands uploaded once, kernels and rivals checked, then timed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cached_property

import numpy as np
from numba import cuda

from sparsekern.factories import FACTORIES
from sparsekern.ops import plan_sddmm, plan_spmm
from sparsekern.reference import LEAST_NORMAL, error, tolerance
from sparsekern.study.baselines import Libraries, Operands
from sparsekern.study.bench import fill, flushing_buffer, time_launches
from sparsekern.study.sweep import WrongKernel

PARTS = 16  # in which results are compared, side by side
CHUNK = 2**14  # elements of a part that are compared at a time: their differences stay in a cache


class Laboratory:
    """A GPU with a stream, and the libraries unless `baselines` is False. make: {op: kernel factory}.

    Use it in a `with` statement. Raises RuntimeError without a GPU, MissingLibrary as `Libraries` does.
    """

    def __init__(self, baselines=True, make=FACTORIES):
        self.make, self._stack = make, ExitStack()
        if not cuda.is_available():
            raise RuntimeError("timing needs a CUDA GPU, and none answers: see python -m sparsekern doctor")
        self.stream = cuda.stream()
        self.libraries = Libraries(self.stream) if baselines else None
        if baselines:
            self._stack.callback(self.libraries.close)
        self.compare = self._stack.enter_context(ThreadPoolExecutor(PARTS)).map

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    @cached_property
    def _flush(self):
        return flushing_buffer()

    def time(self, launch, l2):
        """The `Timing` of `launch` with L2 "warm" or "flushed"."""
        return time_launches(launch, self.stream, self._flush if l2 == "flushed" else None)

    @contextmanager
    def open(self, case):
        """The `Workbench` of a `Case`."""
        yield Workbench(self, operands_of(case.op, case.layer.load(), case.width))


class Workbench:
    """The operands of one problem in the memory of the GPU, for all its variants."""

    def __init__(self, laboratory, operands):
        self.laboratory, self.operands, self._checked = laboratory, operands, set()
        o = operands
        self.size = o.m * o.n if o.op == "spmm" else o.nnz  # elements of the result

    @cached_property
    def arrays(self):
        """The inputs, uploaded when something is timed: a problem that is known already needs none."""
        o = self.operands
        inputs = (o.a.values, o.right) if o.op == "spmm" else (o.left, o.right)
        return [cuda.to_device(np.ascontiguousarray(x).reshape(-1)) for x in inputs]

    @cached_property
    def out(self):
        return cuda.device_array(self.size, np.float32)

    @cached_property
    def _result(self):
        """Pinned host memory, to which results are copied to be checked."""
        return cuda.pinned_array(self.size, np.float32)

    @property
    def sizes(self):
        o = self.operands
        return {"m": o.m, "k": o.k, "n": o.n, "nnz": o.nnz}

    @property
    def problem(self):
        """The `Problem`, as `select` gets it."""
        return self.plan(None).problem

    def choose(self):
        """The variant that `select` takes for this problem on this GPU."""
        return self.plan(None).variant

    def plan(self, variant):
        """The plan of a variant. Raises VariantError for one that cannot run this problem."""
        o = self.operands
        options = {"make": self.laboratory.make[o.op], "backend": "cuda"}
        if o.op == "spmm":
            return plan_spmm(o.a, o.right, variant, **options)
        return plan_sddmm(o.a.topology, o.left, o.right, variant, **options)

    @cached_property
    def reference(self):
        """(result, scale), float64, flat: see `reference_of`."""
        return tuple(x.reshape(-1) for x in reference_of(self.operands))

    @cached_property
    def _allowed(self):
        return allowed(self.reference[1], tolerance(self.operands.terms))

    def time(self, variant, l2):
        """The `Timing` of a variant. Raises WrongKernel if its result is, VariantError if it cannot run."""
        plan, stream = self.plan(variant), self.laboratory.stream

        def launch():
            plan.launch(*self.arrays, self.out, stream=stream)

        if variant not in self._checked:
            fill(self.out, 255, stream)  # NaN, which shows where nothing is written
            launch()
            stream.synchronize()
            self._check(self.out.copy_to_host(self._result), tolerance(self.operands.terms), self._allowed)
            self._checked.add(variant)
        return self.laboratory.time(launch, l2)

    def rivals(self, l2):
        """({column: value}, [what went wrong]) of the libraries; a wrong one leaves its column out.

        Of several algorithms for one column the fastest counts; for cuSPARSE its name is a column too.
        """
        found, wrong, libraries = {}, [], self.laboratory.libraries
        for column, algorithm, prepare in libraries.rivals(self.operands.op) if libraries else ():
            try:
                with prepare(self.operands) as rival:
                    rival.launch()
                    self.laboratory.stream.synchronize()
                    limit = allowed(self.reference[1], rival.tolerance, rival.least)
                    self._check(rival.result(), rival.tolerance, limit, rival.least)
                    us = self.laboratory.time(rival.launch, l2).us
            except (WrongKernel, *libraries.errors) as failure:
                wrong.append(f"{column.removesuffix('_us')} {algorithm}: {failure}")
                continue
            if us < found.get(column, np.inf):
                found[column] = us
                if column == "cusparse_us":
                    found["cusparse_alg"] = algorithm
        return found, wrong

    def _check(self, result, most, limit, least=0.0):
        reference, scale = self.reference
        result = result.reshape(-1)
        parts = [np.array_split(x, PARTS) for x in (result, reference, limit)]
        if not all(self.laboratory.compare(within, *parts)):
            worst = error(result, reference, np.maximum(scale, least) if least else scale)
            raise WrongKernel(f"error {worst:.1e} of the sums of absolute values; allowed {most:.1e}")


def allowed(scale, most, least=0.0):
    """(size,) float64: how far each element may be from its reference for `reference.error` to be `most`.

    scale: as `reference_of` gives it, flat; elements below `least` count as that.
    """
    scale = np.maximum(scale, least) if least else scale
    return np.where(scale == 0, 0.0, np.maximum(scale, LEAST_NORMAL)) * most


def within(result, reference, limit):
    """Whether |result - reference| <= limit everywhere, in float64; a NaN is not. All of one length, flat.

    One pass without temporaries of that length: for a result of 2048 x 2048 ten times as fast as
    `reference.error`.
    """
    difference = np.empty(min(CHUNK, len(result)))
    for start in range(0, len(result), CHUNK):
        part = slice(start, start + CHUNK)
        here = difference[: len(result[part])]
        np.subtract(result[part], reference[part], out=here, dtype=np.float64)
        np.abs(here, out=here)
        if not (here <= limit[part]).all():
            return False
    return True


def operands_of(op, a, width):
    """`Operands` of `op` for the `Csr` a, seeded standard normal; `width` as for a `Case`.

    Raises ValueError for a matrix with no nonzeros.
    """
    if a.topology.nnz == 0:
        raise ValueError(f"a matrix of shape {a.shape} has no nonzeros: there is nothing to time")
    rng, (m, columns) = np.random.default_rng(1), a.shape
    if op == "spmm":
        right = rng.standard_normal((columns, width), np.float32)
        return Operands(op, m, columns, width, a, a.to_scipy().toarray(), right)
    left, right = (rng.standard_normal((rows, width), np.float32) for rows in (m, columns))
    return Operands(op, m, width, columns, a, left, right)


def reference_of(operands):
    """(result, scale), float64, as `reference.spmm_reference` and `sddmm_reference` give them for finite
    operands, by dense products: many times faster where matrices are as small and dense as in DLMC.
    """
    o = operands
    left, right = o.left.astype(np.float64), o.right.astype(np.float64)
    if o.op == "spmm":
        absolute = abs(o.a.to_scipy().astype(np.float64)).toarray()
        return left @ right, absolute @ abs(right)
    at = o.rows, o.a.topology.columns
    return (left @ right.T)[at], (abs(left) @ abs(right).T)[at]
