"""A kernel's own text with its toggles resolved: what is left of the page when a variant is chosen."""

import builtins
import inspect
import math
import re
from pathlib import Path
from types import FunctionType, ModuleType

import numba
import numpy as np
from numba.core.types import Type

from sparsekern.machine.launch import make_kernel
from sparsekern.problem import Types
from sparsekern.study.branches import dedented, fold, names

CONSTANT = bool | int | float | str | bytes | tuple | None
MISSING = object()


def source(make, variant, types=Types()):
    """The text of the kernel that `make(variant, types)` returns, with every condition on a toggle decided.

    Dead branches are gone, and so are switches; other lines stand as they do on the page, with their
    comments (see `fold`). First come the sizes and types that the text still names, then the helpers that it
    still calls, each under the name it is called by, then the kernel. It runs in the scope of the page of
    `make`.

    make: a kernel factory, from a file or a notebook cell. Raises TypeError if it returns no function that
    a `def` makes, OSError if its text cannot be had, as for one from `exec`, and ValueError, with the line,
    if a text cannot say what a function closes over, such as an array, or two values of one name.
    """
    kernel = make_kernel(make, variant, types)
    if not isinstance(kernel, FunctionType) or kernel.__name__ == "<lambda>":
        raise TypeError(f"make returned {kernel!r}; it must return the kernel, a function that a def makes")
    defined = {kernel.__name__: kernel}  # what the text defines; it grows while parts are read
    parts, waiting = {}, [kernel.__name__]
    while waiting:
        name = waiting.pop()
        part = parts[name] = _Part(name, defined[name], make)
        for read, value in part.closed.items():
            if read not in defined and _is_helper(value):
                waiting.append(read)
            defined.setdefault(read, value)
    for part in parts.values():
        part.check(defined, kernel.__globals__)
    head = [_line(name, value) for name, value in sorted(defined.items()) if name not in parts]
    for module in (np, numba):
        name = module.__name__
        if any(f"{name}." in line for line in head) and kernel.__globals__.get(name) is not module:
            head.insert(0, f"import {name}\n")
    page = parts.pop(kernel.__name__).text
    helpers = [part.text for part in sorted(parts.values(), key=lambda part: (part.place, part.name))]
    return "\n\n".join(filter(None, ["".join(head), *helpers, page]))


class _Part:
    """A function of the text. name: what it is called by. make: its factory."""

    def __init__(self, name, value, make):
        self.name = name
        self.function = function = inspect.unwrap(getattr(value, "py_func", value))
        code = function.__code__
        self.place = code.co_filename, code.co_firstlineno
        self.page = {**vars(builtins), **function.__globals__}
        self.cells = _cells(function)
        self.original = re.sub(r"\r\n?", "\n", inspect.getsource(function))
        scope = {**self.page, **self.cells}
        constants = {each: value for each, value in scope.items() if isinstance(value, CONSTANT)}
        try:
            text = dedented(self.original)
            text = re.sub(rf"^def\s+{code.co_name}\b", f"def {name}", text, count=1, flags=re.MULTILINE)
            if not re.match(rf"def {name}\b" if function is value else "@", text):
                raise self._error(name, "is not made by a def and the decorators above it")
            self.text = fold(text, constants)
            # A module's own names are those of decorators, defaults and annotations.
            read = names(compile(self.text, "<part>", "exec", dont_inherit=True), "LOAD_GLOBAL", "LOAD_NAME")
        except SyntaxError as error:
            raise self._error(name, f"cannot stand as a text of its own: {error.msg}") from None
        self.read = {each: scope.get(each, MISSING) for each in sorted(read)}
        self.closed = {each: self.cells[each] for each in self.read if each in self.cells}
        factory = getattr(make, "__code__", None)
        hidden = {*factory.co_varnames, *factory.co_cellvars} if factory else ()  # what only it can see
        for each, value in self.read.items():
            if value is MISSING or (each in hidden and each not in self.cells):
                raise self._error(each, "has no value that the kernel could see")
            if each in self.closed and not _is_helper(value) and _line(each, value) is None:
                raise self._error(each, f"is {value!r}, which cannot be written as text")

    def check(self, defined, page):
        """Raises ValueError if a name does not mean the same in the whole text."""
        for name, value in self.read.items():
            meant = defined.get(name, page.get(name, vars(builtins).get(name)))
            if value is not meant and not (
                isinstance(value, CONSTANT) and type(value) is type(meant) and repr(value) == repr(meant)
            ):
                raise self._error(name, f"is {value!r} in {self.name} and {meant!r} in the rest of the text")

    def _error(self, name, what):
        lines = self.original.split("\n")
        at = next((i for i, line in enumerate(lines) if re.search(rf"\b{name}\b", line)), 0)
        return ValueError(f"line {self.place[1] + at} of {Path(self.place[0]).name}: {name} {what}")


def _cells(function):
    """{name: value} of what a function closes over; MISSING for a name that has none yet."""
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # it is empty
            cells[name] = MISSING
    return cells


def _is_helper(value):
    return isinstance(getattr(value, "py_func", value), FunctionType)


def _line(name, value):
    """The line that gives a name its value, or None if there is none."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}\n"
    written = f"{value:#x}" if name.endswith("MASK") and type(value) is int else _written(value)
    return written and f"{name} = {written}\n"


def _written(value):
    """A value as an expression, or None."""
    if isinstance(value, Type):
        return f"numba.{value}" if getattr(numba, str(value), None) is value else None
    if isinstance(value, np.generic):
        item = None if isinstance(value.item(), np.generic) else _written(value.item())
        return item and f"numpy.{type(value).__name__}({item})"
    if type(value) is tuple:
        items = [_written(item) for item in value]
        return None if None in items else f"({', '.join(items)}{',' * (len(items) == 1)})"
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value) if type(value) in (bool, int, float, str, bytes, type(None)) else None
