"""Python's statements and expressions, as lanes in lockstep do them.

`execute` and `visit` walk the text of a function; each node has the method of its name. What has none is
refused. A statement returns the mask of lanes that go on to the next one.
"""

import ast
import builtins
import inspect
import textwrap
from collections import ChainMap
from functools import cache, partial

import numpy as np

from sparsekern.machine import vectors
from sparsekern.machine.masks import Variable
from sparsekern.machine.report import EmulatorError
from sparsekern.machine.vectors import OfLane, Unsupported, varies
from sparsekern.machine.vocabulary import DTYPES


class Apart(Exception):
    """Lanes that a barrier or collective names are not there."""


class Word:
    """What kernels name or hold that acts on all lanes that run: `cuda`, `lanes`, and arrays."""


FUNCTIONS = {  # of values that differ between lanes
    min: vectors.least,
    max: vectors.largest,
    abs: np.abs,
    len: lambda items: len(vectors.items(items)),
    range: vectors.Span.of,
    int: partial(vectors.cast, np.dtype(np.int64)),
    **{function: partial(vectors.cast, dtype) for function, dtype in DTYPES.items()},
}


@cache
def parsed(code):
    """(the tree of a function, lines of its file before the text that it is parsed from)."""
    try:
        lines, first = inspect.getsourcelines(code)
    except OSError as error:
        raise Unsupported(f"the text of {code.co_name} cannot be had: {error}") from None
    wrapped = lines[0][0].isspace()
    (tree,) = ast.parse("if True:\n" * wrapped + "".join(lines)).body
    if wrapped:
        (tree,) = tree.body
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported(f"{code.co_name} is not made by a def")
    return tree, first - 1 - wrapped


class Frame:
    """A call of a function. path: the nodes that it was called from, innermost last."""

    def __init__(self, function, path):
        self.code, self.path = function.__code__, path
        tree, self.before = parsed(self.code)
        self.body, self.line = tree.body, self.before + tree.lineno
        cells = zip(self.code.co_freevars, function.__closure__ or (), strict=True)
        closed = {name: cell.cell_contents for name, cell in cells}
        self.outside = ChainMap(closed, function.__globals__, vars(builtins))
        self.variables = {name: Variable() for name in (*self.code.co_varnames, *self.code.co_cellvars)}
        self.returned, self.loops = [], []


class Loop:
    def __init__(self):
        self.broken, self.continued = [], []  # masks


class Interpreter:
    """mask: the lanes that run. node: what they do. frames: the calls that they are in, innermost last.

    inlined: the functions that are run from their text when they are called.
    """

    def __init__(self):
        self.mask = self.node = None
        self.frames, self.inlined = [], ()

    def fail(self, kind, detail, wrong=None, cause=None):
        """Raises the error of the first lane that runs, or of the first that is `wrong`."""
        raise NotImplementedError

    def exit(self):
        """The lanes that run return from the kernel."""

    @property
    def frame(self):
        return self.frames[-1]

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

    def joined(self, *parts):
        """What the lanes that run have, where each of `parts`, (mask, value), has its own."""
        parts = [(mask, value) for mask, value in parts if len(mask)]
        if all(value is parts[0][1] for _, value in parts):
            return parts[0][1]
        variable = Variable()
        for mask, value in parts:
            variable.set(mask, value)
        return variable.get(self.mask)

    def part(self, mask, value):
        """`value` of the lanes that run, for those of them in `mask`."""
        return Variable(self.mask, value).get(mask)

    def under(self, mask, visit, *arguments):
        outer, self.mask = self.mask, mask
        value = visit(*arguments)
        self.mask = outer
        return value

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

    def visit(self, node):
        method = getattr(self, type(node).__name__, None)
        if method is None:
            self.frame.line = self.frame.before + getattr(node, "lineno", self.frame.line - self.frame.before)
            text = textwrap.shorten(ast.unparse(node), 40)
            raise Unsupported(f"lanes in lockstep cannot do {type(node).__name__}, as in {text}")
        return method(node)

    def at(self, node):
        self.node, self.frame.line = node, self.frame.before + node.lineno

    # Statements

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
            self.at(target)
            array[index] = value
        else:
            self.visit(target)  # has no method
            raise Unsupported(f"lanes in lockstep cannot assign to {ast.unparse(target)}")

    def AugAssign(self, node):
        operation = type(node.op)
        if isinstance(node.target, ast.Subscript):
            array, index = self.visit(node.target.value), self.visit(node.target.slice)
            self.at(node.target)
            value = vectors.binary(operation, self.element(array, index), self.visit(node.value))
            self.at(node.target)
            array[index] = value
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

    # Expressions

    def Constant(self, node):
        return node.value

    def Tuple(self, node):
        return tuple(map(self.visit, node.elts))

    def Name(self, node):
        if node.id in self.frame.variables:
            return self.frame.variables[node.id].get(self.mask)
        if node.id not in self.frame.outside:
            raise NameError(f"name {node.id!r} is not defined")
        return self.frame.outside[node.id]

    def Attribute(self, node):
        value = self.visit(node.value)
        self.at(node)
        if varies(value):
            raise Unsupported(f"lanes in lockstep have no attributes of numbers, as in {ast.unparse(node)}")
        return getattr(value, node.attr)

    def Subscript(self, node):
        array, index = self.visit(node.value), self.visit(node.slice)
        self.at(node)
        return self.element(array, index)

    def element(self, array, index):
        if isinstance(array, Word) or not varies(array, index):
            return array[index]
        return vectors.element(vectors.fragment(array, len(self.mask)), index)

    def Call(self, node):
        function = self.visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        named = {keyword.arg: self.visit(keyword.value) for keyword in node.keywords}
        if None in named:
            raise Unsupported(f"lanes in lockstep cannot do ** in a call, as in {ast.unparse(node)}")
        self.at(node)
        if function in self.inlined:
            return self.call(function, *arguments, **named)
        if isinstance(getattr(function, "__self__", None), Word):
            return function(*arguments, **named)
        if not varies(*arguments, *named.values()):
            return function(*arguments, **named)
        if function not in FUNCTIONS:
            raise Unsupported(f"lanes in lockstep cannot do {ast.unparse(node.func)} of values that differ")
        return FUNCTIONS[function](*arguments, **named)

    def BinOp(self, node):
        return vectors.binary(type(node.op), self.visit(node.left), self.visit(node.right))

    def UnaryOp(self, node):
        return vectors.unary(type(node.op), self.visit(node.operand))

    def IfExp(self, node):
        yes, no = self.mask.split(vectors.truth(self.visit(node.test)))
        sides = ((yes, node.body), (no, node.orelse))
        return self.joined(*((mask, self.under(mask, self.visit, side)) for mask, side in sides if len(mask)))

    def BoolOp(self, node):
        return self._first(isinstance(node.op, ast.Or), node.values)

    def _first(self, wanted, nodes):
        """The first value whose truth is `wanted`, or the last value; what comes after it is not evaluated."""
        value = self.visit(nodes[0])
        if len(nodes) == 1:
            return value
        found, others = self.mask.split(vectors.truth(value) == wanted)
        if not len(others):
            return value
        rest = self.under(others, self._first, wanted, nodes[1:])
        return self.joined((found, self.part(found, value)), (others, rest)) if len(found) else rest

    def Compare(self, node):
        return self._compare(self.visit(node.left), node.ops, node.comparators)

    def _compare(self, left, operations, nodes):
        right = self.visit(nodes[0])
        result = vectors.compare(type(operations[0]), left, right)
        if len(nodes) == 1:
            return result
        going, done = self.mask.split(vectors.truth(result))
        if not len(going):
            return result
        rest = self.under(going, self._compare, self.part(going, right), operations[1:], nodes[1:])
        return self.joined((done, False), (going, rest))
