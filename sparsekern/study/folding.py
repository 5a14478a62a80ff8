"""Decides constant conditions in the expressions of a Python text, and leaves the rest of it as it is.

Text is cut at the places that `ast` gives; `ast.unparse` would lose comments and layout.
"""

import ast
import io
import operator
import tokenize

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Not: operator.not_,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.In: lambda x, y: x in y, ast.NotIn: lambda x, y: x not in y,
}  # fmt: skip


class Unknown(Exception):
    """An expression is not constant."""


def fold_expressions(text, constants):
    """`text` with `x if c else y`, `and` and `or` decided where `constants` ({name: value}) decide them.

    A chain that is constant in part keeps the rest. Where only the truth of a value counts, constants are
    dropped from anywhere in it; elsewhere from its start. A name whose value is True or False is written as
    that where it remains.
    """
    return _Expressions(text, constants).folded()


def evaluate(node, constants):
    """The value of an expression. Raises Unknown if it is not constant."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in constants:
            return constants[node.id]
        case ast.Tuple() | ast.List() | ast.Set():
            return [evaluate(element, constants) for element in node.elts]
        case ast.UnaryOp():
            return OPERATORS[type(node.op)](evaluate(node.operand, constants))
        case ast.BinOp() if type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](evaluate(node.left, constants), evaluate(node.right, constants))
        case ast.Compare():
            values = [evaluate(side, constants) for side in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(OPERATORS[type(op)](left, right) for op, left, right in pairs)
        case ast.BoolOp():
            stops = isinstance(node.op, ast.Or)  # the truth value that decides
            for operand in node.values:
                value = evaluate(operand, constants)
                if bool(value) == stops:
                    break
            return value
        case ast.IfExp():
            chosen = node.body if evaluate(node.test, constants) else node.orelse
            return evaluate(chosen, constants)
    raise Unknown


def known(node, constants):
    """(whether an expression is constant and has a value, that value)."""
    try:
        return True, evaluate(node, constants)
    except (Unknown, ArithmeticError, TypeError):
        return False, None


class _Expressions:
    """Folds the expressions of a text. Changes no statement."""

    def __init__(self, text, constants):
        self.text, self.constants = text, constants
        self.starts = [0]  # of lines
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = text.splitlines()
        self.words = [  # (start, end, what) of the operators that are words
            (self._place(*t.start), self._place(*t.end), t.string)
            for t in tokenize.generate_tokens(io.StringIO(text).readline)
            if t.type == tokenize.NAME and t.string in ("and", "or", "if", "else")
        ]

    def folded(self):
        tree = ast.parse(self.text)
        edits = [edit for statement in tree.body for edit in self._edits(statement, False)]
        return self._applied(0, len(self.text), edits)

    def _place(self, line, column):
        return self.starts[line - 1] + column

    def _span(self, node):
        """Offsets of a node; `ast` counts bytes of a line."""
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        return tuple(self._place(n, len(self.lines[n - 1].encode()[:byte].decode())) for n, byte in ends)

    def _word(self, word, start, stop):
        """(start, end) of the operator `word` between the offsets of two operands."""
        return next((a, b) for a, b, what in self.words if what == word and start <= a and b <= stop)

    def _applied(self, start, stop, edits):
        """The text from `start` to `stop` with edits (start, stop, new) made."""
        pieces = []
        for first, last, new in sorted(edits):
            pieces += [self.text[start:first], new]
            start = last
        return "".join([*pieces, self.text[start:stop]])

    def _edits(self, node, condition):
        """Edits inside a node. condition: only the truth of its value matters."""
        match node:
            case ast.Name() if isinstance(self.constants.get(node.id), bool):
                return [(*self._span(node), str(self.constants[node.id]))]
            case ast.IfExp():
                return self._choice(node, condition)
            case ast.BoolOp():
                return self._chain(node, condition)
            case ast.UnaryOp() if isinstance(node.op, ast.Not):
                constant, value = known(node, self.constants)
                return [(*self._span(node), str(value))] if constant else self._edits(node.operand, True)
        return [
            edit
            for field, value in ast.iter_fields(node)
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
            for edit in self._edits(child, field == "test" and isinstance(node, ast.If | ast.While))
        ]

    def _choice(self, node, condition):
        """Of `body if test else orelse`."""
        (start, stop), test = self._span(node), self._span(node.test)
        if_at = self._word("if", self._span(node.body)[1], test[0])
        else_at = self._word("else", test[1], self._span(node.orelse)[0])
        constant, value = known(node.test, self.constants)
        if constant:
            part = (start, if_at[0]) if value else (else_at[1], stop)
            kept = node.body if value else node.orelse
            text = self._applied(*part, self._edits(kept, condition))
            return [(start, stop, text.lstrip() if self._needs_line(text, stop) else text.strip())]
        parts = ((node.body, condition), (node.test, True), (node.orelse, condition))
        return [edit for part, truth in parts for edit in self._edits(part, truth)]

    def _chain(self, node, condition):
        """Of `a and b and ...`, or `or`."""
        word, stops = ("or", True) if isinstance(node.op, ast.Or) else ("and", False)
        kept, pure = [], True  # pure: what stands before can be dropped
        for at, operand in enumerate(node.values):
            constant, value = known(operand, self.constants)
            free = condition or not kept  # elsewhere an operand before may be the value
            if constant and bool(value) == stops and free and pure:
                return [(*self._span(node), str(stops) if condition else repr(value))]
            if constant and bool(value) != stops and free and (condition or at < len(node.values) - 1):
                continue
            kept.append(at)
            pure = pure and not any(isinstance(inner, ast.Call) for inner in ast.walk(operand))
        if not kept:
            return [(*self._span(node), str(not stops))]
        edits = [edit for at in kept for edit in self._edits(node.values[at], condition)]
        dropped = self._gaps(node, word, kept)
        if not dropped:
            return edits
        text = self._applied(*self._span(node), edits + dropped)
        single = len(kept) == 1 and self._alone(node)
        return [(*self._span(node), _unwrapped(text) if single else text)]

    def _gaps(self, node, word, kept):
        """Edits that take out the operands of a chain that are not kept, with an operator for each."""
        start, stop = self._span(node)
        pairs = zip(node.values, node.values[1:], strict=False)
        words = [self._word(word, self._span(left)[1], self._span(right)[0]) for left, right in pairs]
        first, last = kept[0], kept[-1]
        gaps = [(words[at - 1][0], words[at][0], "") for at in range(first + 1, last) if at not in kept]
        if first:
            after = words[first - 1][1]
            rest = self.text[after:]
            gaps.append((start, after + len(rest) - len(rest.lstrip()), ""))
        if last < len(words):
            before = words[last][0]
            between = self.text[self._span(node.values[last])[1] : before]
            stays = self._needs_line(between, stop)
            gaps.append((before if stays else len(self.text[:before].rstrip()), stop, ""))
        return gaps

    def _needs_line(self, text, stop):
        """Whether what follows `stop` must not join the line of `text`, which may end in a comment."""
        return "#" in text and bool(self.text[stop:].split("\n", 1)[0].strip())

    def _alone(self, node):
        """Whether an expression has its line to itself, from `=`, `if` or `return` on."""
        start, stop = self._span(node)
        before, after = self.text[:start].rsplit("\n", 1)[-1], self.text[stop:].split("\n", 1)[0]
        return before.endswith(("= ", "if ", "return ")) and after.lstrip()[:1] in ("", ":", "#")


def _unwrapped(text):
    """Without parentheses around the whole of it."""
    if text.startswith("(") and "\n" not in text:
        try:
            if ast.dump(ast.parse(text[1:-1])) == ast.dump(ast.parse(text)):
                return text[1:-1]
        except SyntaxError:  # the first and the last are no pair
            pass
    return text
