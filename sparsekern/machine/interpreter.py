"""Python's statements and functions, as lanes in lockstep run them.

A statement is run by the lanes of a mask, and returns the mask of those that go on to the next one. Lanes
that leave early, by `return`, `break` or `continue`, wait where the others will come.
"""

import ast
import builtins
import inspect
import linecache
from collections import ChainMap
from functools import cache, lru_cache
from types import CodeType

import numpy as np

from sparsekern.machine import vectors
from sparsekern.machine.expressions import Expressions
from sparsekern.machine.masks import Variable
from sparsekern.machine.report import EmulatorError
from sparsekern.machine.vectors import OfLane, Unsupported

AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as cells of notebooks may have


class Apart(Exception):
    """Lanes that the barrier or collective of this name waits for are at another place."""


@cache
def parsed(code, file):
    """The tree of a function, from the text of its file, which compiles to `code`."""
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file))
    if not text:
        raise Unsupported(f"the text of {code.co_name} cannot be had")
    place = _place(code)
    functions, codes = _functions(text, file)
    if all(_meaning(code) != _meaning(other) for other in codes if _place(other) == place):
        raise Unsupported(f"the text of {code.co_name} has changed since it was loaded")
    if place not in functions:
        raise Unsupported(f"{code.co_name} is not made by a def")
    return functions[place]


@lru_cache(maxsize=16)
def _functions(text, file):
    """({name and first line: tree} of the defs of a text, the code of all that it compiles to)."""
    try:
        tree = compile(text, file, "exec", ast.PyCF_ONLY_AST | AWAITS, dont_inherit=True)
        whole = compile(tree, file, "exec", AWAITS, dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}, []
    defs = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    firsts = [min(x.lineno for x in (node, *node.decorator_list)) for node in defs]
    return {(node.name, first): node for node, first in zip(defs, firsts, strict=True)}, [*_codes(whole)]


def _codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _place(code):
    return code.co_name, code.co_firstlineno


def _meaning(code):
    """What two compilations of one text share: `==` of code objects also sees what has run."""
    constants = [
        _meaning(x) if isinstance(x, CodeType) else (type(x).__name__, repr(x)) for x in code.co_consts
    ]
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, constants, arguments, names


class Frame:
    """A call of a function. path: the nodes that it was called from, innermost last."""

    def __init__(self, function, path):
        self.code, self.path = function.__code__, path
        tree = parsed(self.code, self.code.co_filename)
        self.body, self.line = tree.body, tree.lineno
        if tree.args.vararg or tree.args.kwarg:
            raise Unsupported(f"lanes in lockstep cannot do * and ** in the parameters of {tree.name}")
        cells = zip(self.code.co_freevars, function.__closure__ or (), strict=True)
        closed = {name: cell.cell_contents for name, cell in cells}
        self.outside = ChainMap(closed, function.__globals__, vars(builtins))
        self.variables = {name: Variable() for name in (*self.code.co_varnames, *self.code.co_cellvars)}
        self.returned, self.loops = [], []


class Loop:
    def __init__(self):
        self.broken, self.continued = [], []  # masks


class Interpreter(Expressions):
    """Runs functions. A subclass says how a lane `fail`s, and what it is to `exit` from the kernel."""

    def call(self, function, *arguments, **named):
        """Runs a function, and returns what the lanes that run get from it."""
        mask, path = self.mask, (*self.frame.path, self.node) if self.frames else ()
        bound = inspect.signature(function).bind(*arguments, **named)
        bound.apply_defaults()
        self.frames.append(frame := Frame(function, path))
        for name, value in bound.arguments.items():
            frame.variables[name].set(mask, value)
        rest = self.execute(frame.body, mask)
        self.frames.pop()
        self.mask = mask
        return self.joined(*frame.returned, (rest, None))

    def execute(self, statements, mask):
        for statement in statements:
            if not len(mask):
                break
            self.mask = mask
            self.at(statement)
            mask = self.attempt(self.visit, statement)
        return mask

    def attempt(self, do, *arguments):
        """What `do` returns; what it raises, as the error of a lane."""
        try:
            return do(*arguments)
        except (EmulatorError, Apart):
            raise
        except Unsupported as error:
            self.fail("unsupported", str(error))
        except OfLane as error:
            cause, wrong = error.cause, np.arange(len(self.mask)) == error.position
            self.fail("exception", f"{type(cause).__name__}: {cause}", wrong, cause)
        except Exception as error:
            self.fail("exception", f"{type(error).__name__}: {error}", cause=error)

    def Expr(self, node):
        self.visit(node.value)
        return self.mask

    def Pass(self, node):
        return self.mask

    def Assign(self, node):
        value = self.visit(node.value)
        for target in node.targets:
            self.assign(target, value)
        return self.mask

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            self.frame.variables[target.id].set(self.mask, value)
        elif isinstance(target, ast.Tuple):
            items = vectors.items(value)
            for name, item in zip(target.elts, items, strict=True):
                self.assign(name, item)
        elif isinstance(target, ast.Subscript):
            array, index = self.visit(target.value), self.visit(target.slice)
            self.set_element(target, array, index, value)
        else:
            raise Unsupported(f"lanes in lockstep cannot assign to {ast.unparse(target)}")

    def set_element(self, target, array, index, value):
        self.at(target)
        if vectors.varies(array):
            raise TypeError("numbers and fragments do not support item assignment")
        array[index] = value

    def AugAssign(self, node):
        operation = type(node.op)
        if isinstance(node.target, ast.Subscript):
            array, index = self.visit(node.target.value), self.visit(node.target.slice)
            self.at(node.target)
            value = vectors.binary(operation, self.element(array, index), self.visit(node.value))
            self.set_element(node.target, array, index, value)
        else:
            old = self.visit(node.target)
            self.assign(node.target, vectors.binary(operation, old, self.visit(node.value)))
        return self.mask

    def If(self, node):
        mask = self.mask
        yes, no = mask.split(vectors.truth(self.visit(node.test)))
        return mask.join(self.execute(node.body, yes), self.execute(node.orelse, no))

    def While(self, node):
        return self._loop(node, lambda trip: self.mask.split(vectors.truth(self.visit(node.test))))

    def For(self, node):
        items = self.visit(node.iter)
        span = items if isinstance(items, vectors.Span) else None
        count = Variable(self.mask, span.count if span else len(vectors.items(items)))
        held = Variable(self.mask, (span.start, span.step) if span else items)

        def enter(trip):
            going, done = self.mask.split(count.get(self.mask) > trip)
            if len(going):
                self.mask, here = going, held.get(going)
                self.assign(node.target, here[0] + trip * here[1] if span else here[trip])
            return going, done

        return self._loop(node, enter)

    def _loop(self, node, enter):
        """enter: trip -> (lanes that go through the loop once more, those that are done)."""
        entry = mask = self.mask
        self.frame.loops.append(loop := Loop())
        finished, trip = [], 0
        while len(mask):
            self.mask = mask
            self.at(node)
            mask, done = enter(trip)
            finished.append(done)
            mask = mask.join(self.execute(node.body, mask), *loop.continued)
            loop.continued.clear()
            trip += 1
        self.frame.loops.pop()
        rest = self.execute(node.orelse, entry.join(*finished))
        return entry.join(rest, *loop.broken)

    def Break(self, node):
        self.frame.loops[-1].broken.append(self.mask)
        return self.mask.nobody

    def Continue(self, node):
        self.frame.loops[-1].continued.append(self.mask)
        return self.mask.nobody

    def Return(self, node):
        self.frame.returned.append((self.mask, self.visit(node.value) if node.value else None))
        if len(self.frames) == 1:
            self.exit()
        return self.mask.nobody
