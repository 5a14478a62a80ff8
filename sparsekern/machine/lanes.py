"""The vocabulary of a lane: what a kernel may say beyond Python, arrays and `numba.cuda`.

Each primitive becomes one or a few machine instructions through llvmlite; `machine.emulator` gives
the same names meaning on the CPU. A *fragment* is a tuple of values in registers, as long as the
vector access that made it. Widths are constants of the factory (names it closes over). Where a load takes
an array it also takes a *place* in one: see `place`.

All llvmlite code of the project is in this file: NVVM never merges scalar loads, so vector access
has to be spelled out, as one load of `<width x element>` at an address aligned to its size.
"""

from llvmlite import ir
from numba import cuda, int32, njit, types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue, TypingError
from numba.core.extending import intrinsic

PRIMITIVES = (
    "place",
    "load",
    "load_if",
    "load_or_leave",
    "store",
    "take",
    "put",
    "fma",
    "axpy",
    "dot",
    "scale",
)
FULL_MASK = 0xFFFFFFFF
WIDE = ir.IntType(64)
GLOBAL = 1  # the address space, in NVVM


def _fragment_of(array, width):
    """The type of a fragment of `width` elements of `array`, or of what a place is in."""
    if not isinstance(array, types.CPointer):
        _check_array(array)
    if not isinstance(width, types.IntegerLiteral):
        raise RequireLiteralValue("width must be a constant that the factory closes over")
    return types.UniTuple(array.dtype, width.literal_value)


def _check_array(array):
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"):
        raise TypingError(f"lanes access contiguous arrays of one dimension, not {array}")


def _check_fragment(fragment):
    if not isinstance(fragment, types.UniTuple):
        raise TypingError(f"a fragment is a tuple of values of one type, not {fragment}")


def _check_float32(*operands):
    if any(operand != types.float32 for operand in operands):
        raise TypingError(f"multiply-adds take float32 operands, not {operands}")


def _address(context, builder, array_type, array, index_type, index):
    if isinstance(array_type, types.CPointer):
        return _address_from(context, builder, array_type, array, index_type, index)
    data = context.make_array(array_type)(context, builder, array).data
    index = context.cast(builder, index, index_type, types.intp)
    return builder.gep(data, [index])


def _address_from(context, builder, place_type, place, index_type, index):
    """The place plus an int32 times the size of an element: one `IMAD.WIDE`."""
    size = context.get_abi_sizeof(context.get_value_type(place_type.dtype))
    index = builder.sext(context.cast(builder, index, index_type, types.int32), WIDE)
    address = builder.add(builder.ptrtoint(place, WIDE), builder.mul(index, ir.Constant(WIDE, size)))
    return builder.inttoptr(address, place.type.pointee.as_pointer(GLOBAL))


def _unpack(context, builder, fragment_type, vector):
    number = ir.IntType(32)
    items = [builder.extract_element(vector, ir.Constant(number, i)) for i in range(len(fragment_type))]
    return context.make_tuple(builder, fragment_type, items)


def _registers(context, builder, array_type, array, start_type, start, width):
    """Pointers to `width` elements of a local array from `start` on."""
    first = _address(context, builder, array_type, array, start_type, start)
    return [cgutils.gep_inbounds(builder, first, i) for i in range(width)]


def _load(context, builder, array_type, array, index_type, index, fragment_type):
    width = len(fragment_type)
    element = context.get_value_type(array_type.dtype)
    pointer = _address(context, builder, array_type, array, index_type, index)
    pointer = builder.bitcast(pointer, ir.VectorType(element, width).as_pointer(pointer.type.addrspace))
    size = context.get_abi_sizeof(element)
    return _unpack(context, builder, fragment_type, builder.load(pointer, align=size * width))


@intrinsic
def place(typingctx, array, position):
    """Where `array[position]` lies, to load from at int32 indices that count from there.

    array: in global memory (only the emulator can tell), or a place, from which `position` is an int32.
    The address stays in registers: left alone, the compiler would add up position and index for each load.
    """
    if not isinstance(array, types.CPointer):
        _check_array(array)
    result = types.CPointer(array.dtype)

    def codegen(context, builder, signature, args):
        address = builder.ptrtoint(_address(context, builder, array, args[0], position, args[1]), WIDE)
        keep = ir.InlineAsm(ir.FunctionType(WIDE, [WIDE]), "mov.b64 $0, $1;", "=l,l", side_effect=True)
        return builder.inttoptr(builder.call(keep, [address]), context.get_value_type(result))

    return result(array, position), codegen


@intrinsic
def load(typingctx, array, index, width):
    """`array[index : index + width]` as a fragment, in one access; `index` a multiple of `width`."""
    fragment = _fragment_of(array, width)

    def codegen(context, builder, signature, args):
        return _load(context, builder, array, args[0], index, args[1], fragment)

    return fragment(array, index, width), codegen


def _load_where(wanted, array, index, width, elsewhere):
    """Signature and code of a load where `wanted`; elsewhere: the LLVM constant that stands for it there."""
    fragment = _fragment_of(array, width)

    def codegen(context, builder, signature, args):
        before = builder.block
        with builder.if_then(context.cast(builder, args[0], wanted, types.boolean)):
            loaded = _load(context, builder, array, args[1], index, args[2], fragment)
            inside = builder.block
        result = builder.phi(loaded.type)
        result.add_incoming(ir.Constant(loaded.type, elsewhere), before)
        result.add_incoming(loaded, inside)
        return result

    return fragment(wanted, array, index, width), codegen


@intrinsic
def load_if(typingctx, wanted, array, index, width):
    """`load(array, index, width)` where `wanted`, a fragment of zeros elsewhere, without access."""
    return _load_where(wanted, array, index, width, None)


@intrinsic
def load_or_leave(typingctx, wanted, array, index, width):
    """`load_if`, but undefined where not `wanted`: for values that reach nothing stored. Saves the zeros."""
    return _load_where(wanted, array, index, width, ir.Undefined)


@intrinsic
def store(typingctx, array, index, fragment):
    """`array[index : index + len(fragment)] = fragment`, in one access; `index` a multiple of its length."""
    _check_array(array)
    _check_fragment(fragment)

    def codegen(context, builder, signature, args):
        element = context.get_value_type(array.dtype)
        vector = ir.Constant(ir.VectorType(element, len(fragment)), ir.Undefined)
        for i, item in enumerate(cgutils.unpack_tuple(builder, args[2])):
            item = context.cast(builder, item, fragment.dtype, array.dtype)
            vector = builder.insert_element(vector, item, ir.Constant(ir.IntType(32), i))
        pointer = _address(context, builder, array, args[0], index, args[1])
        size = context.get_abi_sizeof(element)
        builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=size * len(fragment))
        return context.get_dummy_value()

    return types.void(array, index, fragment), codegen


@intrinsic
def take(typingctx, registers, start, width):
    """`registers[start : start + width]` of a local array as a fragment; no memory access."""
    _check_array(registers)
    fragment = _fragment_of(registers, width)

    def codegen(context, builder, signature, args):
        elements = _registers(context, builder, registers, args[0], start, args[1], len(fragment))
        return context.make_tuple(builder, fragment, map(builder.load, elements))

    return fragment(registers, start, width), codegen


@intrinsic
def put(typingctx, fragment, registers, start):
    """`registers[start : start + len(fragment)] = fragment` of a local array; no memory access."""
    _check_fragment(fragment)
    _check_array(registers)

    def codegen(context, builder, signature, args):
        elements = _registers(context, builder, registers, args[1], start, args[2], len(fragment))
        for item, element in zip(cgutils.unpack_tuple(builder, args[0]), elements, strict=True):
            builder.store(context.cast(builder, item, fragment.dtype, registers.dtype), element)
        return context.get_dummy_value()

    return types.void(fragment, registers, start), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """`a * b + c`, rounded once."""
    _check_float32(a, b, c)

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(a, b, c), codegen


@intrinsic
def axpy(typingctx, a, x, y, start):
    """`y[start : start + len(x)] += a * x`, one fused multiply-add an element.

    a: float32. x: a fragment. y: a local array, whose elements stay in registers as long as `start`
    is a constant once loops are unrolled.
    """
    _check_fragment(x)
    _check_array(y)
    _check_float32(a, x.dtype, y.dtype)

    def codegen(context, builder, signature, args):
        elements = _registers(context, builder, y, args[2], start, args[3], len(x))
        for item, element in zip(cgutils.unpack_tuple(builder, args[1]), elements, strict=True):
            builder.store(builder.fma(args[0], item, builder.load(element)), element)
        return context.get_dummy_value()

    return types.void(a, x, y, start), codegen


@intrinsic
def dot(typingctx, x, y, sums, index):
    """`sums[index] += x . y`, one fused multiply-add an element, in order.

    x, y: fragments of one length. sums: a local array, whose elements stay in registers as long as
    `index` is a constant once loops are unrolled.
    """
    _check_fragment(x)
    _check_fragment(y)
    _check_array(sums)
    _check_float32(x.dtype, y.dtype, sums.dtype)
    if len(x) != len(y):
        raise TypingError(f"fragments of {len(x)} and {len(y)} elements have no product")

    def codegen(context, builder, signature, args):
        element = _address(context, builder, sums, args[2], index, args[3])
        total = builder.load(element)
        pairs = zip(*(cgutils.unpack_tuple(builder, fragment) for fragment in args[:2]), strict=True)
        for pair in pairs:
            total = builder.fma(*pair, total)
        builder.store(total, element)
        return context.get_dummy_value()

    return types.void(x, y, sums, index), codegen


@intrinsic
def scale(typingctx, fragment, factor):
    """Each int32 of `fragment` times `factor`, as int32: wraps around when it does not fit."""

    def codegen(context, builder, signature, args):
        factor32 = context.cast(builder, args[1], factor, types.int32)
        items = [builder.mul(item, factor32) for item in cgutils.unpack_tuple(builder, args[0])]
        return context.make_tuple(builder, fragment, items)

    return fragment(fragment, factor), codegen


@njit(inline="always")
def warp_max(value, subwarp):
    """Largest int32 `value` over the subwarps of a warp, by butterfly; every lane of the warp must call."""
    step = subwarp
    while step < 32:
        value = max(value, cuda.shfl_xor_sync(FULL_MASK, value, step))
        step *= 2
    return value


@njit(inline="always")
def warp_min(value, subwarp):
    """Smallest int32 `value` over the subwarps of a warp, as `warp_max`."""
    return int32(-warp_max(int32(-value), subwarp))  # or Numba would shuffle an int64, in two halves
