"""Which problems a sweep runs: DLMC layers, or generated ones, and how wide their dense operands are."""

import re
from dataclasses import dataclass

from sparsekern.datasets import Layer
from sparsekern.generators import uniform

TRANSFORMER_N = (256, 2048)  # SpMM: columns of B, tokens of a batch (Gale et al., SC20, section VII)
INNER = (64, 256, 1024)  # SDDMM: the inner dimensions of the recorded baselines
IMAGE = 112 * 112  # pixels that the first convolution of ResNet-50 makes of a 224 x 224 image
VECTOR = 4  # widths are rounded up to multiples of this, as in the paper


@dataclass(frozen=True)
class Uniform:
    """A matrix that `generators.uniform` makes, in the place of a `Layer`. Its name says how."""

    rows: int
    columns: int
    sparsity: float
    seed: int = 0

    @property
    def name(self):
        return f"uniform {self.rows}x{self.columns} {self.sparsity} seed {self.seed}"

    def load(self):
        return uniform(self.rows, self.columns, self.sparsity, self.seed)

    @classmethod
    def named(cls, name):
        """The one of that name. Raises ValueError for a name of another form."""
        found = re.fullmatch(r"uniform (\d+)x(\d+) (\d(?:\.\d+)?) seed (\d+)", name)
        if not found:
            raise ValueError(f"matrix is {name!r}; it must be such as {cls(8192, 2048, 0.8).name!r}")
        return cls(*map(int, found.group(1, 2)), float(found[3]), int(found[4]))


@dataclass(frozen=True)
class Case:
    """An operation on a matrix. width: columns of B for SpMM, the inner dimension for SDDMM."""

    op: str
    layer: Layer | Uniform
    width: int

    @property
    def matrix(self):
        return self.layer.name


def cases(op, layers, widths="paper"):
    """The `Case` list of an operation on layers. widths: a sequence of numbers, or "paper"."""
    return [Case(op, layer, width) for layer in layers for width in _widths(op, layer, widths)]


def _widths(op, layer, widths):
    if widths != "paper":
        return widths
    return paper_n(layer) if op == "spmm" else INNER


def paper_n(layer):
    """The columns of B in the paper, for a `Layer` of one of its two models.

    Raises ValueError for a layer of another model, or of a name that ResNet-50 has not.
    """
    if layer.model == "transformer":
        return TRANSFORMER_N
    if layer.model != "rn50":
        raise ValueError(f"{layer.name} is of model {layer.model!r}; --n paper knows transformer and rn50")
    return (-(-pixels(layer.name) // VECTOR) * VECTOR,)


def pixels(name):
    """Places at which a layer of ResNet-50 is applied to one image: height times width of its output.

    56 x 56 in block group 1, and half as high and wide in each group after it. The first layer of a group
    (`bottleneck_1_block_group_projection_block_group2` to 4) still sees what the group before made: the
    stride is in its second one.
    """
    stem = name.rsplit("/", 1)[-1].removesuffix(".smtx")
    if stem == "initial_conv":
        return IMAGE
    if stem == "final_dense":
        return 1
    group = re.search(r"(?:^|_)block_group([1-4])(?:_|$)", stem)
    if not group:
        raise ValueError(f"{name} is no layer of ResNet-50: its name has no block_group1 to block_group4")
    halved = int(group[1])
    if stem.startswith("bottleneck_1_block_group_projection") and halved > 1:
        halved -= 1
    return IMAGE // 4**halved
