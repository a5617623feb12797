"""One pass over a model without weights: what its layers want of attention, and what every module calls.

It runs on the device meta, so that a model that cannot be served is found before its weights are read. Records; what it
means is decided in `specserve_transformers.refusals` and where modules are replaced.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from specserve.api import ModelError
from specserve_transformers import masks
from specserve_transformers.functions import kind_of, name_of
from specserve_transformers.interface import ATTENTION, EXPERTS, NAME
from specserve_transformers.row_safe import unsafe

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn
    from transformers import PreTrainedModel

ROWS = 5
"""Tokens of the pass: of a number that is not a size of any layer's."""


class LayerCall(NamedTuple):
    """A call of attention, by the module that made it."""

    path: str
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    scale: float
    window: int | None
    settings: dict[str, Any]
    mask: object
    rows: tuple[int, int]
    """Of queries and of keys."""


class ModuleCall(NamedTuple):
    """args, kwargs: of its forward; out: what it gave."""

    path: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any = None


@dataclass(slots=True)
class Probe:
    """What was recorded. `functions`: by module, the functions that it calls itself, and of what kind they are."""

    layers: list[LayerCall] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    functions: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    experts: list[str] = field(default_factory=list)
    ids: Tensor | None = None
    positions: Tensor | None = None
    out: Any = None
    """The model's answer."""
    stack: list[str] = field(default_factory=lambda: [""])
    order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By module, the functions and children that it calls, in their order."""
    products: dict[str, list[tuple[tuple[Any, ...], Any]]] = field(default_factory=lambda: defaultdict(list))
    """By module, what it multiplies element by element: arguments and output."""

    def calls_of(self, path: str) -> list[ModuleCall]:
        return [call for call in self.calls if call.path == path]


class Watch(TorchFunctionMode):
    """Records every function that a module calls."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        path, name = self.probe.stack[-1], name_of(func)
        kind = kind_of(func, args, kwargs)
        if kind != "exact" and (reason := unsafe(func, args, kwargs)):
            kind = f"refused: {reason}"
        if RANK[kind[:7]] >= RANK[self.probe.functions[path].get(name, "exact")[:7]]:
            self.probe.functions[path][name] = kind
        out = func(*args, **kwargs)
        if name == "mul":
            self.probe.products[path].append((args, out))
        if name != "get":
            self.probe.order[path].append(name)
        return out


RANK = {"exact": 0, "element": 1, "rows": 1, "product": 1, "refused": 2}
"""Of the kinds of calls of one function, by their first letters, the one that counts."""


def probe(model: PreTrainedModel, where: str, mask: Tensor | None = None) -> Probe:
    """mask: of padding, where transformers is to make masks. Raises ModelError where its code cannot run so."""
    found = Probe()
    found.ids = torch.zeros((1, ROWS), dtype=torch.int64, device="meta")
    found.positions = torch.zeros((1, ROWS), dtype=torch.int64, device="meta")
    handles = []
    for path, module in model.named_modules():
        module.__dict__[ATTENTION] = recorder(found, path)
        module.__dict__[EXPERTS] = experts_recorder(found, path)
        if path:
            handles += watch(found, path, module)
    rotations = with_plain_rotations(model)
    try:
        with torch.inference_mode(), Watch(found):
            found.out = model(
                input_ids=found.ids,
                attention_mask=mask,
                position_ids=found.positions,
                use_cache=False,
                logits_to_keep=0,
            )
    except Exception as error:
        last = found.stack[-1]
        module = type(model.get_submodule(last)).__name__
        raise ModelError(
            f"{where}: architecture {type(model).__name__} is not served by transformers here: its module "
            f"{last or 'itself'} ({module}) does not run without the keys of earlier steps, or depends on numbers: "
            f"{type(error).__name__}: {str(error)[:300]}. Serve another model, or this one with transformers."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for module, kinds in rotations:
            module.rope_type = kinds
        for module in model.modules():
            del module.__dict__[ATTENTION], module.__dict__[EXPERTS]
    return found


def probe_masks(model: PreTrainedModel, where: str) -> list[LayerCall]:
    """The calls of attention in a pass with masks."""
    masks.register()
    found = (getattr(each, "config", None) for each in model.modules())
    configs: Any = {id(each): each for each in found if each is not None}.values()
    for config in configs:
        config._attn_implementation_internal = masks.NAME
    try:
        return probe(model, where, torch.ones((1, ROWS), dtype=torch.int64, device="meta")).layers
    finally:
        for config in configs:
            config._attn_implementation_internal = NAME


def watch(found: Probe, path: str, module: nn.Module) -> list[Any]:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.order[found.stack[-1]].append(path)
        found.stack.append(path)
        found.calls.append(ModuleCall(path, args, kwargs))

    def after(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        found.stack.pop()
        index = next(i for i in reversed(range(len(found.calls))) if found.calls[i].path == path)
        found.calls[index] = found.calls[index]._replace(out=out)

    return [
        module.register_forward_pre_hook(before, with_kwargs=True),
        module.register_forward_hook(after, with_kwargs=True),
    ]


def with_plain_rotations(model: nn.Module) -> list[tuple[Any, Any]]:
    """Rotations whose frequencies follow from the positions' numbers would read them; what they gave it back to."""
    found: list[tuple[Any, Any]] = []
    for module in model.modules():
        kinds = module.__dict__.get("rope_type")
        if isinstance(kinds, str):
            found.append((module, kinds))
            module.rope_type = "default"  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            found.append((module, kinds))
            module.rope_type = dict.fromkeys(kinds, "default")  # type: ignore[assignment]
    return found


def recorder(found: Probe, path: str) -> Callable[..., Tensor]:
    def record(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: object, settings: dict[str, Any]) -> Tensor:
        scale = settings.get("scaling")
        found.layers.append(
            LayerCall(
                path,
                q.shape[1],
                k.shape[1],
                q.shape[3],
                v.shape[3],
                q.shape[3] ** -0.5 if scale is None else float(scale),
                settings.get("sliding_window"),
                {**settings, "is_causal": settings.get("is_causal", getattr(module, "is_causal", True))},
                mask,
                (q.shape[2], k.shape[2]),
            )
        )
        return q.new_empty((1, q.shape[2], q.shape[1], v.shape[3]))

    return record


def experts_recorder(found: Probe, path: str) -> Callable[..., Tensor]:
    def record(module: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        found.experts.append(path)
        return torch.empty_like(hidden)

    return record
