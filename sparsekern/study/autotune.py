"""Autotuning: the fastest candidate for operands at hand, timed on the GPU once and remembered on disk."""

import hashlib
import json
import os
import sys
import warnings
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

import numpy as np
from numba import cuda

from sparsekern.naming import format_variant, parse_variant
from sparsekern.ops import plan_sddmm, plan_spmm
from sparsekern.selection.candidates import candidates
from sparsekern.selection.fitting import fitted
from sparsekern.study.gpus import device_name
from sparsekern.study.provenance import kernel_hash
from sparsekern.study.tools import timing_imports
from sparsekern.textfiles import write_text
from sparsekern.toggles import VariantError
from sparsekern.variants import KINDS

CACHE_VARIABLE = "SPARSEKERN_CACHE"


def autotune_spmm(a, b, *, variants=None, again=False):
    """The `SpmmVariant` that computes `a @ b` fastest on this GPU, to be passed to `spmm` and `plan_spmm`.

    a, b: as for `spmm`; only structure, sizes and layouts matter. variants: those to try, beside what
    `select` chooses; None for the candidates that come with the library. again: time them, even if that was
    done before.

    The first time this compiles and times each variant, on operands of its own and with a warm L2: that
    takes about a second each. Variants are fitted to the operands first (`selection.fitting`), and those that
    cannot run them are left out. The choice is kept in a file (see `cache_folder`) for this GPU, these
    kernels, this problem (sizes, row lengths, layouts of operands) and these variants. Raises as `spmm` does,
    RuntimeError on the emulator, where there is nothing to time, and TypeError for other `variants`.
    """
    return _autotune(partial(plan_spmm, a, b), variants, again)


def autotune_sddmm(topology, lhs, rhs, *, variants=None, again=False):
    """The `SddmmVariant` that is fastest for `sddmm` with these operands on this GPU; see `autotune_spmm`."""
    return _autotune(partial(plan_sddmm, topology, lhs, rhs), variants, again)


def cache_folder():
    """Where choices are kept, a `Path`: what the environment variable SPARSEKERN_CACHE names, or a folder
    `sparsekern` in XDG_CACHE_HOME or ~/.cache, on Windows in LOCALAPPDATA.
    """
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "sparsekern"


def _autotune(plan, variants, again):
    default = plan()
    if default.backend == "emulator":
        raise RuntimeError(
            "autotuning times kernels on a CUDA GPU, and these operands would be computed on the emulator, "
            "whose time says nothing of a GPU's: see python -m sparsekern doctor"
        )
    if 0 in default.grid:  # nothing is launched
        return default.variant
    problem = default.problem
    tried = [default.variant, *_that_run(problem, candidates(problem.op) if variants is None else variants)]
    with cuda.gpus[default.device]:
        gpu = cuda.get_current_device()
        key = key_of(problem, tried, device_name(gpu), gpu.MULTIPROCESSOR_COUNT)
        return tuned(key, tried, _stopwatch(plan, default), again)


def _that_run(problem, variants):
    """`variants`, each fitted to `problem`, without those that cannot run it."""
    kind = KINDS[problem.op]
    for variant in variants:
        if not isinstance(variant, kind):
            raise TypeError(f"variants has {variant!r}; each must be an {kind.__name__}")
        try:
            yield fitted(variant, problem)
        except VariantError:
            continue


def key_of(problem, variants, gpu, sms):
    """What a choice holds for, as a value that JSON keeps: {what: it}."""
    names = sorted({format_variant(variant) for variant in variants})
    return {
        "gpu": gpu,
        "sms": sms,
        "kernels_sha256": kernel_hash(),
        "op": problem.op,
        "problem": json.loads(json.dumps(asdict(problem))),
        "variants_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
    }


def tuned(key, variants, time, again=False, folder=None):
    """The fastest of `variants`: the one that the cache has for `key`, or else the one that takes least time.

    variants: all able to run the problem. time(variant): microseconds; it is called once for each of them, or
    for none. folder: of the cache.

    A file of the cache that cannot be read, or whose choice is none of `variants`, which might be slow or
    unable to run, is said in a warning, and made anew. One that cannot be written is said, and nothing else
    is lost. Several processes may tune at once: a file is there whole or not at all.
    """
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    path = Path(folder or cache_folder()) / "autotune" / f"{name}.json"
    known = None if again else _kept(path, key, variants)
    if known is None:
        times = {variant: time(variant) for variant in dict.fromkeys(variants)}
        known = min(times, key=times.get)
        listed = {format_variant(variant): round(us, 3) for variant, us in times.items()}
        _keep(path, {"key": key, "variant": format_variant(known), "microseconds": listed})
    return known


def _kept(path, key, variants):
    """The one of `variants` that the file at `path` has for `key`, or None."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] != key:
            raise ValueError("it is of another problem")
        variant = parse_variant(key["op"], kept["variant"])
        if variant not in variants:
            raise ValueError(f"{kept['variant']} is none of the variants that would be tried now")
        return variant
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{path} is no choice of autotuning ({reason}): tuning anew", RuntimeWarning, stacklevel=2
        )
        return None


def _keep(path, choice):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(choice, indent=1))
    except OSError as error:
        warnings.warn(
            f"the choice of autotuning is not kept ({error}); {CACHE_VARIABLE} may name another folder",
            RuntimeWarning,
            stacklevel=2,
        )


def _stopwatch(plan, default):
    """A function that gives the microseconds of a launch of `plan(variant)`, with a warm L2.

    default: any plan of the problem. Operands are random, and of the layouts that those of the plan have.
    """
    with timing_imports():
        from sparsekern.study.bench import time_launches

    @cache
    def operands():
        rng, layouts = np.random.default_rng(0), [default.layouts[name][1] for name in default.inputs]
        inputs = [cuda.to_device(rng.standard_normal(max(at.reach, 1), np.float32)) for at in layouts]
        return *inputs, cuda.device_array(max(default.result_size, 1), np.float32)

    def time(variant):
        ready, arrays, stream = plan(variant), operands(), cuda.stream()
        return time_launches(lambda: ready.launch(*arrays, stream=stream), stream).us

    return time
