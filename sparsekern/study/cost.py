"""What a problem must cost: flops, bytes, bounds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """What bounds a kernel on a GPU."""

    name: str
    sms: int
    clock_hz: float  # highest SM clock
    l1_bytes_per_clock: int = 128  # per SM; Volta to Hopper, CUDA C++ Programming Guide, section on devices

    @property
    def l1_bytes_per_second(self):
        return self.sms * self.clock_hz * self.l1_bytes_per_clock

    @classmethod
    def current(cls):
        """The GPU that answers now."""
        from numba import cuda

        device = cuda.get_current_device()
        return cls(device.name, device.MULTIPROCESSOR_COUNT, device.CLOCK_RATE * 1e3)


def l1_bytes(problem):
    """Bytes of B, or rhs, that a row-split CSR kernel reads from L1: 4 for each multiply-add."""
    return 4 * problem.flops // 2


def l1_bound_us(problem, gpu):
    """Microseconds below which no row-split CSR kernel can be on `gpu`, whatever else it does well."""
    return l1_bytes(problem) / gpu.l1_bytes_per_second * 1e6
