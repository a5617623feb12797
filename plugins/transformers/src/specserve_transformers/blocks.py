"""Layers that are wired as the engine's own: norms, attention and a gated MLP around two residual sums.

Found in the probe by the tensors that modules hand to each other and the functions that lie between. Whether the numbers
are those of such a layer is tried once the weights are there: see `specserve_transformers.own_decoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from specserve_transformers.functions import words
from specserve_transformers.refusals import layer_list_of
from specserve_transformers.stages import first_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

    from specserve_transformers.probe import ModuleCall, Probe

WIRING = words("""
    get getitem view reshape transpose permute unsqueeze squeeze flatten unflatten contiguous chunk split splitwithsizes
    unbind cat narrow dropout to typeas float dtype device size dim len add radd iadd
""")
"""What such a layer may call beside its modules; it changes no number."""
ROTATING = words("mul rmul imul neg sub")
"""What its attention may call, too. That it is a rotation is seen in the numbers."""
NORMS = ("input_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm")


class Block(NamedTuple):
    """The modules of one layer, by their paths. `qkv`: one map, or one for each of the three; `gate_up`: in the order of
    their calls."""

    qkv: tuple[str, ...]
    o: str
    mlp: str
    gate_up: tuple[str, ...]
    down: str
    q_norm: str | None
    k_norm: str | None
    norms: Mapping[str, str]
    """By their places, those of NORMS."""

    def names(self, layer: int) -> dict[tuple[str, ...], str]:
        """What the engine calls the products, by the maps that each is made of."""
        of_maps = {"qkv_proj": self.qkv, "o_proj": (self.o,), "gate_up_proj": self.gate_up, "down_proj": (self.down,)}
        return {maps: f"layers.{layer}.{name}" for name, maps in of_maps.items()}


def blocks_of(model: PreTrainedModel, found: Probe) -> tuple[Block, ...]:
    """Of every layer; empty where one is no such layer."""
    layers = layer_list_of(model)
    blocks = [
        block_of(model, found, f"{layers}.{number}", attention.path) for number, attention in enumerate(found.layers)
    ]
    return tuple(block for block in blocks if block is not None) if all(blocks) else ()


def block_of(model: PreTrainedModel, found: Probe, layer: str, attention: str) -> Block | None:
    calls = [call for call in found.calls if call.path.startswith(f"{layer}.")]
    modules = {call.path: model.get_submodule(call.path) for call in calls}
    linear = [call for call in calls if type(modules[call.path]) is nn.Linear]
    *qkv, o = [call for call in linear if call.path.startswith(f"{attention}.")] or [None]
    of_mlp = [call for call in linear if not call.path.startswith(f"{attention}.")]
    if o is None or len(qkv) not in (1, 3) or len(of_mlp) != 3 or len(modules) != len(calls):
        return None
    *gate_up, down = of_mlp
    mlp = down.path.rpartition(".")[0]
    inside = [call for call in calls if call.path == mlp or call.path.startswith(f"{mlp}.")]
    if len(inside) != 5 or inside[0].path != mlp or not (one_input(qkv) and one_input(gate_up)):
        return None
    around = [call for call in calls if call not in inside]
    if not is_wiring(model, found, (layer, *(call.path for call in around)), attention):
        return None
    leaves = [call for call in around if call not in linear and not any(modules[call.path].children())]
    x = first_tensor(found.calls_of(layer)[0])
    norms: dict[str, str] = {}
    of_heads = []
    for call in leaves:
        given = call.args[0] if len(call.args) == 1 and not call.kwargs else None
        places = {
            "input_norm": given is x and call.out is qkv[0].args[0],
            "attention_output_norm": given is o.out,
            "mlp_norm": call.out is inside[0].args[0],
            "mlp_output_norm": given is inside[0].out,
        }
        place = next((name for name, there in places.items() if there), None)
        if given is None or place in norms:
            return None
        if place is None:
            of_heads.append(call.path)
        else:
            norms[place] = call.path
    if len(of_heads) not in (0, 2):
        return None
    q_norm, k_norm = of_heads or (None, None)
    paths = tuple(call.path for call in qkv)
    return Block(paths, o.path, mlp, tuple(call.path for call in gate_up), down.path, q_norm, k_norm, norms)


def one_input(calls: list[ModuleCall]) -> bool:
    return all(len(call.args) == 1 and not call.kwargs and call.args[0] is calls[0].args[0] for call in calls)


def is_wiring(model: PreTrainedModel, found: Probe, paths: tuple[str, ...], attention: str) -> bool:
    """Whether modules with children call no function that could change a number unseen, such as a bound of values."""
    containers = [path for path in paths if any(True for _ in model.get_submodule(path).children())]
    allowed = {path: WIRING | ROTATING if path == attention else WIRING for path in containers}
    return all(found.functions.get(path, {}).keys() <= allowed[path] for path in containers)
