"""Gated delta nets against transformers' own layer, on whole texts; and their bits in chunks, trees and any company."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

from specserve.batch.span_states import SpanStates
from specserve.batch.state_runs import StateRun
from specserve.models.gated_delta_net import GatedDeltaNetConfig
from specserve.protocols import LayerStates

HIDDEN = 48
SHAPES = {
    "equal heads": {"key_heads": 2, "value_heads": 2, "key_dim": 16, "value_dim": 16, "taps": 4},
    "more value heads": {"key_heads": 2, "value_heads": 6, "key_dim": 16, "value_dim": 8, "taps": 3},
    "one head": {"key_heads": 1, "value_heads": 1, "key_dim": 8, "value_dim": 24, "taps": 2},
}


def layer_of(shape, seed=0):
    """transformers' layer with random weights, in float32."""
    config = Qwen3_5TextConfig(
        hidden_size=HIDDEN,
        linear_conv_kernel_dim=shape["taps"],
        linear_key_head_dim=shape["key_dim"],
        linear_value_head_dim=shape["value_dim"],
        linear_num_key_heads=shape["key_heads"],
        linear_num_value_heads=shape["value_heads"],
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    torch.manual_seed(seed)
    layer = Qwen3_5GatedDeltaNet(config, 0).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / (HIDDEN**0.5 if parameter.dim() == 2 else 2))
    return layer


def ours(layer, shape):
    config = GatedDeltaNetConfig(**shape, norm_eps=1e-5)
    return config.make({name: layer.state_dict()[name.split(".", 1)[1]] for name in config.tensors(HIDDEN)})


def rows_of(layer, x):
    """What the layer's mixer reads: [T, n]."""
    maps = layer.in_proj_qkv, layer.in_proj_b, layer.in_proj_a, layer.in_proj_z
    return torch.cat([each(x) for each in maps], -1)


def memory(mixer, dtype=torch.float32, nodes=8):
    trails = torch.zeros(6, nodes, mixer.trail_width, dtype=dtype)
    return LayerStates(torch.zeros(6, mixer.state_size), trails, torch.empty(6, nodes, mixer.update_size))


def run_of(position, source, target, known, *, first_row=0, followed=(), parents=(), saved=()):
    return StateRun(SpanStates(position, source, followed, target, saved), first_row, known, parents)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_outputs_are_those_of_transformers(shape):
    layer, x = layer_of(shape), torch.randn(1, 70, HIDDEN)
    mixer = ours(layer, shape)
    mixed = mixer.mix(rows_of(layer, x[0]), memory(mixer), [run_of(0, 0, 1, 70)])
    torch.testing.assert_close(layer.out_proj(mixed), layer(x)[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_chunks_and_neighbours_have_the_bits_of_the_whole_text(dtype):
    shape = SHAPES["more value heads"]
    layer = layer_of(shape)
    mixer, rows = ours(layer, shape), rows_of(layer, torch.randn(40, HIDDEN)).to(dtype)
    whole = mixer.mix(rows, memory(mixer, dtype), [run_of(0, 0, 1, 40)])
    parts, states, position, source = [], memory(mixer, dtype), 0, 0
    for length in (1, 5, 1, 16, 17):
        target = 2 if source == 1 else 1
        beside = rows[:3]
        given = torch.cat((beside, rows[position : position + length]))
        runs = [run_of(0, 0, 3, 3), run_of(position, source, target, length, first_row=3)]
        mixed = mixer.mix(given, states, runs)
        again = mixer.mix(given, states, runs)  # a step may be computed again
        assert torch.equal(mixed, again)
        assert torch.equal(mixed[:3], whole[:3])
        parts.append(mixed[3:])
        position, source = position + length, target
    assert torch.equal(torch.cat(parts), whole)
    assert not states.states[0].any()


@torch.inference_mode()
def test_each_branch_of_a_tree_has_the_bits_of_its_own_path_and_is_followed_by_it():
    shape = SHAPES["equal heads"]
    layer = layer_of(shape)
    mixer, rows = ours(layer, shape), rows_of(layer, torch.randn(12, HIDDEN))
    parents = (-1, 0, 0, -1, 3, 1)
    paths = [(0,), (0, 1), (0, 2), (3,), (3, 4), (0, 1, 5)]
    states = memory(mixer)
    mixed = mixer.mix(rows[:10], states, [run_of(0, 0, 1, 4, parents=parents)])
    for node, path in enumerate(paths):
        text = torch.cat((rows[:4], rows[[4 + each for each in path]], rows[10:]))
        alone = mixer.mix(text, memory(mixer), [run_of(0, 0, 1, len(text))])
        assert torch.equal(mixed[4 + node], alone[3 + len(path)])
        behind = mixer.mix(rows[10:], states, [run_of(4, 1, 2, 2, followed=path)])
        assert torch.equal(behind, alone[-2:])


@torch.inference_mode()
def test_states_are_saved_where_they_are_wanted():
    shape = SHAPES["equal heads"]
    layer = layer_of(shape)
    mixer, rows = ours(layer, shape), rows_of(layer, torch.randn(9, HIDDEN))
    states = memory(mixer)
    whole = mixer.mix(rows, states, [run_of(0, 0, 1, 9, saved=((3, 4), (9, 5)))])
    assert torch.equal(states.states[5], states.states[1])
    behind = mixer.mix(rows[3:], states, [run_of(3, 4, 2, 6)])
    assert torch.equal(behind, whole[3:])
