"""What cannot be served, found in the probe: refused with the architecture, the layer, the reason and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ModelError
from specserve_transformers.masks import Mask, UnservedMask

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from transformers import PreTrainedModel

    from specserve_transformers.probe import LayerCall, Probe

ANOTHER = "Serve another model, or this one with transformers."


class Geometry(NamedTuple):
    """What the engine needs of a model's layers. `paths`: by layer, the module that calls attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    windows: tuple[int | None, ...]
    paths: tuple[str, ...]
    soft_caps: tuple[float | None, ...]
    sinks: tuple[str | None, ...]
    """By layer, the parameter that has a sink for every head."""


class Refusal:
    """Raises ModelErrors about one model. where: its config.json."""

    def __init__(self, where: str, architecture: str) -> None:
        self.start = f"{where}: architecture {architecture} is not served by transformers here"

    def raised(self, what: str, advice: str = ANOTHER) -> ModelError:
        return ModelError(f"{self.start}: {what}. {advice}")


def geometry_of(model: PreTrainedModel, found: Probe, masks: Sequence[LayerCall], length: int, where: str) -> Geometry:
    """found: of a pass without masks; masks: the calls of one with masks. length: the context to serve. Raises
    ModelError."""
    refusal = Refusal(where, type(model).__name__)
    check_layers(model, found, refusal)
    for number, call in enumerate(found.layers):
        if reason := unserved(call, f"layer {number} ({call.path})"):
            raise refusal.raised(reason)
    windows = tuple(window_of(number, call, length, refusal) for number, call in enumerate(masks))
    first = found.layers[0]
    for number, call in enumerate(found.layers):
        same = (call.heads, call.kv_heads, call.qk_dim, call.v_dim, call.scale)
        if same != (first.heads, first.kv_heads, first.qk_dim, first.v_dim, first.scale):
            raise refusal.raised(
                f"layer {number} ({call.path}) has {call.heads} heads, {call.kv_heads} of keys, of {call.qk_dim} and "
                f"{call.v_dim} numbers, and scale {call.scale:.6g}; layer 0 has {first.heads}, {first.kv_heads}, "
                f"{first.qk_dim}, {first.v_dim} and {first.scale:.6g}. The cache holds layers of one shape alone"
            )
    paths = tuple(call.path for call in found.layers)
    caps = tuple(None if (cap := call.settings.get("softcap")) is None else float(cap) for call in found.layers)
    sinks = tuple(sinks_of(model, number, call, refusal) for number, call in enumerate(found.layers))
    return Geometry(first.heads, first.kv_heads, first.qk_dim, first.v_dim, first.scale, windows, paths, caps, sinks)


def sinks_of(model: PreTrainedModel, number: int, call: LayerCall, refusal: Refusal) -> str | None:
    """The parameter that a layer gave attention as its sinks."""
    given = call.settings.get("s_aux")
    if given is None:
        return None
    path = next((name for name, parameter in model.named_parameters() if parameter is given), None)
    if path is None or tuple(given.shape) != (call.heads,):
        raise refusal.raised(
            f"layer {number} ({call.path}) has sinks (s_aux) of shape {list(given.shape)} that it computes; only a "
            f"parameter of {call.heads} numbers, one for each head, is handed on to attention"
        )
    return path


def check_layers(model: PreTrainedModel, found: Probe, refusal: Refusal) -> None:
    """Every layer calls attention once, in its order."""
    count = model.config.get_text_config().num_hidden_layers
    paths = [call.path for call in found.layers]
    for path in paths:
        if paths.count(path) > 1:
            raise refusal.raised(
                f"{path} is computed {paths.count(path)} times in a pass, with keys of its own each time"
            )
    layers = layer_list_of(model)
    if not layers:
        raise refusal.raised(f"its class has no list of {count} layers")
    for number in range(count):
        if not any(path.startswith(f"{layers}.{number}.") or path == f"{layers}.{number}" for path in paths):
            children = ", ".join(
                sorted({type(each).__name__ for _, each in model.get_submodule(f"{layers}.{number}").named_children()})
            )
            raise refusal.raised(
                f"layer {number} ({children}) calls no attention: it keeps a state of another kind, as recurrent "
                "layers and short convolutions do"
            )
    if len(paths) != count:
        raise refusal.raised(f"{len(paths)} modules call attention in {count} layers")
    reused = [path for path, calls in shared_keys(found).items() if calls]
    if reused:
        raise refusal.raised(f"{reused[0]} reads keys and values of another layer")


def layer_list_of(model: PreTrainedModel) -> str:
    """The path of its list of layers; empty where there is none."""
    count = model.config.get_text_config().num_hidden_layers
    return next((name for name, module in model.named_modules() if is_stack(module, count)), "")


def is_stack(module: object, count: int) -> bool:
    from torch.nn import ModuleList

    return isinstance(module, ModuleList) and len(module) == count


def shared_keys(found: Probe) -> dict[str, list[str]]:
    """By module, arguments in which keys and values of layers are handed on."""
    return {
        call.path: [name for name, value in call.kwargs.items() if "shared_kv" in name and value]
        for call in found.calls
        if any("shared_kv" in name and value for name, value in call.kwargs.items())
    }


def unserved(call: LayerCall, which: str) -> str:
    """Why a layer's attention is not served; empty where it is."""
    settings = call.settings
    if call.rows[0] != call.rows[1]:
        return f"{which} attends to {call.rows[1]} keys of {call.rows[0]} tokens"
    if call.mask is not None:
        return f"{which} has a mask of its own"
    if settings.get("is_causal") is False:
        return f"{which} is bidirectional"
    if call.heads % call.kv_heads:
        return f"{which} has {call.heads} heads over {call.kv_heads} of keys"
    if call.v_dim > call.qk_dim:
        return f"{which} has values of {call.v_dim} numbers and keys of {call.qk_dim}"
    if "position_bias" in settings and settings["position_bias"] is not None:
        return f"{which} adds a bias to its scores"
    return ""


def window_of(number: int, call: LayerCall, length: int, refusal: Refusal) -> int | None:
    """Of the mask, where the layer has one; it must agree with the window that the layer states."""
    stated = call.window if call.window is None or call.window < length else None
    if not isinstance(call.mask, Mask):
        return stated
    try:
        window = call.mask.window(length)
    except UnservedMask as error:
        raise refusal.raised(f"layer {number} ({call.path}) has {error}") from None
    if stated is not None and stated != window:
        raise refusal.raised(
            f"layer {number} ({call.path}) states a window of {stated}, and its mask shows {window} keys"
        )
    return window


def check_functions(found: Probe, replaced: Collection[str], where: str, architecture: str) -> None:
    """replaced: modules whose calls count no more. All others call only what can be made safe."""
    refusal = Refusal(where, architecture)
    for path, functions in found.functions.items():
        for name, kind in functions.items():
            if path not in replaced and kind.startswith("refused"):
                raise refusal.raised(f"its module {path or 'itself'} calls {name}: {kind.partition(': ')[2]}")
