"""Machine code: how it is read, and what each toggle is seen to change in it."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from evidence import FLYING, LOCAL, MAKE, PLAIN, SAMPLED, STAGED, count
from numba import cuda, float32, int32, int64, void

from sparsekern import LADDERS, make_spmm
from sparsekern.machine import lanes
from sparsekern.study import tools
from sparsekern.study.codegen import Resources, read_resources, resources, sass
from sparsekern.study.sass import CLASSES, class_of, classes, instructions, loops, widths

NARROW = replace(STAGED, subwarp=8, rows_per_block=8, prescale=True, items=4)
WIDE = replace(NARROW, items=1, vector=4)  # the same columns for a lane


def code(variant):
    return sass(MAKE[variant.op], variant)


def per_multiply_add(loop, opcode):
    return widths(loop)[opcode] / classes(loop)["multiply-adds"]


# Every fourth step, since each compiles for seconds; test_evidence looks at the PTX of all for local memory.
@pytest.mark.parametrize("step, variant", LADDERS["spmm"][::4] + LADDERS["sddmm"][3::4])
def test_no_step_of_the_ladder_spills_but_where_it_is_known_and_its_shared_memory_is_as_told(step, variant):
    held = resources(MAKE[variant.op], variant)
    # Two SDDMM steps with 32 rows of rhs in vectors of four put two registers aside; they did not before
    # `place` and the columns in registers came in.
    crowded = variant.op == "sddmm" and variant.tile_nnz == 32 and variant.vector == 4
    spilled = (held.stack_bytes, held.spill_stores, held.spill_loads)
    assert spilled in [(0, 0, 0)] + crowded * [(8, 8, 24)]
    assert held.shared_bytes == variant.shared_bytes
    assert 16 <= held.registers <= 255


def test_vector_makes_one_load_of_128_bits_of_four_loads_of_b():
    narrow, wide = ([loop for loop in loops(code(variant)) if "FFMA" in loop] for variant in (NARROW, WIDE))
    assert {per_multiply_add(loop, "LDG.E") for loop in narrow} == {1}
    assert {per_multiply_add(loop, "LDG.E.128") for loop in wide} == {1 / 4}
    assert not any(widths(loop)["LDG.E"] for loop in wide)


def test_prescale_moves_the_multiplications_of_an_index_out_of_the_inner_loop():
    off, on = replace(STAGED, rows_per_block=8), replace(STAGED, rows_per_block=8, prescale=True)
    counts = [[classes(loop) for loop in loops(code(v)) if "FFMA" in loop] for v in (off, on)]
    # index * ldb is 64 bits wide: three multiplications, one of them of 32 by 32 bits to 64
    assert [c.get("integer multiplications", 0) / c["multiply-adds"] for c in counts[0]] == [3, 3]
    assert [c.get("integer multiplications", 0) for c in counts[1]] == [0, 0]


VECTOR_OF = float32[::1]
WIDE_SUM, WIDE_PRODUCT, SIGN = r"add\.s64", r"(?:mul|mad)\.lo\.s64|shl\.b64", r"cvt\.s64\.s32"  # of 64 bits
SCALED = r"(?:mul|mad)\.wide\.s32"  # an int32 times the size of an element, which an address takes with it


def ptx_of(kernel):
    """The PTX of a kernel of (x, out, start, i, j)."""
    return cuda.compile_ptx(kernel, void(VECTOR_OF, VECTOR_OF, int64, int32, int32), cc=(9, 0))[0]


def counted(text, *patterns):
    return [len(re.findall(pattern, text)) for pattern in patterns]


def from_a_place(x, out, start, i, j):
    there = lanes.place(x, start)
    a, b = lanes.load(there, i, 4), lanes.load_if(i < j, there, j, 4)
    c, d = lanes.load(there, 4, 4), lanes.load_or_leave(i < j, there, 8, 4)
    lanes.store(out, 0, (a[0] + b[1] + c[2] + d[3],))


def from_an_array(x, out, start, i, j):
    a, b = lanes.load(x, start + i, 4), lanes.load_if(i < j, x, start + j, 4)
    c, d = lanes.load(x, start + 4, 4), lanes.load_or_leave(i < j, x, start + 8, 4)
    lanes.store(out, 0, (a[0] + b[1] + c[2] + d[3],))


def test_a_load_from_a_place_takes_one_product_and_a_constant_index_none():
    text = ptx_of(from_a_place)
    assert counted(text, r"ld\.global\.v4\.f32", r"\bld\.(?!global|param)") == [4, 0]
    # the place: start times 4 and x; each index that is not constant: times 4, and the place
    assert counted(text, WIDE_PRODUCT, SCALED, WIDE_SUM, SIGN) == [1, 2, 3, 0]
    assert counted(text, r"\[%rd\d+\+(?:16|32)\]", r"mov\.b64") == [2, 1]
    # from the array itself an index is widened, added to start, shifted, and added to x, each for itself
    assert counted(ptx_of(from_an_array), WIDE_PRODUCT, SCALED, WIDE_SUM, SIGN) == [3, 0, 5, 2]


def test_a_place_of_a_place_takes_one_product_more():
    def kernel(x, out, start, i, j):
        there = lanes.place(lanes.place(x, start), i)
        lanes.store(out, 0, (lanes.load(there, j, 1)[0] + lanes.load(there, 1, 1)[0],))

    assert counted(ptx_of(kernel), WIDE_PRODUCT, SCALED, WIDE_SUM, SIGN) == [1, 2, 3, 0]


def test_a_row_of_b_in_flight_takes_one_product_and_no_local_memory():
    twice = replace(FLYING, in_flight=16)
    more = {
        pattern: count(pattern, twice) - count(pattern, FLYING) for pattern in (SCALED, WIDE_PRODUCT, SIGN)
    }
    assert more == {SCALED: 8, WIDE_PRODUCT: 0, SIGN: 0}
    assert count(r"ld\.global\.v4\.f32", twice) == 16
    for variant in (FLYING, twice):
        assert count(LOCAL, variant) == count(r"\bld\.(?!global|shared|param)", variant) == 0


def test_machine_code_is_made_once_in_a_session(monkeypatch):
    first = code(PLAIN)
    monkeypatch.setattr(tools.shutil, "which", lambda *_, **__: None)
    assert code(PLAIN) is first


def test_a_missing_tool_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda *_, **__: None)
    with pytest.raises(FileNotFoundError, match="ptxas was not found.*python -m sparsekern doctor"):
        code(replace(PLAIN, rows_per_block=16))


def test_the_tools_of_the_wheels_come_before_those_of_the_path(monkeypatch, tmp_path):
    """Since they are of the release of the compiler, whose PTX an older ptxas refuses."""
    wheel, other = tmp_path / "nvidia" / "cu13" / "bin", tmp_path / "other"
    for folder in (wheel, other):
        folder.mkdir(parents=True)
        (folder / "ptxas").touch(mode=0o755)
    monkeypatch.setattr(tools.sysconfig, "get_path", lambda _: tmp_path)
    monkeypatch.setenv("PATH", str(other))
    assert tools.tool("ptxas") == str(wheel / "ptxas")
    (wheel / "ptxas").unlink()
    assert tools.tool("ptxas") == str(other / "ptxas")


def test_what_ptxas_refuses_is_told_in_its_words(monkeypatch):
    monkeypatch.setattr("sparsekern.study.codegen._ptx", lambda *_: "no PTX")
    with pytest.raises(RuntimeError, match="ptxas failed: .*kernel.ptx"):
        sass(make_spmm, PLAIN)


def test_code_is_made_for_the_architecture_that_is_asked_for():
    assert "sm_80" in sass(make_spmm, PLAIN, arch=(8, 0)).splitlines()[0]


SAID = """ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function 'spmm' for 'sm_90'
ptxas info    : Function properties for spmm
    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers{smem}
"""


def test_resources_are_what_ptxas_says():
    assert read_resources(SAID.format(smem=", 2048 bytes smem")) == Resources(40, 2048, 16, 24, 32)
    assert read_resources(SAID.format(smem="")).shared_bytes == 0
    with pytest.raises(ValueError, match="it said: 'nothing'"):
        read_resources("nothing")


OF = {
    "LDG.E.128 R4, desc[UR8][R8.64]": "global loads",
    "STG.E desc[UR4][R2.64], R5": "global stores",
    "LDGSTS.E [R5], desc[UR4][R2.64]": "asynchronous copies",
    "LDS.128 R4, [R8]": "shared loads",
    "STS [R8], R4": "shared stores",
    "STL [R1], R4": "local stores",
    "ULDC.64 UR8, c[0x0][0x208]": "constant loads",
    "FFMA R4, R5, R6.reuse, R4": "multiply-adds",
    "FADD R4, R5, R6": "float arithmetic",
    "IMAD R5, R5, UR6, RZ": "integer multiplications",
    "IMAD.WIDE.U32 R4, R4, UR6, R18": "integer multiplications",
    "IMAD R5, R5.reuse, 0x24, RZ": "integer multiplications",
    "UIMAD UR4, UR5, UR6, URZ": "integer multiplications",
    "IMAD R18, R18.reuse, 0x20, R3": "scaled additions",
    "IMAD.WIDE R4, R0, 0x8, R6": "scaled additions",
    "LEA.HI.X R9, R4, R9, R5, 0x2, P1": "scaled additions",
    "ULEA UR4, UR5, UR4, 0x18": "scaled additions",
    "IMAD.SHL.U32 R29, R12, 0x20, RZ": "shifts",
    "USHF.R.S32.HI UR4, URZ, 0x1f, UR5": "shifts",
    "IMAD.MOV.U32 R2, RZ, RZ, RZ": "moves",
    "IMAD.U32 R2, RZ, RZ, UR4": "moves",
    "HFMA2.MMA R121, -RZ, RZ, 0, 0": "moves",
    "HFMA2 R4, R5, R6, R7": "multiply-adds",
    "UMOV UR4, 0xffffffff": "moves",
    "IMAD.IADD R15, R5, 0x1, R15": "integer arithmetic",
    "IMAD.X R22, R21, 0x1, ~R31, P1": "integer arithmetic",
    "IADD3 R10, P1, R20, 0x1f, RZ": "integer arithmetic",
    "ISETP.GE.U32.AND P0, PT, R4, UR5, PT": "integer arithmetic",
    "SHFL.BFLY PT, R4, R5, 0x4, 0x1f": "shuffles",
    "VOTEU.ANY UR4, UPT, P0": "votes",
    "BAR.SYNC.DEFER_BLOCKING 0x0": "barriers",
    "WARPSYNC R4": "barriers",
    "BSSY B0, `(.L_x_0)": "branches",
    "NOP": "other",
}


@pytest.mark.parametrize("text", OF)
def test_an_instruction_has_the_class_of_what_it_does(text):
    assert class_of(text) == OF[text]


def test_every_class_but_one_has_an_example():
    assert set(CLASSES) - set(OF.values()) == {"local loads", "other memory"}


def test_every_instruction_of_the_ladders_ends_has_a_class():
    for variant in (LADDERS["spmm"][-1][1], SAMPLED):
        text = code(variant)
        assert sum(classes(text).values()) == len(instructions(text))
        assert {i.opcode for i in instructions(text) if class_of(i.text) == "other"} <= {"NOP"}


LISTING = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E R2, [R4.64] ;
.L_x_0:
        /*0020*/                   FFMA R2, R2, R3, R2 ;
        /*0030*/              @!P0 BRA `(.L_x_0) ;
        /*0040*/                   BRA.DIV UR4, `(.L_x_3) ;
.L_x_2:
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_3:
        /*0070*/                   SHFL.BFLY PT, R4, R5, 0x4, 0x1f ;
        /*0080*/                   BRA `(.L_x_2) ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
        /*00a0*/                   NOP;
"""


def test_padding_and_the_trap_after_a_kernel_are_no_instructions():
    assert [i.address for i in instructions(LISTING)] == list(range(0, 0x90, 0x10))


def test_an_inner_loop_is_found_and_the_loop_around_it_is_not():
    (inner,) = loops(LISTING)
    assert [i.opcode for i in instructions(inner)] == ["FFMA", "BRA"]


def test_code_moved_out_of_line_belongs_to_the_loop_that_it_serves():
    without_inner = LISTING.replace("              @!P0 BRA `(.L_x_0) ;", "                   NOP ;")
    (loop,) = loops(without_inner)
    assert [i.address for i in instructions(loop)] == [0x10, 0x20, 0x30, 0x40, 0x50, 0x70, 0x80]


def test_a_way_back_that_enters_past_the_target_is_no_loop():
    assert loops(LISTING.replace("@!P0 BRA", " @P0 NOP").replace("@P1 BRA", "@P1 NOP")) == []


def test_widths_are_counted_with_their_modifiers():
    assert widths(LISTING) == Counter({"LDG.E": 1})
