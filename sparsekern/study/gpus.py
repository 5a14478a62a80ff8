"""Limits of the GPUs that sparsekern reasons about, with the source of each.

Sources, as the tables below cite them:

- "guide": NVIDIA CUDA C++ Programming Guide 12, section Compute Capabilities, table Technical Specifications
  per Compute Capability; where said, section Arithmetic Instructions, table Throughput of Native Arithmetic
  Instructions, or section Shared Memory.
- "calculator": the occupancy calculator of NVIDIA Nsight Compute, table of physical limits.
- "V100", "A100": NVIDIA Tesla V100 GPU Architecture, section GV100 GPU Hardware Architecture In-Depth, table
  Comparison of NVIDIA Tesla GPUs; NVIDIA A100 Tensor Core GPU Architecture, section A100 GPU Hardware
  Architecture, table Comparison of NVIDIA Data Center GPUs, and section A100 L2 Cache.
- "H200": NVIDIA H200 Tensor Core GPU data sheet, table of specifications; and NVIDIA H100 Tensor Core GPU
  Architecture, appendix, table Comparison of NVIDIA A100 and H100, for what the two share.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """What bounds a kernel on a GPU. None: not known."""

    name: str  # how the device's own name contains it
    arch: tuple  # compute capability, (major, minor)
    sms: int
    clock_hz: float  # highest SM clock
    l2_bytes_per_second: float | None  # peak, reads
    l2_bytes: int
    hbm_bytes_per_second: float  # peak
    fp32_per_clock: int  # float32 multiply-adds, per SM
    shared_per_sm: int  # bytes of shared memory, at most
    shared_per_block: int  # bytes, at most, after opting in
    shared_reserved: int  # bytes that the system takes for each block
    shared_unit: int  # bytes: shared memory of a block is a multiple
    warps_per_sm: int
    blocks_per_sm: int = 32
    registers_per_sm: int = 65536  # of 32 bits; guide, 5.0 to 12.0
    registers_per_thread: int = 255  # guide, 5.0 to 12.0
    register_unit: int = 256  # registers: those of a warp are a multiple; calculator, 5.0 to 12.0
    schedulers: int = 4  # per SM, each issues an instruction a clock; guide, 5.0 to 12.0 except 6.0
    shared_bytes_per_clock: int = 128  # per SM: 32 banks of 4 bytes; guide, Shared Memory, 5.0 to 12.0
    l1_bytes_per_clock: int = 128  # per SM: the same memory; Jia et al., arXiv:1804.06826, 3.2
    launch_us: float | None = None  # of an empty kernel in a graph

    @property
    def l1_bytes_per_second(self):
        return self.sms * self.clock_hz * self.l1_bytes_per_clock

    @property
    def fp32_per_second(self):
        """Multiply-adds; two flops each."""
        return self.sms * self.clock_hz * self.fp32_per_clock

    @property
    def issues_per_second(self):
        """Warp instructions."""
        return self.sms * self.clock_hz * self.schedulers

    @classmethod
    def current(cls):
        """The GPU that answers: an entry of `GPUS` if name, SMs and clock agree, else its properties.

        A slice of a GPU (MIG) and a board with another clock are of the second kind. Raises Numba's
        CudaSupportError without a GPU.
        """
        from numba import cuda

        return of_device(cuda.get_current_device())


def device_name(device):
    """The name of a Numba device, text such as "NVIDIA H200", which some versions of Numba give as bytes."""
    return device.name.decode() if isinstance(device.name, bytes) else device.name


def of_device(device):
    """The `Gpu` of a Numba device. Raises ValueError for a compute capability before 7.0."""
    name, clock_hz = device_name(device), device.CLOCK_RATE * 1e3
    for gpu in GPUS.values():
        if gpu.name in name and (gpu.sms, gpu.clock_hz) == (device.MULTIPROCESSOR_COUNT, clock_hz):
            return gpu
    arch = tuple(device.compute_capability)
    if arch < (7, 0):
        raise ValueError(f"{name} has compute capability {arch}; it must be (7, 0) or later")
    transfers = 2 * device.MEMORY_CLOCK_RATE * 1e3  # a second; two a clock
    return Gpu(
        name,
        arch,
        device.MULTIPROCESSOR_COUNT,
        clock_hz,
        l2_bytes_per_second=None,
        l2_bytes=device.L2_CACHE_SIZE,
        hbm_bytes_per_second=transfers * device.GLOBAL_MEMORY_BUS_WIDTH / 8,
        fp32_per_clock=64 if arch <= (8, 0) else 128,  # guide, Arithmetic Instructions, 7.0 to 12.0
        shared_per_sm=device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        shared_per_block=device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        shared_reserved=device.RESERVED_SHARED_MEMORY_PER_BLOCK,
        shared_unit=256 if arch < (8, 0) else 128,  # calculator
        warps_per_sm=device.MAX_THREADS_PER_MULTIPROCESSOR // 32,
        blocks_per_sm=device.MAX_BLOCKS_PER_MULTIPROCESSOR,
        registers_per_sm=device.MAX_REGISTERS_PER_MULTIPROCESSOR,
    )


KIB, MIB = 2**10, 2**20

GPUS = {
    "v100": Gpu(
        "V100-SXM2",
        (7, 0),
        sms=80,  # V100, also the next four
        clock_hz=1530e6,
        l2_bytes=6 * MIB,
        hbm_bytes_per_second=900e9,
        fp32_per_clock=64,
        l2_bytes_per_second=2048 * 1530e6,  # bytes a clock: A100, section A100 L2 Cache
        shared_per_sm=96 * KIB,  # guide, also the next
        shared_per_block=96 * KIB,
        shared_reserved=0,  # guide: only from 8.0 on
        shared_unit=256,  # calculator
        warps_per_sm=64,  # guide
    ),
    "a100": Gpu(
        "A100-SXM4-40GB",  # the 80 GB board has HBM2e of 2039e9
        (8, 0),
        sms=108,  # A100, also the next four
        clock_hz=1410e6,
        l2_bytes=40 * MIB,
        hbm_bytes_per_second=1555e9,
        fp32_per_clock=64,
        l2_bytes_per_second=5120 * 1410e6,  # bytes a clock: A100, section A100 L2 Cache
        shared_per_sm=164 * KIB,  # guide, also the next two
        shared_per_block=163 * KIB,
        shared_reserved=1 * KIB,
        shared_unit=128,  # calculator
        warps_per_sm=64,  # guide
    ),
    "h200": Gpu(
        "H200",
        (9, 0),
        sms=132,  # H200, as H100 SXM5
        clock_hz=1980e6,  # read from the device, its highest SM clock
        l2_bytes=60 * MIB,  # read from the device; the H100 SXM5 has 50
        hbm_bytes_per_second=4.8e12,  # H200
        fp32_per_clock=128,  # H200, as H100 SXM5
        l2_bytes_per_second=5120 * 1980e6,  # an estimate: bytes a clock of the A100; none published
        shared_per_sm=228 * KIB,  # guide, also the next two
        shared_per_block=227 * KIB,
        shared_reserved=1 * KIB,
        shared_unit=128,  # calculator
        warps_per_sm=64,  # guide
        launch_us=0.8,  # measured: a captured graph of empty kernels, 2026-11-30
    ),
}
