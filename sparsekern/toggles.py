"""What a kernel variant is: a frozen set of toggles, and rules between them.

A variant says how a kernel works and nothing about what it works on: `check(problem)` brings the two
together. `dataclasses.replace` makes a neighbour, `ladders.without` the nearest one with a toggle off.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import chain
from typing import ClassVar

WARP = 32
MAX_THREADS = 1024  # per block
MAX_SHARED = 48 * 1024  # bytes of static shared memory per block
MAX_GRID_X = 2**31 - 1  # blocks
MAX_GRID_Y = 65_535  # blocks
WORD = 4  # bytes of a float32 or an int32


class VariantError(ValueError):
    """A toggle does not exist or has no such value, lacks what it builds on, or does not fit the operands."""


def toggle(default, *choices, doc):
    """A field of a variant. `default` is off or plainest; no `choices` means off or on."""
    choices = choices or (False, True)
    return field(default=default, metadata={"choices": choices, "doc": doc})


@dataclass(frozen=True, kw_only=True)
class Variant(ABC):
    """Base of all variants. Raises VariantError for an unknown toggle or value, or a missing prerequisite."""

    op: ClassVar[str]
    prerequisites: ClassVar[dict]  # toggle -> ((field that it builds on, values of that field that do), ...)
    adjustable: ClassVar[tuple]  # fields that may move so that a block stays legal: see `without`
    grid_sizes: ClassVar[tuple]  # the sizes that decide on the grid

    def __new__(cls, *values, **toggles):
        if values:
            raise TypeError(f"{cls.__name__} takes toggles by name, such as vector=4; it got {values[0]!r}")
        for name in toggles:
            cls.check_name(name)
        return super().__new__(cls)

    @classmethod
    def check_name(cls, name):
        """Raises VariantError unless there is a toggle of that name."""
        names = [f.name for f in fields(cls)]
        if name not in names:
            close = get_close_matches(str(name), names, 1)
            hint = f", but {close[0]} is" if close else ""
            raise VariantError(f"{name!r} is no toggle of {cls.__name__}{hint}; they are {', '.join(names)}")

    def __post_init__(self):
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata["choices"]
            if type(value) is not type(choices[0]) or value not in choices:
                allowed = ", ".join(map(str, choices))
                raise VariantError(
                    f"{f.name} is {value!r}; it must be one of {allowed} ({f.metadata['doc']})"
                )
        for name, base, values in self.needs():
            if self.is_on(name) and getattr(self, base) not in values:
                raise VariantError(
                    f"{name}={getattr(self, name)!r} needs {base} to be {' or '.join(map(str, values))}; "
                    f"it is {getattr(self, base)!r}"
                )
        reason = self.illegal()
        if reason:
            raise VariantError(reason)

    @classmethod
    def needs(cls):
        """Yields (toggle, field that it builds on, values of that field that do), as toggles build up."""
        for name, pairs in cls.prerequisites.items():
            for base, values in pairs:
                yield name, base, values

    def is_on(self, name):
        """Whether toggle `name` differs from its plainest value."""
        return getattr(self, name) != type(self).__dataclass_fields__[name].default

    @property
    def threads(self):
        """Threads per block."""
        return self.subwarp * self.split * self.rows_per_block

    @property
    def block(self):
        """(x, y): lanes of a subwarp, subwarps of a block."""
        return self.subwarp, self.split * self.rows_per_block

    @property
    @abstractmethod
    def shared_bytes(self):
        """Shared memory per block."""

    @abstractmethod
    def grid(self, problem):
        """(x, y, z): blocks of rows, tiles of a row, batch; with `n_first` x and y change places."""

    def illegal(self):
        """Why no block of any problem could run this variant, or None."""
        if self.threads % WARP or self.threads > MAX_THREADS:
            return (
                f"subwarp * split * rows_per_block = {self.subwarp} * {self.split} * {self.rows_per_block} "
                f"= {self.threads} threads; a block must be whole warps of {WARP}, at most {MAX_THREADS}"
            )
        if self.shared_bytes > MAX_SHARED:
            return f"a block needs {self.shared_bytes} bytes of shared memory; it has at most {MAX_SHARED}"
        return None

    def check(self, problem):
        """Why this variant cannot run `problem`, with the numbers, or None."""
        return next(chain(self._refusals(problem), self._refusals_of_grid(problem)), None)

    def check_operands(self, problem):
        """`check`, but for the size of the grid."""
        return next(self._refusals(problem), None)

    @abstractmethod
    def _refusals(self, problem):
        """Yields what operands of `problem` this variant cannot read or write."""

    def _refusals_of_grid(self, problem):
        x, y, _ = self.grid(problem)
        if x > MAX_GRID_X or y > MAX_GRID_Y:
            sizes = " and ".join(f"{name}={getattr(self, name)}" for name in self.grid_sizes)
            yield (f"{sizes} need a grid of {x} x {y} blocks; it holds at most {MAX_GRID_X} x {MAX_GRID_Y}")

    def _refusals_of_vectors(self, *operands):
        """operands: (its name, name of its leading dimension, its `Layout`)."""
        vector, width = self.vector, self.vector * WORD
        for matrix, ld, layout in operands:
            if layout.ld % vector:
                yield (
                    f"vector={vector} needs {ld}, the elements from row to row of {matrix}, to be a multiple "
                    f"of {vector}; {ld} is {layout.ld}: pad its rows, or take a narrower vector"
                )
            if layout.align < width:
                yield (
                    f"vector={vector} needs {matrix} to start on {width} bytes; it starts on {layout.align}: "
                    "copy it, or take a narrower vector"
                )

    def _refusals_of_prescale(self, rule, rows, stride, within):
        """rule: what must fit int32, the position `within` the last of `rows` rows that far apart."""
        last = (rows - 1) * stride + within
        if last >= 2**31:
            numbers = f"{rows - 1} * {stride}" + (f" + {within}" if within else "")
            yield f"prescale needs {rule} below 2**31, to fit int32; it is {numbers} = {last}"

    def __str__(self):
        on = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if self.is_on(f.name)]
        return ", ".join(on) or "plain"
