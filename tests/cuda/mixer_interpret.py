"""The Triton kernels of layers without attention, interpreted. Run as a script, in a process of its own.

The interpreter rounds to bfloat16 by truncation (Triton 3.6): bits are compared in float32 and float16.
"""

from __future__ import annotations

import json
import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch

from triton_interpreter import mend_the_interpreter
from triton_runs import outcome

CPU = torch.device("cpu")


def kernels():
    from specserve_cuda.kernels.kernel_set import CudaKernels

    torch.manual_seed(0)
    return CudaKernels()


# --- short convolutions -------------------------------------------------------------------------------------------


def conv(taps, channels, biased):
    from specserve.models.short_conv import ShortConv

    return ShortConv(torch.randn(taps, channels), torch.randn(channels) if biased else None)


def tokens_before(own, before, *, padded=False):
    from specserve.batch.preceding import PrecedingTokens

    slots = torch.tensor(before, dtype=torch.int64).view(len(own), -1)
    return PrecedingTokens(torch.tensor(own), slots.clamp(min=0), slots >= 0, padded=padded)


def interpret_a_short_convolution_is_that_of_torch():
    """Of rows of one sequence, a first token, and a padding row that keeps nothing."""
    for dtype in (torch.float32, torch.float16):
        for taps, channels, biased in ((3, 40, False), (7, 600, True), (1, 16, False)):
            mixer = conv(taps, channels, biased)
            ours = kernels().prepare_mixer(mixer)
            rows, kept = torch.randn(4, 3 * channels).to(dtype), torch.randn(9, channels).to(dtype)
            before = [[7, 6, 5, 2, -1, -1], [3, 7, 6, 5, 2, -1], [-1] * 6, [-1] * 6]
            given = tokens_before([3, 4, 8, -1], [row[: taps - 1] for row in before], padded=True)
            expected_kept, got_kept = kept.clone(), kept.clone()
            expected, got = mixer.mix(rows, expected_kept, given), ours.mix(rows, got_kept, given)
            step = 2.0**-20 if dtype == torch.float32 else 2.0**-10
            torch.testing.assert_close(got[:3], expected[:3], rtol=2 * step, atol=4 * step)
            assert torch.equal(got_kept, expected_kept), "padding keeps nothing"


def interpret_a_short_convolution_of_a_row_is_its_own():
    mixer = kernels().prepare_mixer(conv(3, 40, True))
    rows, kept = torch.randn(5, 120), torch.randn(9, 40)
    given = [[3, 2], [4, 3], [5, 4], [4, 3], [7, 4]]
    own = [4, 5, 6, 7, 8]
    together, of_all = kept.clone(), kept.clone()
    whole = mixer.mix(rows, of_all, tokens_before(own, given))
    for row in range(5):
        alone = mixer.mix(rows[row : row + 1], together, tokens_before(own[row : row + 1], given[row : row + 1]))
        assert torch.equal(alone, whole[row : row + 1]), row
    assert torch.equal(together, of_all)


# --- gates ----------------------------------------------------------------------------------------------------------


def interpret_gates_are_those_of_torch():
    from specserve.kernels.torch_kernels import TorchKernels

    ours, reference = kernels(), TorchKernels()
    for dtype in (torch.float32, torch.float16):
        for size, num_gates in ((96, 96), (96, 6), (1300, 13), (64, 1)):
            x, gates = torch.randn(5, size).to(dtype), 3 * torch.randn(5, num_gates).to(dtype)
            got, expected = ours.gate(x, gates), reference.gate(x, gates)
            step = 2.0**-20 if dtype == torch.float32 else 2.0**-10
            torch.testing.assert_close(got, expected, rtol=2 * step, atol=step)
            assert torch.equal(ours.gate(x[3:4], gates[3:4]), got[3:4])


# --- gated delta nets -----------------------------------------------------------------------------------------------

TREE = (-1, 0, 0, 1, -1, 4, 2, 0)
NODES = 8


class World:
    """A layer with states of random numbers, and rows for its tokens."""

    def __init__(self, dtype=torch.float32, slots=9, **sizes):
        from specserve.models.gated_delta_net import GatedDeltaNet, GatedDeltaNetConfig
        from specserve.protocols import LayerStates

        given = {"key_heads": 2, "value_heads": 4, "key_dim": 12, "value_dim": 8, "taps": 4} | sizes
        config = GatedDeltaNetConfig(**given, norm_eps=1e-6)
        tensors = {name.split(".", 1)[1]: torch.randn(shape) for name, shape in config.tensors(0).items()}
        self.reference = GatedDeltaNet(config, tensors)
        self.ours = kernels().prepare_mixer(self.reference)
        self.width, self.dtype = config.trail_width(0) + config.value_heads * config.value_dim, dtype
        self.layer = LayerStates(
            0.1 * torch.randn(slots, config.state_size(0)),
            torch.randn(slots, NODES, config.trail_width(0)).to(dtype),
            torch.zeros(slots, NODES, 0),
        )
        self.layer.states[0] = 0

    def rows(self, count):
        return torch.randn(count, self.width).to(self.dtype)

    def copy(self):
        from specserve.protocols import LayerStates

        return LayerStates(*(tensor.clone() for tensor in self.layer))


def run_of(source, target, first_row, known, *, position=0, followed=(), saved=(), parents=()):
    from specserve.batch.mixer_inputs import StateRun
    from specserve.batch.span_states import SpanStates

    return StateRun(SpanStates(position, source, followed, target, saved), first_row, known, parents)


def some_runs():
    """A prompt that saves two states, a decode step behind accepted draft tokens, a tree, and a chain."""
    return [
        run_of(0, 1, 0, 6, saved=((3, 7), (6, 8))),
        run_of(2, 3, 6, 1, position=40, followed=(0, 2, 5)),
        run_of(4, 5, 7, 2, position=9, followed=(1,), parents=TREE),
    ]


def near(got, expected, dtype):
    step = 2.0**-17 if dtype == torch.float32 else 2.0**-8
    torch.testing.assert_close(got.float(), expected.float(), rtol=step, atol=4 * step)


def interpret_a_gated_delta_net_is_that_of_torch():
    """Outputs, states, windows and trails; other slots keep their bits."""
    shapes = ({}, {"key_heads": 1, "value_heads": 3, "key_dim": 5, "value_dim": 40, "taps": 2}, {"taps": 1})
    for dtype in (torch.float32, torch.float16):
        for sizes in shapes:
            world = World(dtype, **sizes)
            rows, expected_layer, got_layer = world.rows(17), world.copy(), world.copy()
            expected = world.reference.mix(rows, expected_layer, some_runs())
            got = world.ours.mix(rows, got_layer, some_runs())
            near(got, expected, dtype)
            near(got_layer.states, expected_layer.states, dtype)
            assert torch.equal(got_layer.trails, expected_layer.trails)
            for slot in (0, 2, 4, 6):
                assert torch.equal(got_layer.states[slot], world.layer.states[slot]), slot


def interpret_chunks_drafts_and_neighbours_change_no_bit():
    """One sequence of twelve tokens: at once; in chunks beside another request; as accepted draft tokens of a tree."""
    for dtype in (torch.float32, torch.float16):
        world = World(dtype)
        rows, other = world.rows(12), world.rows(5)
        whole_layer, layer = world.copy(), world.copy()
        whole = world.ours.mix(rows, whole_layer, [run_of(0, 1, 0, 12)])
        chunk = world.ours.mix(
            torch.cat((other, rows[:7])), layer, [run_of(5, 6, 0, 5, position=3), run_of(0, 1, 5, 7, saved=((4, 7),))]
        )
        assert torch.equal(chunk[5:], whole[:7])
        # row 7 is committed; rows 8 to 10 are drafted along 0, 2, 6 of a tree, beside nodes that are wrong
        path = {0: 8, 2: 9, 6: 10}
        nodes = [rows[path[node]] if node in path else world.rows(1)[0] for node in range(len(TREE))]
        drafted = world.ours.mix(torch.stack((rows[7], *nodes)), layer, [run_of(1, 2, 0, 1, position=7, parents=TREE)])
        assert torch.equal(drafted[0], whole[7])
        for node, row in path.items():
            assert torch.equal(drafted[1 + node], whole[row]), node
        last = world.ours.mix(rows[11:], layer, [run_of(2, 1, 0, 1, position=8, followed=(0, 2, 6))])
        assert torch.equal(last, whole[11:])
        assert torch.equal(layer.states[1], whole_layer.states[1])


def interpret_loaded_runs_have_the_bits_of_listed_ones():
    """In memory with room for more, whose rest is cleared or left by a larger step; padding rows change nothing."""
    from specserve.protocols import RunLimits

    world = World()
    loaded = kernels_of_graphs([world.ours], RunLimits(rows=24, requests=6, nodes=NODES, slots=9))
    rows, expected_layer = world.rows(24), world.copy()
    expected = world.ours.mix(rows[:17], expected_layer, some_runs())
    for before in ([], [run_of(6, 5, i, 1, parents=TREE[:4]) for i in (0, 5, 10, 15)]):
        layer = world.copy()
        assert loaded.load(before) == ""
        assert loaded.load(some_runs()) == ""
        got = world.ours.mix(rows, layer, loaded.runs)
        assert torch.equal(got[:17], expected)
        assert torch.equal(layer.states, expected_layer.states)
        assert torch.equal(layer.trails, expected_layer.trails)
    loaded.clear()
    layer = world.copy()
    world.ours.mix(rows, layer, loaded.runs)
    assert torch.equal(layer.states, world.layer.states)
    crowded = [run_of(1, 2, 0, 1, parents=(-1,) * NODES) for _ in range(99)]
    assert "branch more often" in loaded.load(crowded)


def kernels_of_graphs(mixers, limits):
    from specserve_cuda.kernels.delta_net_tables import LoadedTables, StateShape

    shape = StateShape(mixers[0].config.taps, limits.nodes, limits.slots * limits.nodes)
    return LoadedTables(shape, limits, CPU)


def interpret_a_decay_of_nearly_one_is_not_rounded_to_one():
    """Softplus of -18 is 1.5e-8, of which a rate of 16 makes a decay that float32 tells from 1."""
    world = World()
    world.ours.dt_bias, world.ours.rate = torch.full((4,), -18.0), torch.full((4,), -64.0)
    rows, layer = world.rows(1), world.copy()
    rows[:, : world.ours.trail_width] = 0
    layer.states[3, 384:] = 0  # the window: keys are 0, and nothing is added
    world.ours.mix(rows, layer, [run_of(3, 4, 0, 1)])
    decayed = layer.states[4, :384] / layer.states[3, :384]
    torch.testing.assert_close(decayed, torch.full((384,), 1 - 64 * 1.523e-8), rtol=1.2e-7, atol=0)


def names():
    return [name for name in globals() if name.startswith("interpret_")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    mend_the_interpreter()
    print(json.dumps({name: outcome(globals()[name]) for name in names()}))
