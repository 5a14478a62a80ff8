"""Takes dead branches out of a Python text, and leaves the lines that live, with their comments."""

import ast
import io
import textwrap
import tokenize

from sparsekern.study.folding import fold_expressions, known


def fold(text, constants):
    """`text`, a function, with what `constants` ({name: value}) decide decided, and dead branches gone.

    See `fold_expressions`. A branch that stays loses its header and indentation; the header's comment gets
    a line of its own. A dead `if` takes along the comment lines right above it.
    """
    text = fold_expressions(text, constants)
    while (branch := _decided(text, constants)) is not None:
        text = _Branch(text, *branch).taken()
    return _tidied(text)


def _decided(text, constants):
    """(the first `if` or `elif` whose condition is constant, whether it holds), or None."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.If):
            constant, value = known(node.test, constants)
            if constant:
                return node, bool(value)
    return None


class _Branch:
    """An `if` or `elif` that is decided. Lines are counted from 0."""

    def __init__(self, text, node, holds):
        self.text, self.node, self.holds = text, node, holds
        self.lines = text.splitlines()
        self.comments = _comments(text)
        self.top = node.lineno - 1
        self.indent = self.lines[self.top][: _depth(self.lines[self.top])]
        self.is_elif = self._word(self.top) == "elif"
        self.other = self._other()  # the line of its `else`, or of the `elif` after it, or None
        self.stop = self._end()

    def taken(self):
        if not self.holds and self.other is not None and self._word(self.other) == "elif":
            header = self.lines[self.other].lstrip().removeprefix("elif")
            word = "elif" if self.is_elif else "if"
            return self._with([self.indent + word + header, *self.lines[self.other + 1 : self.stop]])
        kept, comment = self._kept()
        if self.is_elif:
            header = f"{self.indent}else:" + (f"  {comment}" if comment else "")
            return self._with([header, *kept] if kept else [])
        if not kept:
            return self._gone()
        kept = textwrap.indent(textwrap.dedent("\n".join(kept)), self.indent).split("\n")
        return self._with([self.indent + comment, *kept] if comment else kept)

    def _kept(self):
        """(lines of the branch that is taken, comment of its header)."""
        if self.holds:
            header, first = self._header(), self.node.body[0]
            stop = self.stop if self.other is None else self.other
        elif self.other is not None:
            header, first, stop = self.other, self.node.orelse[0], self.stop
        else:
            return [], ""
        if first.lineno - 1 == header:  # on one line with it
            line = self.lines[header].encode()[first.col_offset :].decode()
            return [f"{self.indent}    {line}", *self.lines[header + 1 : stop]], ""
        return self.lines[header + 1 : stop], self.comments.get(header, "")

    def _gone(self):
        top = self.top
        while self.lines[top - 1].startswith(f"{self.indent}#"):
            top -= 1
        blocks = (getattr(n, b, None) for n in ast.walk(ast.parse(self.text)) for b in ("body", "orelse"))
        starts = [[s.lineno for s in block] for block in blocks if isinstance(block, list)]
        return self._with([f"{self.indent}pass"] if [self.node.lineno] in starts else [], top)

    def _with(self, kept, top=None):
        top = self.top if top is None else top
        return "\n".join([*self.lines[:top], *kept, *self.lines[self.stop :]]) + "\n"

    def _word(self, at):
        """The first word of a line."""
        return self.lines[at].replace(":", " ").replace("(", " ").split()[0]

    def _header(self):
        """The line that ends in the colon."""
        at = self.node.test.end_lineno - 1
        while at < self.node.body[0].lineno - 1:
            if self.lines[at].removesuffix(self.comments.get(at, "")).rstrip().endswith(":"):
                break
            at += 1
        return at

    def _other(self):
        if not self.node.orelse:
            return None
        at = self.node.orelse[0].lineno - 1
        while (
            self.lines[at].strip() == ""
            or _depth(self.lines[at]) > len(self.indent)
            or (self._word(at) not in ("else", "elif"))
        ):
            at -= 1
        return at

    def _end(self):
        """The line after its last block, to which comments belong that stand as deep."""
        end = at = self.node.end_lineno
        while at < len(self.lines):
            line = self.lines[at].strip()
            if line and not (line.startswith("#") and _depth(self.lines[at]) > len(self.indent)):
                break
            at += 1
            end = at if line else end
        return end


def _comments(text):
    """{line: its comment}"""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0] - 1: t.string for t in tokens if t.type == tokenize.COMMENT}


def _depth(line):
    return len(line) - len(line.lstrip())


def _tidied(text):
    """Without blank lines that stand together or first in a block."""
    comments, kept = _comments(text), []
    for at, line in enumerate(text.splitlines()):
        opens = kept and kept[-1].removesuffix(comments.get(at - 1, "")).rstrip().endswith(":")
        if line.strip() or (kept and kept[-1] and not opens):
            kept.append(line.rstrip())
    return "\n".join(kept).rstrip() + "\n"
