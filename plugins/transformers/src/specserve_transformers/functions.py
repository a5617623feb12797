"""What torch's functions do to the bits of a row, by name: nothing, or what makes a call safe.

A function is exact where every number of its output is a copy of an input, or rounded once from exact arithmetic: then
neither its place in a call nor the other numbers change its bits. All others are called by
`specserve_transformers.row_safe`, or refused where that cannot. Names are without underscores: `add_`, `__add__` and
`add` are one function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOVES = """
    get set getitem setitem delitem view reshape transpose permute t swapaxes movedim unsqueeze squeeze expand
    expandas repeat repeatinterleave flatten unflatten contiguous clone detach cat concat concatenate stack chunk
    split tensorsplit splitwithsizes unbind narrow select indexselect gather scatter index takealongdim take
    maskedfill maskedselect where flip roll pad embedding dropout identity copy to type typeas float double half
    bfloat16 int long bool cpu size dim numel elementsize stride isfloatingpoint len iter hash repr format storageoffset
    requiresgrad data ptr viewas reshapeas iscontiguous deepcopy new zeroslike oneslike emptylike fulllike newzeros
    newones newempty newfull newtensor fill zero onehot tril triu arange full zeros ones empty tensor astensor hsplit
    ndimension nelement iscomplex isinference device dtype broadcasttensors broadcastto meshgrid indexcopy indexfill
    scatterreduce atleast1d result type scalartensor diagonal getdevice rdiv setgradenabled
"""
EXACT_ARITHMETIC = """
    add radd iadd sub rsub isub mul rmul imul div truediv rtruediv idiv itruediv floordivide floordiv rfloordiv
    remainder mod neg positive abs sign relu relu6 clamp clip clampmin clampmax maximum minimum hardtanh sqrt
    square reciprocal floor ceil round trunc frac eq ne lt le gt ge logicaland logicalor logicalnot logicalxor and or
    xor invert rand ror bitwiseand bitwiseor bitwisenot isnan isinf isfinite max min amax amin argmax argmin any all
    multiply subtract divide negative rpow threshold lshift rshift bitwiseleftshift bitwiserightshift greater less
    greaterequal lessequal equal
"""
ELEMENTWISE = """
    exp expm1 exp2 log log1p log2 tanh sigmoid silu gelu softplus erf sin cos tan rsqrt pow mish logsigmoid elu celu
    selu leakyrelu hardswish hardsigmoid softsign tanhshrink atan sinh cosh
"""
"""Of one tensor; the other arguments are numbers."""
ALONG_ROWS = """
    softmax logsoftmax sum mean var std norm vectornorm logsumexp prod topk sort argsort normalize rmsnorm layernorm
    nansum
"""
"""Over the last dimension."""
PRODUCTS = "linear matmul mm rmatmul"
"""Of rows and a weight [n, m]."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXACT = words(MOVES) | words(EXACT_ARITHMETIC)
KINDS = {
    **dict.fromkeys(words(ELEMENTWISE), "elementwise"),
    **dict.fromkeys(words(ALONG_ROWS), "rows"),
    **dict.fromkeys(words(PRODUCTS), "product"),
    **dict.fromkeys(EXACT, "exact"),
}
SQUARES = (2, 2.0)


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", str(function)).replace("_", "")


def kind_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """One of the kinds above; `unknown` for any other function."""
    name = name_of(function)
    kind = KINDS.get(name, "unknown")
    if name == "pow" and len(args) > 1 and type(args[1]) in (int, float) and args[1] in SQUARES:
        return "exact"
    if kind in ("rows", "elementwise") and args and is_integral(args[0]):
        return "exact"
    if name in ("sum", "mean") and args and args[0].dim() and args[0].shape[-1] == 1 and last_dim(args, kwargs):
        return "exact"
    return kind


def is_integral(x: Any) -> bool:
    return hasattr(x, "dtype") and not (x.dtype.is_floating_point or x.dtype.is_complex)


def last_dim(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the call is over the last dimension alone, or says nothing of it."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(dim, (tuple, list)):
        dim = dim[0] if len(dim) == 1 else None
    return isinstance(dim, int) and dim in (-1, args[0].dim() - 1)
