"""A kernel's own text with its toggles resolved: what is left of the page when a variant is chosen."""

import ast
import inspect
import textwrap
from types import FunctionType

from numba.core.types import Type

from sparsekern.machine.launch import make_kernel
from sparsekern.problem import Types
from sparsekern.study.branches import fold

CONSTANT = bool | int | float | str


def source(make, variant, types=Types()):
    """The text of the kernel that `make(variant, types)` returns, with every condition on a toggle decided.

    Dead branches are gone, and so are switches; other lines stand as they do on the page, with their
    comments. First come the sizes and types that the text still names, then the helpers that it still calls,
    then the kernel. It runs in the scope of the page of `make`.

    make: a kernel factory, from a file or a notebook cell. Raises TypeError if it returns no function, and
    OSError if its text cannot be had, as for one from `exec`.
    """
    kernel = make_kernel(make, variant, types)
    texts, sizes = {}, {}  # of functions by where they stand; of constants by name
    waiting = [kernel]
    while waiting:
        function = waiting.pop()
        place = _place(function)
        if place in texts:
            continue
        values = inspect.getclosurevars(function)
        scope = {**values.globals, **values.nonlocals}
        constants = {name: value for name, value in scope.items() if isinstance(value, CONSTANT)}
        texts[place] = fold(textwrap.dedent(inspect.getsource(function)), constants)
        for name in _names(texts[place]):
            value = values.nonlocals.get(name)
            if isinstance(value, CONSTANT | Type):
                sizes[name] = value
            elif isinstance(helper := getattr(value, "py_func", value), FunctionType):
                waiting.append(helper)
    page = texts.pop(_place(kernel))
    helpers = [text for _, text in sorted(texts.items())]
    written = "".join(f"{name} = {_written(name, value)}\n" for name, value in sorted(sizes.items()))
    return "\n\n".join(filter(None, [written, *helpers, page]))


def _place(function):
    return function.__code__.co_filename, function.__code__.co_firstlineno


def _names(text):
    """The names that a text reads, in order."""
    return dict.fromkeys(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))


def _written(name, value):
    if isinstance(value, Type):
        return f"numba.{value}"
    return f"{value:#x}" if name.endswith("MASK") else repr(value)
