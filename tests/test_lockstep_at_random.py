"""Kernels at random, whose lanes part at every turn: in lockstep they compute what they do one by one."""

import linecache
import random

import numpy as np
import pytest
from numba import cuda, int32, njit

from sparsekern.machine.emulator import emulate
from sparsekern.machine.lockstep import launch

LANES = 40  # of a block: a warp, and a part of one


@njit(inline="always")
def helper(x, j):
    if j % 2:
        return x[j]
    for t in range(j % 5):
        if x[j + t] > 3:
            return t
    return x[j + 1] + 1


class Writer:
    """Writes the text of a kernel."""

    def __init__(self, seed):
        self.random, self.lines, self.loops = random.Random(seed), [], 0

    def pick(self, *choices):
        return self.random.choice(choices)

    def value(self, depth=0):
        leaf = self.pick("i", "a", "b", "c", "x[i]", "x[(i + 7) % 90]", "staged[lane]", "3", "-2")
        if depth > 2 or self.random.random() < 0.4:
            return leaf
        one, other = self.value(depth + 1), self.value(depth + 1)
        both = f"({one} {self.pick('+', '-', '*', '&', '^')} {other})"
        return self.pick(
            both, f"min({one}, {other})", f"({one} if {self.test(depth + 1)} else {other})", f"({one} // 3)",
            f"helper(x, {one} & 31)", f"({one} % 5)",
        )  # fmt: skip

    def test(self, depth=0):
        one, other = self.value(depth + 1), self.value(depth + 1)
        test = self.pick(f"{one} % 3 == 1", f"0 <= {one} % 5 < {other}", f"{one} > {other}")
        return (
            test
            if depth > 1
            else self.pick(test, f"({test} {self.pick('and', 'or')} {self.test(depth + 1)})")
        )

    def block(self, depth, loop):
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth, loop)

    def statement(self, depth, loop=False):
        def write(text, deeper=0):
            self.lines.append("    " * (depth + deeper) + text)

        kinds = ["assign", "store"] + ["if", "if", "for", "while"] * (depth < 4) + ["leave"] * loop
        kind = self.pick(*kinds)
        self.loops += 1
        counter = f"t{self.loops}"
        if kind == "assign":
            write(f"{self.pick('a', 'b', 'c')} {self.pick('=', '+=', '-=')} {self.value()} & 255")
        elif kind == "store":
            write(f"{self.pick('staged[lane]', 'y[i]')} = {self.value()}")
        elif kind == "leave":
            write(f"if {self.test()}:")
            write(self.pick("break", "continue", "y[i] += a\n" + "    " * (depth + 1) + "return"), 1)
        elif kind == "if":
            write(f"if {self.test()}:")
            self.block(depth + 1, loop)
            write("else:")
            self.block(depth + 1, loop)
        elif kind == "for":
            write(f"for {counter} in range({self.pick('0', 'lane % 3')}, {self.pick('3', 'i % 6')}):")
            write(f"a += {counter}", 1)
            self.block(depth + 1, True)
        else:
            write(f"{counter} = 0")
            write(f"while {counter} < {self.pick('2', 'x[i] % 5')}:")
            write(f"{counter} += 1", 1)
            self.block(depth + 1, True)

    def kernel(self):
        """The function, whose text Python can find."""
        for _ in range(5):
            self.statement(1)
        head = "def kernel(x, y):\n    lane, i = cuda.threadIdx.x, cuda.grid(1)\n    a = b = c = lane\n"
        head += f"    staged = cuda.shared.array({LANES}, int32)\n    staged[lane] = i\n"
        text = head + "\n".join(self.lines) + "\n    y[i] += a + 3 * b + 5 * c\n"
        name = f"<kernel {id(self)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        scope = {"cuda": cuda, "int32": int32, "helper": helper}
        exec(compile(text, name, "exec"), scope)
        return scope["kernel"]


@pytest.mark.parametrize("seed", range(40))
def test_lanes_that_part_at_random_compute_what_they_do_on_the_emulator(seed):
    kernel = Writer(seed).kernel()
    x = np.random.default_rng(seed).integers(0, 50, 2 * LANES + 10).astype(np.int32)
    expected, found = np.zeros(2 * LANES, np.int64), np.zeros(2 * LANES, np.int64)
    emulate(kernel, (2,), (LANES,), [x, expected])
    launch(kernel, (2,), (LANES,), [x, found])
    assert found.tolist() == expected.tolist()
