"""Reads machine code (SASS) as nvdisasm prints it: instruction classes, access widths, loops."""

import re
from collections import Counter
from typing import NamedTuple

LINE = re.compile(r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>\S+)\s+)?(?P<rest>[A-Z][^;]*?)\s*;")
LABEL = re.compile(r"^(\.L_\S+):")
TARGET = re.compile(r"`\((\.L_\S+?)\)")

# The class of an instruction is the first whose pattern its text begins with: opcode and operands, without
# the U of the uniform datapath and without `.reuse`. A multiplication by a power of two is a shift in
# disguise, one by 1 an addition, and an IMAD or HFMA2 of zeros a move: the assembler writes them so to
# spread work over the pipes. Moves include selections and reads of special registers.
CLASSES = {
    "global loads": r"LDG\b",
    "global stores": r"STG\b",
    "asynchronous copies": r"LDGSTS|UBLKCP|UTMALDG",
    "shared loads": r"LDSM?\b",
    "shared stores": r"STSM?\b",
    "local loads": r"LDL\b",
    "local stores": r"STL\b",
    "constant loads": r"LDC\b",
    "other memory": r"(LD|ST|ATOMS?|ATOMG|RED|CCTL|MEMBAR|FENCE)\b",
    "moves": r"(MOV|IMAD\.MOV|IMAD\.U32|CS2R|S2R|S2UR|R2UR|P2R|R2P|PRMT|SEL|FSEL)\b"
    r"|HFMA2\S* \w+, -RZ, RZ, ",
    "multiply-adds": r"(FFMA|HFMA2|DFMA|HMMA|IMMA)\b",
    "float arithmetic": r"(FADD|FMUL|FSETP|FSET|FMNMX|FCHK|MUFU|DADD|DMUL|DSETP|HADD2|HMUL2|[FIH]2[FI]P?)\b",
    "shifts": r"(SHF|SHL|SHR|IMAD\.SHL)\b",
    "integer arithmetic": r"(IADD3?|VIADD|IMAD\.(IADD|X)|LOP3?|PLOP3|ISETP|IMNMX|VIMNMX|IABS|POPC|FLO|BREV"
    r"|SGXT|BMSK|IDP|I2I)\b",
    "scaled additions": r"LEA\b|IMAD\S* (\w+, )+?-?\w+(\.\w+)?, 0x(10*|[248]0*), ",
    "integer multiplications": r"(IMAD|IMUL|XMAD)\b",
    "shuffles": r"SHFL\b",
    "votes": r"(VOTE|MATCH|REDUX)\b|VOTEU\b",
    "barriers": r"(BAR|WARPSYNC|ENDCOLLECTIVE|DEPBAR|SYNCS)\b",
    "branches": r"(BRA|BRX|JMP|BSSY|BSYNC|BREAK|CALL|RET|EXIT|KILL|YIELD)\b",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in CLASSES.items()}
ACCESS = re.compile(r"(LDG|STG|LDS|STS|LDL|STL)\b")
UNIFORM = re.compile(
    r"U(?=(MOV|IMAD|IADD3|LEA|LOP3|PLOP3|SHF|SEL|ISETP|LDC|PRMT|SGXT|FLO|POPC|BREV|BMSK|R2UR)\b)"
)


class Instruction(NamedTuple):
    address: int  # bytes from the start
    label: str | None  # that stands before it
    guard: str | None  # predicate under which it runs, such as "!P0"
    text: str  # opcode and operands

    @property
    def opcode(self):
        return self.text.split()[0]

    @property
    def target(self):
        """The label that it names, or None."""
        found = TARGET.search(self.text)
        return found and found[1]

    def __str__(self):
        before = f"{self.label}:\n" if self.label else ""
        return f"{before}/*{self.address:04x}*/ {'@' + self.guard if self.guard else '':>5} {self.text} ;"


def instructions(sass_text):
    """The instructions of a kernel, in order, without the padding after its last one."""
    found, label = [], None
    for line in sass_text.splitlines():
        if named := LABEL.match(line):
            label = named[1]
        elif read := LINE.match(line):
            address, guard, text = read.groups()
            found.append(Instruction(int(address, 16), label, guard, " ".join(text.split())))
            label = None
    while found and (found[-1].opcode == "NOP" or _is_trap(found[-1])):
        found.pop()
    return found


def _is_trap(instruction):
    """The branch to itself that follows every kernel."""
    return instruction.opcode == "BRA" and instruction.target == instruction.label is not None


def class_of(text):
    """The instruction class of "OPCODE operands"."""
    plain = UNIFORM.sub("", text.replace(".reuse", ""), count=1)
    return next((name for name, pattern in _PATTERNS.items() if pattern.match(plain)), "other")


def classes(sass_text):
    """{instruction class: how many}, in the order of `CLASSES`, then "other"; without classes of none.

    Of the code, not of what runs: an unrolled loop counts once for each copy, and so do the copies of
    shuffles and barriers that the compiler keeps for warps that have diverged.
    """
    counts = Counter(class_of(i.text) for i in instructions(sass_text))
    return {name: counts[name] for name in (*CLASSES, "other") if counts[name]}


def widths(sass_text):
    """Counter of the loads and stores with their modifiers, such as {"LDG.E.128": 1, "STS": 2}."""
    return Counter(i.opcode for i in instructions(sass_text) if ACCESS.match(i.opcode))


def loops(sass_text):
    """The innermost loops, each as text that `classes` and `widths` read, in order of their addresses.

    A loop is what lies on the ways from the target of a branch back to that branch, where every way to the
    branch leads through the target (a natural loop: Aho et al., Compilers, 9.6). So a return from code that
    the compiler has moved out of line is none, and that code belongs to the loop it serves.
    """
    code = instructions(sass_text)
    after = _successors(code)
    before = [[] for _ in code]
    for at, following in enumerate(after):
        for to in following:
            before[to].append(at)
    bodies = {}  # head -> instructions
    for at, following in enumerate(after):
        for head in following:
            if head <= at and at not in _reached([0], after, without=head):
                bodies.setdefault(head, {head}).update(_reached([at], before, without=head))
    innermost = [
        body
        for head, body in sorted(bodies.items())
        if not any(other in body for other in bodies if other != head)
    ]
    return ["\n".join(str(code[at]) for at in sorted(body)) for body in innermost]


def _successors(code):
    """For each instruction, the places of those that may follow it."""
    places = {i.label: at for at, i in enumerate(code) if i.label}
    after = []
    for at, i in enumerate(code):
        branches = i.opcode.startswith(("BRA", "WARPSYNC")) and i.target in places
        ends = i.opcode == "BRA" or i.opcode.startswith(("EXIT", "RET"))
        leaves = ends and not i.guard and not re.match(r"BRA !?U?P\d", i.text)
        following = [places[i.target]] if branches else []
        if not leaves and at + 1 < len(code):
            following.append(at + 1)
        after.append(following)
    return after


def _reached(starts, edges, without):
    """The places that can be reached from `starts`, themselves among them, without passing one."""
    seen, waiting = set(), [start for start in starts if start != without]
    while waiting:
        at = waiting.pop()
        if at not in seen:
            seen.add(at)
            waiting += [to for to in edges[at] if to != without]
    return seen
