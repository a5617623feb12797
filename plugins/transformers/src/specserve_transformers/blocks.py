"""Layers that are wired as the engine's own: norms, attention and a gated MLP around two residual sums.

Found in the probe by the tensors that modules hand to each other and the functions that lie between. Whether they
compute what such a layer computes is tried once the weights are there: see `specserve_transformers.own_decoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from specserve_transformers.functions import words
from specserve_transformers.refusals import layer_list_of
from specserve_transformers.stages import first_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from transformers import PreTrainedModel

    from specserve_transformers.probe import ModuleCall, Probe

WIRING = words("""
    get getitem view reshape transpose permute unsqueeze squeeze flatten unflatten contiguous chunk split splitwithsizes
    unbind cat narrow dropout to typeas float dtype device size dim len add radd iadd
""")
"""What such a layer may call beside its modules; it changes no number."""
ROTATING = words("mul rmul imul neg sub")
"""What its attention may call, too. That it is a rotation is seen in the numbers."""
BEFORE = WIRING | words("embedding mul")
"""What the base model and its embedding may call before the layers."""


class Block(NamedTuple):
    """The modules of one layer, by their paths. `qkv`: one map, or one for each of the three. `gate_up`: in the order
    of their calls."""

    qkv: tuple[str, ...]
    o: str
    mlp: str
    gate_up: tuple[str, ...]
    down: str
    q_norm: str | None
    k_norm: str | None
    norms: Mapping[str, str]
    """By their places, which have the names that `specserve.api.models.DecoderLayer` has for them."""

    def names(self, layer: int) -> dict[tuple[str, ...], str]:
        """What the engine calls the products, by the maps that each is made of."""
        of_maps = {"qkv_proj": self.qkv, "o_proj": (self.o,), "gate_up_proj": self.gate_up, "down_proj": (self.down,)}
        return {maps: f"layers.{layer}.{name}" for name, maps in of_maps.items()}


class Parts(NamedTuple):
    """The calls of a layer, in their order. `inside`: of the MLP and its modules."""

    qkv: list[ModuleCall]
    o: ModuleCall
    gate_up: list[ModuleCall]
    down: ModuleCall
    inside: list[ModuleCall]
    around: list[ModuleCall]


def blocks_of(model: PreTrainedModel, found: Probe) -> tuple[Block, ...]:
    """Of every layer; empty where one is no such layer, or where more than an embedding comes before them."""
    layers = layer_list_of(model)
    bases = [path for path, _ in model.named_modules() if path and layers.startswith(f"{path}.")]
    embedding = next((path for path, each in model.named_modules() if each is model.get_input_embeddings()), "")
    if not all(calls_only(found, path, BEFORE) for path in (*bases, embedding)):
        return ()
    blocks = [block_of(model, found, f"{layers}.{number}", call.path) for number, call in enumerate(found.layers)]
    return tuple(block for block in blocks if block is not None) if all(blocks) else ()


def block_of(model: PreTrainedModel, found: Probe, layer: str, attention: str) -> Block | None:
    parts = parts_of(model, found, layer, attention)
    if parts is None:
        return None
    containers = [layer, *(call.path for call in parts.around if any(model.get_submodule(call.path).children()))]
    if not all(calls_only(found, path, WIRING | ROTATING if path == attention else WIRING) for path in containers):
        return None
    maps = [*parts.qkv, parts.o]
    leaves = [call for call in parts.around if call not in maps and call.path not in containers]
    norms = norms_of(leaves, first_tensor(found.calls_of(layer)[0]), parts)
    if norms is None:
        return None
    of_heads = [call.path for call in leaves if call.path not in norms.values()]
    if len(of_heads) not in (0, 2):
        return None
    q_norm, k_norm = of_heads or (None, None)
    qkv, gate_up = (tuple(call.path for call in calls) for calls in (parts.qkv, parts.gate_up))
    return Block(qkv, parts.o.path, parts.inside[0].path, gate_up, parts.down.path, q_norm, k_norm, norms)


def parts_of(model: PreTrainedModel, found: Probe, layer: str, attention: str) -> Parts | None:
    """None where its linear maps are not those of attention and a gated MLP."""
    calls = [call for call in found.calls if call.path.startswith(f"{layer}.")]
    linear = [call for call in calls if type(model.get_submodule(call.path)) is nn.Linear]
    of_attention = [call for call in linear if call.path.startswith(f"{attention}.")]
    of_mlp = [call for call in linear if call not in of_attention]
    if len(of_attention) not in (2, 4) or len(of_mlp) != len(("gate", "up", "down")):
        return None
    *qkv, o = of_attention
    *gate_up, down = of_mlp
    mlp = down.path.rpartition(".")[0]
    inside = [call for call in calls if call.path == mlp or call.path.startswith(f"{mlp}.")]
    around = [call for call in calls if call not in inside]
    once = len({call.path for call in calls}) == len(calls)
    if inside[0].path != mlp or not once or not one_input(qkv) or not one_input(gate_up):
        return None
    return Parts(qkv, o, gate_up, down, inside, around)


def norms_of(leaves: list[ModuleCall], x: Tensor, parts: Parts) -> dict[str, str] | None:
    """By its place, each module that has one, by the tensors around it. x: the layer's input. None: a module takes no
    tensor alone, or two have one place."""
    norms: dict[str, str] = {}
    for call in leaves:
        if len(call.args) != 1 or call.kwargs:
            return None
        places = {
            "input_norm": call.args[0] is x and call.out is parts.qkv[0].args[0],
            "attention_output_norm": call.args[0] is parts.o.out,
            "mlp_norm": call.out is parts.gate_up[0].args[0],
            "mlp_output_norm": call.args[0] is parts.inside[0].out,
        }
        place = next((name for name, there in places.items() if there), None)
        if place in norms:
            return None
        if place is not None:
            norms[place] = call.path
    return norms


def one_input(calls: list[ModuleCall]) -> bool:
    return all(len(call.args) == 1 and not call.kwargs and call.args[0] is calls[0].args[0] for call in calls)


def calls_only(found: Probe, path: str, allowed: frozenset[str]) -> bool:
    """Whether a module itself calls nothing else: a bound, for one, could change numbers that no trial has."""
    return found.functions.get(path, {}).keys() <= allowed
