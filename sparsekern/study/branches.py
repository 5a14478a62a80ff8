"""Resolves the constants of a function in its text: dead branches go, lines that live keep their comments."""

import ast
import dis
import re
from copy import deepcopy
from itertools import chain
from types import CodeType

from sparsekern.study.folding import Fold

COLON = re.compile(r"(?:[\s)\\]|#.*)*(:)[ \t]*(#.*)?")  # of a header, from the end of its condition on
LOOSE = ast.BoolOp | ast.IfExp | ast.Lambda  # may need parentheses where something else stood
DOCUMENTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def fold(text, constants):
    """`text`, a function, with what `constants` ({name: value}) decide in its body decided: see `Fold`.

    A name that the function binds, if only in a lambda, is no constant. A branch that stays loses its header
    and indentation; the header's comment gets a line of its own. A dead branch takes along the comment lines
    right above it. An expression of which a part goes is written anew, on one line.

    The result is parsed and compared with the folded tree. Where lines cannot be taken out so that they
    agree, the tree itself is written, without comments. Raises SyntaxError if `text` is no function.
    """
    bound = _bound(compile(text, "<function>", "exec", dont_inherit=True))
    folder = Fold({name: value for name, value in constants.items() if name not in bound})
    tree = ast.parse(text)
    function = tree.body[0]
    function.body = folder.visit(ast.Module(function.body, [])).body
    try:
        folded = _spliced(text, folder.changes)
        while (branch := _decided(folded)) is not None:
            folded = branch.taken()
        folded = _tidied(folded)
        if _structure(ast.parse(folded)) == _structure(deepcopy(tree)):
            return folded
    except SyntaxError:  # a line was not what it looked like
        pass
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def dedented(text):
    """`text`, a function, without its indentation. Strings other than docstrings stay as they are.

    Raises SyntaxError if it cannot be parsed.
    """
    literal = {line - 1 for line in _literal(ast.parse(f"if True:\n{text}"))} if _depth(text) else ()
    lines = text.split("\n")
    return "\n".join(_shifted(lines, range(len(lines)), _depth(text), 0, literal))


def names(code, *operations):
    """The names on which a code object, or one in it, does an operation, such as LOAD_GLOBAL."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in operations}
    return found.union(*(names(inner, *operations) for inner in _inner(code)))


def _bound(code):
    """The names that functions in a code object bind."""
    bound = {name for each in _inner(code) for name in (*each.co_varnames, *each.co_cellvars)}
    assigned = (names(each, "STORE_GLOBAL", "DELETE_GLOBAL") for each in _inner(code))
    return bound.union(*assigned, *map(_bound, _inner(code)))


def _inner(code):
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _structure(tree):
    """What two texts share that do the same, docstrings and `pass` aside."""
    for node in ast.walk(tree):
        for block in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            block[:] = [s for s in block if not isinstance(s, ast.Pass)]
        if isinstance(node, DOCUMENTED) and (doc := _docstring(node)):
            doc.value = ""
    return ast.dump(tree)


def _docstring(node):
    """The docstring of a function or class as a node, or None."""
    match node.body:
        case [ast.Expr(ast.Constant(str()) as doc), *_]:
            return doc
    return None


def _spliced(text, changes):
    """`text` with the outermost of `changes` (see `Fold`) made."""
    lines = [line.encode() for line in text.split("\n")]  # `ast` counts bytes
    outermost, end = [], (0, 0)
    for span in sorted(changes, key=lambda span: (*span[:2], -span[2], -span[3])):
        if span[:2] >= end:
            outermost.append(span)
            end = span[2:]
    for span in reversed(outermost):
        first, start, last, stop = span
        new = _written(text, *changes[span]).encode()
        lines[first - 1 : last] = [lines[first - 1][:start] + new + lines[last - 1][stop:]]
    return b"\n".join(lines).decode()


def _written(text, old, new):
    """What stands for `new` in the place of `old`, as it stands in `text` if it can."""
    segment = ast.get_source_segment(text, new) or ""
    try:
        same = "\n" not in segment and ast.dump(ast.parse(segment, mode="eval").body) == ast.dump(new)
    except SyntaxError:  # it needs its parentheses
        same = False
    words = segment if same else ast.unparse(new)
    like = type(new) is type(old) and type(getattr(new, "op", None)) is type(getattr(old, "op", None))
    return f"({words})" if isinstance(new, LOOSE) and not like else words


def _decided(text):
    """The first `if` or `elif` whose condition is a constant, or None."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            alone = any([node] == value for n in ast.walk(tree) for _, value in ast.iter_fields(n))
            return _Branch(text.split("\n"), node, alone, _literal(tree))
    return None


class _Branch:
    """An `if` or `elif` that is decided. Lines are counted from 0. alone: it is all of a block."""

    def __init__(self, lines, node, alone, literal):
        self.lines, self.node, self.alone, self.literal = lines, node, alone, literal
        self.top, self.depth = node.lineno - 1, _depth(lines[node.lineno - 1])
        self.indent = lines[self.top][: self.depth]
        self.is_elif = self._starts(self.top, "elif")
        self.stop = self._end()

    def taken(self):
        """The text without what is dead."""
        start, other = self.top, self._other()
        if not self.node.test.value and (self.is_elif or other is None):
            start = self._above(self.top, 0)
        kept = self._kept(other)
        if not kept and self.alone and not self.is_elif:
            kept = [f"{self.indent}pass"]
        return "\n".join([*self.lines[:start], *kept, *self.lines[self.stop :]])

    def _kept(self, other):
        """Lines of what is taken. other: the line of the `else` or of the `elif` after it, or None."""
        lines, node, stop = self.lines, self.node, self.stop
        above = stop if other is None else self._above(other, node.body[-1].end_lineno)
        if node.test.value:
            return self._block(node.test.end_lineno - 1, node.test.end_col_offset, node.body, above)
        if other is None:
            return []
        if not self._starts(other, "elif"):
            return lines[above:other] + self._block(other, _depth(lines[other]) + 4, node.orelse, stop)
        header = lines[other].lstrip().removeprefix("elif")
        header = self.indent + ("elif" if self.is_elif else "if") + header
        return [*lines[above:other], header, *lines[other + 1 : stop]]

    def _block(self, line, column, body, stop):
        """Lines of a block up to `stop`, in the place of the whole. line, column: before its colon."""
        rest = "\n".join([self.lines[line].encode()[column:].decode(), *self.lines[line + 1 :]])
        colon = COLON.match(rest)
        header, comment, first = line + rest[: colon.start(1)].count("\n"), colon[2] or "", body[0].lineno - 1
        places = range(header + 1, stop)
        if first == header:  # all on one line
            start = self.lines[header].encode()[body[0].col_offset :].decode()
            kept = [self.indent + "    " * self.is_elif + start, *self.lines[header + 1 : stop]]
            comment = ""
        else:
            by = 0 if self.is_elif else _depth(self.lines[first]) - self.depth
            kept = _shifted(self.lines, places, by, self.depth, self.literal)
        if self.is_elif:
            return [f"{self.indent}else:  {comment}".rstrip(), *kept]
        return [self.indent + comment, *kept] if comment else kept

    def _starts(self, line, word):
        return self.lines[line].lstrip().startswith(word)

    def _other(self):
        if not self.node.orelse:
            return None
        at = self.node.body[-1].end_lineno
        while not self._starts(at, ("else", "elif")):
            at += 1
        return at

    def _above(self, line, first):
        """The first of the comment lines right above a line, not before `first`, that stand as deep."""
        while line > first and self.lines[line - 1].startswith(f"{self.indent}#"):
            if line - 1 in self.literal:
                break
            line -= 1
        return line

    def _end(self):
        """The line after its last block, to which comments belong that stand as deep."""
        end = at = self.node.end_lineno
        while at < len(self.lines):
            line = self.lines[at].strip()
            if line and not (line.startswith("#") and _depth(self.lines[at]) > self.depth):
                break
            at += 1
            end = at if line else end
        return end


def _shifted(lines, places, by, least, literal):
    """`lines` at `places`, moved left by as many columns, but not past column `least` nor inside a string."""
    cuts = {at: min(by, max(_depth(lines[at]) - least, 0)) for at in places if at not in literal}
    return [lines[at][cuts.get(at, 0) :] for at in places]


def _literal(tree):
    """The lines, from 0, that begin inside a string other than a docstring."""
    docs = [_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))
    spans = (range(node.lineno, node.end_lineno) for node in strings if node not in docs)
    return set(chain.from_iterable(spans))


def _depth(line):
    return len(line) - len(line.lstrip())


def _tidied(text):
    """Without blank lines that stand together or first in a block."""
    literal, kept = _literal(ast.parse(text)), []
    for at, line in enumerate(text.split("\n")):
        opens = kept and kept[-1].split("#")[0].rstrip().endswith(":")
        if line.strip() or at in literal or (kept and kept[-1].strip() and not opens):
            kept.append(line)
    return "\n".join(kept).rstrip() + "\n"
