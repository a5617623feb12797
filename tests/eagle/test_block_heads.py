"""Block heads against a plain implementation, and lossless: DFlash and DSpark, in the layouts of their checkpoints."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import msgspec
import pytest
import torch
from eagle_engines import Recorder, eagle_engine, transformers_target, write_target
from test_eagle_lossless import assert_lossless, mixed_requests
from toy_block_heads import ALL_FORMS, BLOCK, STATEFUL, Reference, random_block_head

from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request


class Survivals(Recorder):
    """Remembers what each draft says of its tokens, too."""

    def __init__(self) -> None:
        super().__init__()
        self.survival: dict[tuple[str, int], tuple[float, ...]] = {}

    def choose(self, requests, budget, base_rows):
        for request in requests:
            if request.draft is not None:
                self.survival[request.id, len(request.tokens)] = request.draft.survival
        return super().choose(requests, budget, base_rows)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize("form", ALL_FORMS)
def test_the_drafts_are_those_of_a_plain_implementation(target, block_heads, form):
    recorder = Survivals()
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 3 * i), max_tokens=12, ignore_eos=True) for i in range(4)]
    engine = eagle_engine(target, block_heads[form], steps=16, planner=recorder)
    made = run_requests(engine, requests).tokens()
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    reference = Reference(form, random_block_head(form), transformers_target(target))
    assert len(recorder.drafts) > 20
    with torch.inference_mode():
        for (id, count), draft in recorder.drafts.items():
            expected, probabilities = reference.block(tokens[id][:count])
            assert draft == tuple(expected[: len(draft)])
            survival = list(accumulate(probabilities[: len(draft)], mul))
            assert recorder.survival[id, count] == pytest.approx(survival, rel=1e-3)
    from_first = ALL_FORMS[form].get("sample_from_anchor")
    assert max(map(len, recorder.drafts.values())) == (BLOCK if from_first else BLOCK - 1)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize(
    ("form", "batch_size", "dtype"),
    [
        ("dflash", 8, "float32"),
        ("dspark", 32, "bfloat16"),
        ("speculators", 1, "bfloat16"),
        ("gated", 8, "bfloat16"),
        ("rnn", 32, "float32"),
    ],
)
def test_blocks_change_nothing(target, block_heads, form, batch_size, dtype):
    assert_lossless(
        target, block_heads[form], mixed_requests(20), settings={"steps": 16}, max_num_seqs=batch_size, dtype=dtype,
        max_num_batched_tokens=256,
    )  # fmt: skip


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("form", ["dflash", "dspark"])
def test_blocks_become_shorter_at_the_end_of_the_context(target, block_heads, form):
    requests = [toy_request(f"r{i}", range(1, 30 + i), max_tokens=99, ignore_eos=True) for i in range(3)]
    recorder = Recorder()
    speculative = assert_lossless(
        target, block_heads[form], requests, settings={"steps": 16}, planner=recorder, max_model_len=64
    )
    assert {output.finish_reason for output in speculative.outputs.values()} == {"length"}
    at_the_end = {count: len(draft) for (_, count), draft in recorder.drafts.items() if count > 64 - BLOCK}
    assert at_the_end
    assert all(size <= 64 - count for count, size in at_the_end.items())


@pytest.mark.usefixtures("each_kernel_set")
def test_a_chain_ends_where_no_draft_token_can_come(target, block_heads):
    """The draft vocabulary has every second token from the fourth on."""
    alone, both = (toy_request(name, range(1, 9), max_tokens=9, ignore_eos=True) for name in ("alone", "both"))
    alone = msgspec.structs.replace(alone, params=msgspec.structs.replace(alone.params, allowed_token_ids=[0, 1, 2]))
    recorder = Recorder()
    engine = eagle_engine(target, block_heads["speculators"], steps=16, planner=recorder)
    run_requests(engine, [alone, both])
    assert not engine.metrics.drafter_faults
    assert {name for name, _ in recorder.drafts} == {"both"}


@pytest.mark.parametrize("form", STATEFUL)
def test_a_draft_does_not_depend_on_the_requests_beside_it(target, block_heads, form):
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 3 * i), max_tokens=12 + i, ignore_eos=True) for i in range(5)]
    together = Recorder()
    run_requests(eagle_engine(target, block_heads[form], steps=16, planner=together, dtype="bfloat16"), requests)
    alone = Recorder()
    run_requests(eagle_engine(target, block_heads[form], steps=16, planner=alone, dtype="bfloat16"), requests[3:4])
    assert len(alone.drafts) > 2
    assert alone.drafts == {place: draft for place, draft in together.drafts.items() if place[0] == "r3"}
