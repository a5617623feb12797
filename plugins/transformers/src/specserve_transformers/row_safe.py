"""Calls torch's functions so that a row's bits do not depend on the rows beside it.

torch splits calls among threads and computes the last numbers of a call another way, and its products and sums go by
the number of rows. So what is element-wise is called on whole vectors of a bounded number, and what reduces or
multiplies rows on one row at a time. `specserve_transformers.functions` says which function is of which kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from specserve.api import ModelError
from specserve_transformers.functions import kind_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

VECTOR = 64
"""Numbers of two vector registers in half precision: torch computes what is left of a call's numbers one by one."""
SERIAL_ELEMENTS = 32768
"""A call of more numbers is split among threads."""


def in_vectors(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An element-wise function of any shape."""
    flat = x.reshape(-1)
    count = len(flat)
    if count == 0:
        return function(x)
    missing = -count % VECTOR
    if missing:
        flat = torch.cat((flat, flat.new_zeros(missing)))
    if len(flat) <= SERIAL_ELEMENTS:
        out = function(flat.contiguous())
    else:
        out = torch.cat([function(block) for block in torch.split(flat, SERIAL_ELEMENTS)])
    return out[:count].view(x.shape)


def by_rows(function: Callable[[Tensor], Any], x: Tensor) -> Any:
    """A function of [1, n], called on each row of x: [..., n]; of one tensor or a tuple of them."""
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) == 0:
        return function(x)
    outs = [function(row.clone()) for row in torch.split(rows, 1)]  # a clone begins where torch's memory is aligned
    if isinstance(outs[0], tuple):
        parts = [torch.cat(list(each)).view(*x.shape[:-1], *each[0].shape[1:]) for each in zip(*outs, strict=True)]
        return tuple(parts) if type(outs[0]) is tuple else type(outs[0])(parts)
    return torch.cat(outs).view(*x.shape[:-1], *outs[0].shape[1:])


def topk(x: Tensor, k: int, *_: Any, **kwargs: Any) -> Any:
    """Of equal numbers the first ones are chosen, whatever torch.topk would do."""
    values, indices = torch.sort(x, dim=-1, descending=kwargs.get("largest", True), stable=True)
    return torch.return_types.topk((values[..., :k].contiguous(), indices[..., :k].contiguous()))


class RowSafe(TorchFunctionMode):
    """While it is on, calls of functions that are not exact are made safe. Raises ModelError for others: the probe has
    found them before."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        kind = kind_of(func, args, kwargs)
        if kind == "exact":
            return func(*args, **kwargs)
        if reason := unsafe(func, args, kwargs):
            raise ModelError(f"transformers called {name_of(func)} in a way that is not row-wise: {reason}")
        return SAFE[kind](func, args, kwargs)


def unsafe(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why this call, which is not exact, cannot be made safe; empty where it can."""
    kind, name = kind_of(func, args, kwargs), name_of(func)
    if kind == "unknown":
        return "it is not known to compute rows alone"
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, torch.Tensor):
        return "" if not any(isinstance(each, torch.Tensor) for each in args) else "its first argument is no tensor"
    others = [each for each in (*args[1:], *kwargs.values()) if isinstance(each, torch.Tensor)]
    if kind == "elementwise" and others:
        return "it combines tensors"
    if kind == "rows" and name != "topk" and name not in WITHOUT_DIM and not last_dim_of(name, args, kwargs):
        return "it is over another dimension than the last"
    if kind == "product":
        weight = args[1] if len(args) > 1 else kwargs.get("weight", kwargs.get("other"))
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or not isinstance(args[0], torch.Tensor):
            return "it multiplies no rows by a matrix"
    return ""


def last_dim_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    place = 1 + DIM_AT.get(name, 0)
    default = -1 if name in ("sort", "argsort") else None
    dim = kwargs.get("dim", args[place] if len(args) > place else default)
    if isinstance(dim, (tuple, list)):
        dim = dim[0] if len(dim) == 1 else None
    return isinstance(dim, int) and dim in (-1, args[0].dim() - 1)


def elementwise(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x, others = first_of(args, kwargs)
    if not isinstance(x, torch.Tensor):
        numbers: Tensor = func(*args, **kwargs)
        return numbers
    in_place = getattr(func, "__name__", "").endswith("_") or kwargs.pop("inplace", False)
    plain = OUT_OF_PLACE.get(getattr(func, "__name__", ""), func)
    out = in_vectors(lambda flat: plain(flat, *others, **kwargs), x)
    return x.copy_(out) if in_place else out


def first_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    return (args[0], args[1:]) if args else (kwargs.pop("input", None), ())


OUT_OF_PLACE: dict[str, Callable[..., Any]] = {
    name: getattr(torch.Tensor, name[:-1])
    for name in ("sigmoid_", "tanh_", "exp_", "log_", "log1p_", "rsqrt_", "pow_", "sin_", "cos_")
}


def reduced(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, others = first_of(args, kwargs)
    name = name_of(func)
    if x.dim() == 0:
        return func(x, *others, **kwargs)
    if name == "topk":
        func = topk
    place = DIM_AT.get(name, 0)
    if name not in WITHOUT_DIM and len(others) > place:
        others = (*others[:place], -1, *others[place + 1 :])
    kwargs = {key: -1 if key == "dim" else value for key, value in kwargs.items()}
    return by_rows(lambda row: func(row, *others, **kwargs), x)


DIM_AT = {"topk": 1, "norm": 1, "vectornorm": 1, "normalize": 1}
"""Where the dimension stands among the arguments behind the tensor, where it is not the first."""
WITHOUT_DIM = ("rmsnorm", "layernorm")


def product(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x, others = first_of(args, kwargs)
    out: Tensor = by_rows(lambda row: func(row, *others, **kwargs), x)
    return out


SAFE: dict[str, Callable[..., Any]] = {"elementwise": elementwise, "rows": reduced, "product": product}


class SafeForward:
    """The forward of a module, whose own calls of torch are made safe."""

    def __init__(self, module: nn.Module) -> None:
        self.forward, self.mode = module.forward, RowSafe()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.mode:
            return self.forward(*args, **kwargs)
