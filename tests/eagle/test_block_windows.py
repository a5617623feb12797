"""Block heads whose layers see a window of keys: against a plain implementation, in both kernel sets, and lossless."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import Recorder, eagle_engine, transformers_target, write_target
from test_eagle_lossless import assert_lossless, mixed_requests
from test_eagle_native import serve
from toy_block_heads import BLOCK, Reference, random_block_head, write_block_head
from toy_heads import toy_target

from covering import covering
from specserve_eagle.block.config import read_block_config
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

FULL, SLIDING = "full_attention", "sliding_attention"
CASES = {
    "all": ({"use_swa": True, "swa_window_size": 7}, (7, 7), False),
    "narrower than a block": ({"use_swa": True, "swa_window_size": BLOCK - 2}, (BLOCK - 2, BLOCK - 2), False),
    "causal": ({"layer_types": [SLIDING, SLIDING], "sliding_window": 6}, (6, 6), True),
    "some": ({"layer_types": [FULL, SLIDING], "sliding_window": 8, "causal": False}, (None, 8), False),
    "some, causal": ({"layer_types": [SLIDING, FULL], "swa_window_size": 4, "causal": True}, (4, None), True),
    "full ones forced": ({"use_swa": True, "layer_types": [FULL, FULL], "sliding_window": 9}, (9, 9), False),
}
"""Keys of config.json, the window of each layer, and whether rows of a block see only those before them."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("case", CASES)
def test_windows_are_read(tmp_path, case):
    changes, windows, is_causal = CASES[case]
    config = read_block_config(write_block_head(tmp_path, "dflash", **changes), toy_target(num_hidden_layers=2))
    assert (config.layers.sliding_windows, config.is_causal) == (windows, is_causal)


@pytest.mark.usefixtures("each_kernel_set")
@covering(
    each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"],
    case=["all", "narrower than a block", "causal", "some", "some, causal"],
)  # fmt: skip
def test_the_drafts_are_those_of_a_plain_implementation(tmp_path, target, case):
    changes, windows, is_causal = CASES[case]
    head = write_block_head(tmp_path / "head", "dspark", **changes)
    recorder = Recorder()
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 6 * i), max_tokens=12, ignore_eos=True) for i in range(4)]
    engine = eagle_engine(target, head, steps=16, planner=recorder, dtype="float32")
    made = run_requests(engine, requests).tokens()
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    model = transformers_target(target)
    reference = Reference("dspark", random_block_head("dspark"), model, windows=windows, is_causal=is_causal)
    assert len(recorder.drafts) > 20
    with torch.inference_mode():
        for (name, count), draft in recorder.drafts.items():
            assert draft == tuple(reference.block(tokens[name][:count])[0][: len(draft)])


@covering(case=["all", "some", "causal"], dtype=["float32", "bfloat16"])
def test_the_native_call_drafts_what_its_pieces_draft(tmp_path, target, case, dtype):
    head = write_block_head(tmp_path / "head", "dspark", **CASES[case][0])
    expected, expected_keys = serve(target, head, {"steps": 16}, how="pieces", dtype=dtype)
    drafts, keys = serve(target, head, {"steps": 16}, how="chains", dtype=dtype)
    assert len(drafts) > 20
    assert {place: draft[:2] for place, draft in drafts.items()} == {p: draft[:2] for p, draft in expected.items()}
    assert all(torch.equal(kv.data, expected_keys[place].data) for place, kv in keys.items())


@pytest.mark.usefixtures("each_kernel_set")
def test_windows_change_no_token(tmp_path, target):
    head = write_block_head(tmp_path / "head", "dspark", **CASES["some"][0])
    assert_lossless(target, head, mixed_requests(12), settings={"steps": 16}, dtype="bfloat16")
