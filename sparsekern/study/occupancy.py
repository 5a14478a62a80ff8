"""How many blocks of a kernel an SM holds at once, and what keeps it from holding more."""

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True)
class Occupancy:
    """What an SM holds at most at one time."""

    blocks: int
    warps: int
    fraction: float  # of the warps that an SM can hold
    limits: dict  # resource -> blocks that it alone would allow

    @property
    def limiters(self):
        """The resources that run out first."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)

    @property
    def limiter(self):
        """Them in words, such as "registers" or "registers and warps"."""
        return " and ".join(self.limiters)

    def __str__(self):
        return f"{self.blocks} blocks, {self.warps} warps, {self.fraction:.0%}, by {self.limiter}"


def occupancy(resources, threads, gpu):
    """The `Occupancy` on `gpu` (a `Gpu`) of a kernel of `threads` threads a block that takes `resources`.

    resources: has `registers`, per thread, and `shared_bytes`, per block. The rules are those of
    cuda_occupancy.h of the CUDA toolkit: registers are handed to warps in units of 256, from the share of
    each scheduler; shared memory to blocks, with what the system takes, in units of `gpu.shared_unit`.
    0 blocks: no such block can be launched.

    Raises ValueError unless threads is 1 to 1024.
    """
    if not 1 <= threads <= 1024:
        raise ValueError(f"threads is {threads}; a block has 1 to 1024")
    warps = -(-threads // WARP)
    limits = {
        "registers": _by_registers(resources.registers, warps, gpu),
        "shared memory": _by_shared(resources.shared_bytes, gpu),
        "warps": gpu.warps_per_sm // warps,
        "blocks": gpu.blocks_per_sm,
    }
    blocks = min(limits.values())
    return Occupancy(blocks, blocks * warps, blocks * warps / gpu.warps_per_sm, limits)


def _by_registers(registers, warps, gpu):
    if registers > gpu.registers_per_thread:
        return 0
    per_warp = _round_up(max(registers, 1) * WARP, gpu.register_unit)
    if per_warp * _round_up(warps, gpu.schedulers) > gpu.registers_per_sm:  # the check at a launch
        return 0
    return gpu.registers_per_sm // gpu.schedulers // per_warp * gpu.schedulers // warps


def _by_shared(size, gpu):
    if size > gpu.shared_per_block:
        return 0
    taken = _round_up(size + gpu.shared_reserved, gpu.shared_unit)
    return gpu.shared_per_sm // taken if taken else gpu.blocks_per_sm


def _round_up(size, unit):
    return -(-size // unit) * unit
