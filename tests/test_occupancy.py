"""Occupancy: by hand, and as the driver tells it."""

from types import SimpleNamespace

import pytest
from evidence import MAKE

from sparsekern import LADDERS
from sparsekern.study.gpus import GPUS, Gpu
from sparsekern.study.occupancy import occupancy

H200, A100, V100 = GPUS["h200"], GPUS["a100"], GPUS["v100"]

BY_HAND = {  # (GPU, registers, shared bytes, threads) -> (blocks, limiters), each with its arithmetic
    # registers: 32 * 32 = 1024 a warp; 16384 // 1024 = 16 warps a scheduler, 64; 64 // 8 = 8
    # warps: 64 // 8 = 8; shared: 228 * 1024 // 1024 = 228
    "as many registers as fit all warps": ((H200, 32, 0, 256), (8, ("registers", "warps"))),
    # 33 * 32 = 1056 -> 1280 a warp; 16384 // 1280 = 12, 48 warps; 48 // 8 = 6
    "one register more costs a quarter": ((H200, 33, 0, 256), (6, ("registers",))),
    # 40 * 32 = 1280 a warp, as before: 33 to 40 cost the same
    "registers come in units of eight a thread": ((H200, 40, 0, 256), (6, ("registers",))),
    # 185 * 32 = 5920 -> 6144; 16384 // 6144 = 2, 8 warps, not 65536 // 6144 = 10; 8 // 1 = 8
    "each scheduler has a quarter of the registers": ((H200, 185, 0, 32), (8, ("registers",))),
    # 255 * 32 = 8160 -> 8192; 16384 // 8192 = 2, 8 warps; 8 // 3 = 2
    "three warps leave some schedulers idle": ((H200, 255, 0, 96), (2, ("registers",))),
    # warps: 64 // 1 = 64; blocks: 32; registers: 16 * 32 = 512, 32 a scheduler, 128
    "small blocks run out of blocks": ((H200, 16, 0, 32), (32, ("blocks",))),
    # warps: 64 // 2 = 32 = blocks; registers: 32 * 32 = 1024, 64 warps, 32
    "three can tie": ((H200, 32, 0, 64), (32, ("registers", "warps", "blocks"))),
    # 11264 + 1024 = 12288, a multiple of 128; 233472 // 12288 = 19
    "shared memory counts with what the system takes": ((H200, 24, 11264, 64), (19, ("shared memory",))),
    # 11265 + 1024 = 12289 -> 12416; 233472 // 12416 = 18
    "a byte more is a unit more": ((H200, 24, 11265, 64), (18, ("shared memory",))),
    # 227 * 1024 + 1024 = 228 * 1024: one block
    "the largest block": ((H200, 32, 227 * 1024, 1024), (1, ("shared memory",))),
    "no block of more shared memory": ((H200, 32, 227 * 1024 + 1, 1024), (0, ("shared memory",))),
    # 65 * 32 = 2080 -> 2304; 2304 * 32 warps = 73728 > 65536
    "no block of more registers": ((H200, 65, 0, 1024), (0, ("registers",))),
    "no thread of more than 255 registers": ((H200, 256, 0, 32), (0, ("registers",))),
    # 12288 + 1024 = 13312, a multiple of 128; 167936 // 13312 = 12
    "an A100 has less shared memory": ((A100, 24, 12288, 64), (12, ("shared memory",))),
    # 12288, a multiple of 256, and nothing reserved; 98304 // 12288 = 8
    "a V100 takes none for the system": ((V100, 24, 12288, 64), (8, ("shared memory",))),
    # 100 -> 256; 98304 // 256 = 384; warps: 64 // 33 -> 1024 threads are 32 warps; 64 // 32 = 2
    "a V100 of two full blocks": ((V100, 32, 100, 1024), (2, ("registers", "warps"))),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_occupancy_is_what_comes_out_by_hand(case):
    (gpu, registers, shared, threads), expected = BY_HAND[case]
    found = occupancy(SimpleNamespace(registers=registers, shared_bytes=shared), threads, gpu)
    assert (found.blocks, found.limiters) == expected
    assert found.warps == found.blocks * -(-threads // 32)
    assert found.fraction == found.warps / 64


def test_what_limits_is_told_in_words():
    found = occupancy(SimpleNamespace(registers=32, shared_bytes=0), 64, H200)
    assert str(found) == "32 blocks, 64 warps, 100%, by registers and warps and blocks"


@pytest.mark.parametrize("threads", [0, 1025])
def test_a_block_that_cannot_be_is_refused(threads):
    with pytest.raises(ValueError, match=f"threads is {threads}; a block has 1 to 1024"):
        occupancy(SimpleNamespace(registers=32, shared_bytes=0), threads, H200)


@pytest.mark.gpu
@pytest.mark.parametrize("step, variant", LADDERS["spmm"] + LADDERS["sddmm"])
def test_the_driver_tells_the_same_occupancy(step, variant):
    from cuda.bindings import driver
    from numba import cuda

    from sparsekern.machine.launch import SIGNATURES, make_kernel
    from sparsekern.problem import Types

    function = make_kernel(MAKE[variant.op], variant, Types())
    kernel = cuda.jit(SIGNATURES[variant.op](Types()), launch_bounds=variant.threads)(function)
    (compiled,) = kernel.overloads.values()
    loaded = compiled._codelibrary.get_cufunc()
    status, blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        driver.CUfunction(int(loaded.handle)), variant.threads, 0
    )
    assert status == driver.CUresult.CUDA_SUCCESS
    held = SimpleNamespace(registers=loaded.attrs.regs, shared_bytes=loaded.attrs.shared)
    assert occupancy(held, variant.threads, Gpu.current()).blocks == blocks
