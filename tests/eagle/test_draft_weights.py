"""`eagle.weights=int8`: drafts come from rounded weights, and no answer changes."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import KINDS, Recorder, drafter_of, eagle_engine, write_draft, write_target
from safetensors.torch import load_file, save_file
from toy_assistants import write_assistant, write_gemma4

from covering import covering
from drafted_requests import mixed_requests
from specserve.errors import ConfigError, ModelError
from specserve_cpu.draft_head import FusedDraftPass
from specserve_workbench.testing.engines import accepted, plain_run, run_requests

ROUNDED = {"weights": "int8"}
HEADS = tuple(kind for kind in KINDS if kind != "standalone")


def rounded(weight):
    """By the rule itself: each row to multiples of its largest number / 127."""
    rows = []
    for row in weight.float():
        scale = row.abs().max() / 127
        rows.append(torch.stack([torch.round(number / scale) * scale for number in row]))
    return torch.stack(rows).to(weight.dtype)


def rewritten(draft, change):
    """The draft model with `change` of each linear map's weight."""
    file = draft / "model.safetensors"
    tensors = load_file(file)
    maps = [name for name, tensor in tensors.items() if tensor.dim() == 2 and not name.endswith("embed_tokens.weight")]
    save_file(tensors | {name: change(tensors[name]) for name in maps}, file)
    return draft


def maps_of(engine):
    """All linear maps that a head's own file has."""
    return drafter_of(engine).model.head.decoder.projections.values()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target") / "target")


@pytest.mark.usefixtures("each_kernel_set")
@covering(
    ("kind", "each_kernel_set"), ("kind", "dtype"),
    kind=KINDS, each_kernel_set=["torch", "cpu"], dtype=["float32", "bfloat16"], batch_size=[1, 8],
    indirect=["each_kernel_set"],
)  # fmt: skip
def test_drafts_change_nothing(target, tmp_path, kind, dtype, batch_size):
    draft, options = write_draft(tmp_path / "draft", kind, target), {"dtype": dtype, "max_num_seqs": batch_size}
    engine = eagle_engine(target, draft, settings=ROUNDED, **options)
    requests = mixed_requests(6 if batch_size == 1 else 10, vocab_size=64)
    drafted = run_requests(engine, requests)
    assert not drafted.metrics.drafter_faults
    assert drafted.decided() == plain_run(target, requests, **options).decided()
    good, count = accepted(drafted)
    assert (0 if kind in HEADS else 0.8 * count) < good <= count, "the target's own weights, rounded, are mostly right"


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "mtp"])
def test_drafts_are_those_of_a_head_whose_file_is_rounded(target, tmp_path, kind):
    """Torch's kernels multiply what the integers stand for."""
    requests, drafts = mixed_requests(8, vocab_size=64), []
    for settings, change in ((ROUNDED, lambda weight: weight), ({}, rounded)):
        draft = rewritten(write_draft(tmp_path / f"{len(drafts)}", kind, target), change)
        planner = Recorder()
        run_requests(eagle_engine(target, draft, settings=settings, planner=planner), requests)
        drafts.append(planner.drafts)
    assert len(drafts[0]) > 100
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("kind", [*KINDS, "assistant"])
def test_the_cpu_kernels_keep_integers(tmp_path, kind):
    if kind == "assistant":
        target = write_gemma4(tmp_path / "target")
        draft = write_assistant(tmp_path / "draft", target)
    else:
        target = write_target(tmp_path / "target")
        draft = write_draft(tmp_path / "draft", kind, target)
    for settings, is_rounded in (({}, False), (ROUNDED, True)):
        engine = eagle_engine(target, draft, settings=settings, default_plugins=True)
        drafter = drafter_of(engine)
        maps = drafter.assistant.decoder.projections.values() if kind == "assistant" else maps_of(engine)
        assert {each.packed.form is not None for each in maps} == {is_rounded}
        of_target = engine.runner.model.projections.values()
        assert not any(each.packed.form for each in of_target), "the target keeps its weights"


@pytest.mark.parametrize(("kind", "least"), [("eagle", 100), ("eagle3", 100), ("standalone", 30)])
def test_a_pass_is_one_native_call_with_the_drafts_of_its_pieces(target, tmp_path, kind, least):
    draft = write_draft(tmp_path / "draft", kind, target)
    requests, drafts = mixed_requests(8, vocab_size=64), []
    for in_pieces in (False, True):
        planner = Recorder()
        engine = eagle_engine(target, draft, settings=ROUNDED, planner=planner, default_plugins=True)
        drafter = drafter_of(engine)
        assert isinstance(drafter.passes, FusedDraftPass)
        if in_pieces:
            drafter.passes = drafter.passes.pieces
        run_requests(engine, requests)
        drafts.append(planner.drafts)
    assert len(drafts[0]) > least
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("kind", ["eagle3", "dspark", "standalone"])
def test_weights_that_are_not_finite_stop_the_start(target, tmp_path, kind):
    draft = write_draft(tmp_path / "draft", kind, target)
    if kind == "standalone":
        draft = write_target(tmp_path / "draft", hidden_size=32)

    def broken(weight):
        weight[0, 0] = torch.inf
        return weight

    rewritten(draft, broken)
    with pytest.raises(ModelError, match=r"draft: eagle\.weights=int8 rounds finite weights only, and .*=auto"):
        eagle_engine(target, draft, settings=ROUNDED)


def test_other_widths_are_refused_by_name(target):
    with pytest.raises(ConfigError, match=r"eagle\.weights: must be one of 'auto', 'int8' \(the value is 'int4'\)"):
        eagle_engine(target, target, settings={"weights": "int4"})
