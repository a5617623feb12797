"""Gated delta nets in the native kernels: near the core's, and a row has the bits of its own path alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from native_cases import ALIKE, each_dtype, each_set, machine, make_unusual, randn, same_bits

from specserve.api import LayerStates
from specserve.api.batch import SpanStates, StateRun
from specserve.api.models import GatedDeltaNet, GatedDeltaNetConfig, ShortConvConfig
from specserve_cpu.gated_delta_net import DeltaCalls, native_mixer

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import Mixer, RecurrentMixer

EQUAL = GatedDeltaNetConfig(key_heads=2, value_heads=2, key_dim=16, value_dim=16, taps=4, norm_eps=1e-5)
GROUPED = GatedDeltaNetConfig(key_heads=2, value_heads=6, key_dim=16, value_dim=8, taps=3, norm_eps=1e-5)
LARGE = GatedDeltaNetConfig(key_heads=1, value_heads=2, key_dim=128, value_dim=128, taps=4, norm_eps=1e-5)
ODD = GatedDeltaNetConfig(key_heads=1, value_heads=2, key_dim=7, value_dim=83, taps=2, norm_eps=1e-5)
STREAMED = GatedDeltaNetConfig(key_heads=2, value_heads=4, key_dim=128, value_dim=128, taps=4, norm_eps=1e-5)
CONFIGS = {
    "equal heads": EQUAL,
    "more value heads": GROUPED,
    "128 x 128": LARGE,
    "written past the caches": STREAMED,
    "odd sizes": ODD,
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
PARENTS = (-1, 0, 0, -1, 3, 1)
PATHS = ((0,), (0, 1), (0, 2), (3,), (3, 4), (0, 1, 5))


def core_mixer(config: GatedDeltaNetConfig) -> GatedDeltaNet:
    tensors = config.tensors(1).items()
    return config.make({name: randn(*shape, scale=0.5, seed=seed) for seed, (name, shape) in enumerate(tensors)})


def native(config: GatedDeltaNetConfig, isa: str, dtype: torch.dtype, threads: int = 1) -> RecurrentMixer:
    mixer = native_mixer(DeltaCalls(machine(isa, threads)), core_mixer(config), dtype)
    assert mixer is not None
    return mixer


def rows_for(mixer: RecurrentMixer, count: int, dtype: torch.dtype, seed: int = 9) -> Tensor:
    return randn(count, mixer.trail_width + mixer.out_features, dtype=dtype, seed=seed)


def memory(mixer: RecurrentMixer, dtype: torch.dtype, nodes: int = 8) -> LayerStates:
    trails = torch.zeros(6, nodes, mixer.trail_width, dtype=dtype)
    return LayerStates(torch.zeros(7, mixer.state_size), trails, torch.zeros(6, nodes, mixer.update_size))


class Run(NamedTuple):
    """Of one request, in the order of `SpanStates`."""

    position: int
    source: int
    target: int
    known: int
    first_row: int = 0
    followed: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    saved: tuple[tuple[int, int], ...] = ()


def mix(mixer: RecurrentMixer, rows: Tensor, states: LayerStates, *runs: Run) -> Tensor:
    return mixer.mix(rows, states, [state_run(run) for run in runs])


def state_run(run: Run) -> StateRun:
    places = SpanStates(run.position, run.source, run.followed, run.target, run.saved)
    return StateRun(places, run.first_row, run.known, run.parents)


def whole_text(mixer: RecurrentMixer, rows: Tensor) -> Tensor:
    return mix(mixer, rows, memory(mixer, rows.dtype), Run(0, 0, 1, len(rows)))


@each_set
@each_dtype
@each_config
def test_rows_states_and_trails_are_near_those_of_torch(
    isa: str, dtype: torch.dtype, config: GatedDeltaNetConfig
) -> None:
    core, mixer = core_mixer(config), native(config, isa, dtype)
    rows = rows_for(mixer, 24, dtype)
    run = Run(0, 0, 1, 18, parents=PARENTS, saved=((5, 4),))
    expected_states, states = memory(core, dtype), memory(mixer, dtype)
    expected, got = mix(core, rows, expected_states, run), mix(mixer, rows, states, run)
    # in bfloat16 a number near the middle of two may be rounded to the other one, and the recurrence carries that on
    allowed = {torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
    for each, core_has in ((got, expected), (states.states, expected_states.states)):
        assert (each.float() - core_has.float()).abs().max() <= allowed * core_has.float().abs().max()
    assert torch.equal(states.trails, expected_states.trails)
    window = config.value_heads * config.key_dim * config.value_dim
    assert torch.equal(states.states[:, window:], expected_states.states[:, window:])
    assert states.states[4].any()


@each_set
@each_dtype
@pytest.mark.parametrize("config", [GROUPED, ODD], ids=["more value heads", "odd sizes"])
def test_chunks_neighbours_and_threads_change_no_bit(isa: str, dtype: torch.dtype, config: GatedDeltaNetConfig) -> None:
    mixer = native(config, isa, dtype)
    rows = rows_for(mixer, 300, dtype)  # more than a call's memory is for: it computes pieces
    whole = whole_text(mixer, rows)
    states, position, source = memory(mixer, dtype), 0, 0
    for length in (1, 5, 1, 16, 140, 137):
        target, chunk = 2 if source == 1 else 1, rows[position : position + length]
        given = torch.cat((rows[:3], chunk, rows_for(mixer, 2, dtype, seed=1)))
        runs = (Run(0, 0, 3, 3), Run(position, source, target, length, 3), Run(0, 0, 4, 1, 3 + length, parents=(-1,)))
        mixed = mix(mixer, given, states, *runs)
        assert same_bits(mixed[:3], whole[:3])
        assert same_bits(mixed[3:-2], whole[position : position + length])
        again = mix(native(config, isa, dtype, threads=3), given, states, *runs)  # a step may be computed again
        assert same_bits(mixed, again)
        position, source = position + length, target
    assert not states.states[0].any()


@each_set
@each_dtype
@pytest.mark.parametrize("config", [EQUAL, ODD, STREAMED], ids=["equal heads", "odd sizes", "past the caches"])
def test_each_branch_of_a_tree_has_the_bits_of_its_own_path_and_is_followed_by_it(
    isa: str, dtype: torch.dtype, config: GatedDeltaNetConfig
) -> None:
    mixer = native(config, isa, dtype, threads=2)
    rows, states = rows_for(mixer, 12, dtype), memory(mixer, dtype)
    mixed = mix(mixer, rows[:10], states, Run(0, 0, 1, 4, parents=PARENTS))
    assert same_bits(mixed[:4], whole_text(mixer, rows[:4]))
    for node, path in enumerate(PATHS):
        text = torch.cat((rows[:4], rows[[4 + each for each in path]], rows[10:]))
        alone = whole_text(mixer, text)
        assert same_bits(mixed[4 + node], alone[3 + len(path)])
        saved = ((4 + len(path), 5),)
        behind = mix(mixer, rows[10:], states, Run(4, 1, 2, 2, followed=path, saved=saved))
        assert same_bits(behind, alone[-2:])
        assert same_bits(mix(mixer, rows[10:], states, Run(4 + len(path), 5, 3, 2)), alone[-2:])


@each_set
@each_dtype
@pytest.mark.parametrize("config", [EQUAL, ODD, STREAMED], ids=["equal heads", "odd sizes", "past the caches"])
def test_a_followed_path_may_be_saved_halfway_and_have_draft_tokens_behind_it(
    isa: str, dtype: torch.dtype, config: GatedDeltaNetConfig
) -> None:
    mixer = native(config, isa, dtype)
    rows, states = rows_for(mixer, 10, dtype), memory(mixer, dtype)
    mix(mixer, rows[:8], states, Run(0, 0, 1, 3, parents=(-1, 0, 1, 2, 3)))
    whole = whole_text(mixer, rows)
    for known in (0, 1):
        behind, first = rows[8 : 10 if known else 9], 1 - known
        run = Run(3, 1, 2, known, followed=(0, 1, 2, 3, 4), parents=(-1,), saved=((4, 4), (6, 5), (8, 6)))
        assert same_bits(mix(mixer, behind, states, run), whole[8 : 8 + len(behind)])
        for position, slot in run.saved:
            again = mix(mixer, rows[position:], states, Run(position, slot, 3, 10 - position))
            assert same_bits(again, whole[position:])
        last = mix(mixer, rows[9:], states, Run(8 + known, 2, 3, 1, followed=(0,) * first))
        assert same_bits(last, whole[9:])


@each_set
@each_dtype
def test_a_followed_path_may_be_longer_than_what_a_call_has_memory_for(isa: str, dtype: torch.dtype) -> None:
    mixer = native(EQUAL, isa, dtype)
    rows, states = rows_for(mixer, 303, dtype), memory(mixer, dtype, nodes=300)
    mix(mixer, rows[:301], states, Run(0, 0, 1, 1, parents=tuple(range(-1, 299))))
    behind = mix(mixer, rows[301:], states, Run(1, 1, 2, 2, followed=tuple(range(300)), saved=((130, 5),)))
    assert same_bits(behind, whole_text(mixer, rows)[301:])
    assert same_bits(mix(mixer, rows[130:], states, Run(130, 5, 3, 173))[-2:], behind)


@each_set
@each_dtype
def test_states_that_begin_within_a_cache_line_have_the_same_bits(isa: str, dtype: torch.dtype) -> None:
    mixer = native(STREAMED, isa, dtype)
    rows = rows_for(mixer, 12, dtype)
    run = Run(0, 0, 1, 6, parents=PARENTS, saved=((6, 3),))
    in_lines = memory(mixer, dtype)
    shifted = in_lines._replace(states=torch.zeros(in_lines.states.numel() + 1)[1:].view(in_lines.states.shape))
    assert same_bits(mix(mixer, rows, in_lines, run), mix(mixer, rows, shifted, run))
    assert same_bits(in_lines.states, shifted.states)
    assert same_bits(in_lines.states[3], in_lines.states[1])


@each_set
def test_states_are_saved_where_they_are_wanted(isa: str) -> None:
    mixer = native(EQUAL, isa, torch.float32)
    rows, states = rows_for(mixer, 150, torch.float32), memory(mixer, torch.float32)
    saved = ((2, 3), (130, 4), (150, 6))
    whole = mix(mixer, rows, states, Run(0, 0, 1, 150, saved=saved))
    assert same_bits(states.states[6], states.states[1])
    for position, slot in saved[:2]:
        behind = mix(mixer, rows[position:], states, Run(position, slot, 2, 150 - position))
        assert same_bits(behind, whole[position:])


@each_set
@each_dtype
def test_not_a_number_of_one_request_reaches_no_other(isa: str, dtype: torch.dtype) -> None:
    mixer = native(GROUPED, isa, dtype)
    rows = rows_for(mixer, 30, dtype)
    rows[10:20] = make_unusual(rows[10:20], 3)
    rows[10] = float("nan")
    mixed = mix(mixer, rows, memory(mixer, dtype), *(Run(0, 0, 1 + i, 7, 10 * i, parents=(-1, 0, 0)) for i in range(3)))
    for clean in (rows[:10], rows[20:]):
        alone = mix(mixer, clean, memory(mixer, dtype), Run(0, 0, 1, 7, parents=(-1, 0, 0)))
        assert not alone.isnan().any()
        assert same_bits(mixed[:10] if clean.data_ptr() == rows.data_ptr() else mixed[20:], alone)
    assert mixed[10:20].isnan().any(1).all()


@each_dtype
@each_config
def test_instruction_sets_that_are_alike_have_the_same_bits(dtype: torch.dtype, config: GatedDeltaNetConfig) -> None:
    mixers = [native(config, isa, dtype) for isa in ALIKE]
    outs = [whole_text(mixer, rows_for(mixer, 9, dtype)) for mixer in mixers]
    assert all(same_bits(out, outs[0]) for out in outs)


def test_other_mixers_stay_as_they_are() -> None:
    class Other(GatedDeltaNet):
        pass

    calls, core = DeltaCalls(machine("portable")), core_mixer(EQUAL)
    other = Other(EQUAL, {name.split(".", 1)[1]: randn(*shape) for name, shape in EQUAL.tensors(1).items()})
    nine = GatedDeltaNetConfig(key_heads=1, value_heads=1, key_dim=8, value_dim=8, taps=9, norm_eps=1e-5)
    conv = ShortConvConfig(taps=3)
    convolution = conv.make({name: randn(*shape) for name, shape in conv.tensors(8).items()})
    assert native_mixer(calls, core, torch.float32) is not None
    others: tuple[Mixer | RecurrentMixer, ...] = (other, core_mixer(nine), convolution)
    for mixer in others:
        assert native_mixer(calls, mixer, torch.float32) is None


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (Run(0, 0, 7, 3), r"target must be in \[1, 7\); got 7"),
        (Run(0, 0, 0, 3), r"target must be in \[1, 7\); got 0"),
        (Run(0, 1, 1, 3), "source and target must be two slots"),
        (Run(0, 0, 1, 4), r"known must be in \[0, 4\); got 4"),
        (Run(0, 0, 1, 2, parents=(-1, 0)), "a run ends behind the 3 rows"),
        (Run(0, 0, 1, 1, parents=(-1, 1)), r"parent must be in \[-1, 1\); got 1"),
        (Run(3, 6, 1, 3, followed=(0,)), "slot 6 has no trail"),
        (Run(3, 2, 1, 3, followed=(8,)), r"followed token must be in \[0, 8\); got 8"),
        (Run(0, 0, 1, 3, saved=((4, 2),)), r"saved position must be in \[1, 4\); got 4"),
        (Run(0, 0, 1, 3, saved=((2, 7),)), r"saved slot must be in \[1, 7\); got 7"),
    ],
)
def test_runs_that_cannot_be_are_refused(run: Run, message: str) -> None:
    mixer = native(EQUAL, "portable", torch.float32)
    with pytest.raises(ValueError, match=message):
        mix(mixer, rows_for(mixer, 3, torch.float32), memory(mixer, torch.float32), run)
