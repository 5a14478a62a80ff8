"""Python's expressions, as lanes in lockstep evaluate them.

`visit` evaluates a node for the lanes that run. Each kind of node has the method of its name; what has none
is refused. Where lanes disagree on what comes next, each side is evaluated for its own lanes.
"""

import ast
import textwrap
from functools import partial

import numpy as np

from sparsekern.machine import vectors
from sparsekern.machine.masks import Variable
from sparsekern.machine.vectors import Unsupported, varies
from sparsekern.machine.vocabulary import DTYPES


class Word:
    """What kernels name or hold that acts on all lanes that run: `cuda`, `lanes`, and arrays."""


FUNCTIONS = {  # of values, also of fragments, that differ between lanes
    min: vectors.least,
    max: vectors.largest,
    len: lambda items: len(vectors.items(items)),
}
OF_NUMBERS = {
    abs: np.abs,
    range: vectors.Span.of,
    int: partial(vectors.cast, np.dtype(np.int64)),
    **{function: partial(vectors.cast, dtype) for function, dtype in DTYPES.items()},
}


class Expressions:
    """mask: the lanes that run. node: what they do. frames: the calls that they are in, innermost last.

    inlined: the functions that are run from their text when they are called.
    """

    def __init__(self):
        self.mask = self.node = None
        self.frames, self.inlined = [], ()

    @property
    def frame(self):
        return self.frames[-1]

    def visit(self, node):
        method = getattr(self, type(node).__name__, None)
        if method is None:
            text = textwrap.shorten(ast.unparse(node), 40)
            raise Unsupported(f"lanes in lockstep cannot do {type(node).__name__}, as in {text}")
        return method(node)

    def at(self, node):
        self.node, self.frame.line = node, node.lineno

    def under(self, mask, visit, *arguments):
        """What `visit` returns to the lanes of `mask`."""
        outer, self.mask = self.mask, mask
        value = visit(*arguments)
        self.mask = outer
        return value

    def part(self, mask, value):
        """`value` of the lanes that run, for those of them in `mask`."""
        return Variable(self.mask, value).get(mask)

    def joined(self, *parts):
        """What the lanes that run have, where each of `parts`, (mask, value), has its own."""
        parts = [(mask, value) for mask, value in parts if len(mask)]
        if all(value is parts[0][1] for _, value in parts):
            return parts[0][1]
        variable = Variable()
        for mask, value in parts:
            variable.set(mask, value)
        return variable.get(self.mask)

    def Constant(self, node):
        return node.value

    def Tuple(self, node):
        return tuple(map(self.visit, node.elts))

    def Name(self, node):
        if node.id in self.frame.variables:
            return self.frame.variables[node.id].get(self.mask)
        if node.id not in self.frame.outside:
            raise NameError(f"name {node.id!r} is not defined")
        value = self.frame.outside[node.id]
        if varies(value):
            raise Unsupported(f"lanes in lockstep know arrays as arguments only; {node.id} is none")
        return value

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
        if any(keyword.arg is None for keyword in node.keywords):
            raise Unsupported(f"lanes in lockstep cannot do ** in a call, as in {ast.unparse(node)}")
        named = {keyword.arg: self.visit(keyword.value) for keyword in node.keywords}
        self.at(node)
        if function in self.inlined:
            return self.call(function, *arguments, **named)
        if isinstance(getattr(function, "__self__", None), Word):
            return function(*arguments, **named)
        given = [*arguments, *named.values()]
        if vectors.differ(*given):
            if function in OF_NUMBERS:
                return OF_NUMBERS[function](*map(vectors.number, arguments), **named)
            if function not in FUNCTIONS:
                raise Unsupported(
                    f"lanes in lockstep cannot do {ast.unparse(node.func)} of values that differ"
                )
            function = FUNCTIONS[function]
        return function(*arguments, **named)

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
        """The first value whose truth is `wanted`, or the last. What comes after it is not evaluated."""
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
