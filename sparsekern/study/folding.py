"""Decides what constants decide in the tree of a function: `x if c else y`, `and`, `or`, `not` and `if`."""

import ast

IMPURE = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom  # an operand that must be evaluated
FIXED = (
    ast.Constant | ast.Name | ast.Tuple | ast.List | ast.Set | ast.UnaryOp | ast.BinOp | ast.Compare
    | ast.BoolOp | ast.IfExp | ast.expr_context | ast.operator | ast.unaryop | ast.boolop | ast.cmpop
)  # fmt: skip


class Fold(ast.NodeTransformer):
    """Folds a tree in place by `constants` ({name: value}), none of which the tree binds.

    A chain that is constant in part keeps the rest, and what it must evaluate: calls and `:=`. Where only the
    truth of a value counts, a constant becomes True or False; elsewhere only a name for True or False does.
    An `if` that is decided becomes the statements that are taken, or `pass`. What stands in an f-string
    stays as it is.

    changes: {(line, column, last line, column) of an expression: (it, what it became)}, lines from 1.
    """

    def __init__(self, constants):
        self.constants, self.changes = constants, {}

    def _known(self, node):
        """(whether an expression is constant and has a value, that value)."""
        if not all(map(self._fixed, ast.walk(node))):
            return False, None
        try:
            return True, eval(compile(ast.Expression(node), "<constant>", "eval"), {}, dict(self.constants))
        except (ArithmeticError, TypeError, ValueError):
            return False, None

    def _fixed(self, node):
        match node:
            case ast.Name():
                return node.id in self.constants
            case ast.Compare() if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
                # Between other values it depends on more than the values.
                sides = (node.left, *node.comparators)
                return any(isinstance(n, ast.Constant) and isinstance(n.value, bool | None) for n in sides)
        return isinstance(node, FIXED)

    def _changed(self, old, new):
        span = old.lineno, old.col_offset, old.end_lineno, old.end_col_offset
        self.changes[span] = old, new
        return new

    def _constant(self, node, value):
        return self._changed(node, ast.copy_location(ast.Constant(value), node))

    def _truth(self, node):
        """Folds an expression of which only the truth counts. A constant is one of `ast` afterwards."""
        if isinstance(node, ast.Constant):
            return node
        constant, value = self._known(node)
        if constant:
            return self._constant(node, bool(value))
        match node:
            case ast.BoolOp():
                return self.visit_BoolOp(node, self._truth)
            case ast.IfExp():
                return self.visit_IfExp(node, self._truth)
        return self.visit(node)

    def visit_JoinedStr(self, node):
        return node

    def visit_Name(self, node):
        value = self.constants.get(node.id)
        return self._constant(node, value) if isinstance(value, bool) else node

    def visit_UnaryOp(self, node):
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        node.operand = self._truth(node.operand)
        decided = isinstance(node.operand, ast.Constant)
        return self._constant(node, not node.operand.value) if decided else node

    def visit_IfExp(self, node, visit=None):
        visit = visit or self.visit
        test = self._truth(node.test)
        if isinstance(test, ast.Constant):
            return self._changed(node, visit(node.body if test.value else node.orelse))
        node.test, node.body, node.orelse = test, visit(node.body), visit(node.orelse)
        return node

    def visit_BoolOp(self, node, visit=None):
        condition, visit = visit is not None, visit or self.visit
        stops = isinstance(node.op, ast.Or)  # the truth value that ends the chain
        operands, kept = [visit(operand) for operand in node.values], []
        for operand in operands:
            constant, value = self._known(operand)
            ends = constant and bool(value) == stops
            if constant and not ends and (condition or operand is not operands[-1]):
                continue
            kept.append(operand)
            if ends:
                if condition and not any(isinstance(n, IMPURE) for k in kept for n in ast.walk(k)):
                    kept = [operand]
                break
        if not kept:
            return self._constant(node, not stops)
        if len(kept) == len(operands):
            node.values = kept
            return node
        rest = ast.copy_location(ast.BoolOp(node.op, kept), node)
        return self._changed(node, rest if len(kept) > 1 else kept[0])

    def visit_While(self, node):
        node.test = self._truth(node.test)
        return self.generic_visit(node)

    def visit_If(self, node):
        node.test = self._truth(node.test)
        if not isinstance(node.test, ast.Constant):
            return self.generic_visit(node)
        taken = ast.Module(node.body if node.test.value else node.orelse, [])
        return self.generic_visit(taken).body or [ast.Pass()]
