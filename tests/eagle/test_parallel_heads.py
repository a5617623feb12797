"""P-EAGLE heads against a plain implementation: all draft tokens of one pass, and what is wrong with a head."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import pytest
import torch
from eagle_engines import Recorder, drafter_of, eagle_engine, transformers_target, write_target
from reference_heads import eagle3_forward
from test_eagle_lossless import assert_lossless, mixed_requests
from test_eagle_native import Drafts, serve
from toy_heads import V, change_tensors, toy_target, with_target_norms
from toy_parallel_heads import FORMS, MASK, READS, random_parallel_head, write_parallel_head

from covering import covering
from specserve.errors import ConfigError, ModelError
from specserve_eagle.checkpoints import kind_of, open_head, read_head_config
from specserve_eagle.training.reopen import refuse_other_arithmetic
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

STEPS, LAYERS = 5, 3
"""LAYERS: of the target."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), num_hidden_layers=LAYERS)


class Reference:
    """Greedy drafts of a head in float32, each from nothing. `model`: transformers' target."""

    def __init__(self, path, tensors, model):
        self.config, self.tensors, self.model = (
            read_head_config(path, toy_target(num_hidden_layers=LAYERS)),
            tensors,
            model,
        )

    def draft(self, tokens, count):
        """(tokens, probabilities) of `count` places behind these tokens, of which the target has not computed the last
        one."""
        with torch.inference_mode():
            states = self.model(torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states
            read = torch.cat([states[layer][0] for layer in READS], -1)
            hidden = torch.cat((read, self.tensors["mask_hidden"].expand(count - 1, -1)))
            ids = torch.tensor([*tokens[1:], *[MASK] * (count - 1)])
            embedding = self.model.get_input_embeddings().weight
            _, logits = eagle3_forward(self.tensors, self.config, hidden, ids, embedding)
            probabilities, best = logits[-count:].softmax(-1).max(-1)
        return tuple((best + self.tensors["d2t"][best]).tolist()), probabilities.tolist()


CASES = {form: (form, random_parallel_head(), {}) for form in FORMS} | {
    "norms": ("pard", with_target_norms(random_parallel_head()), {"fc_norm": True}),
}


@pytest.mark.usefixtures("each_kernel_set")
@covering(
    each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"], case=CASES,
)  # fmt: skip
def test_the_drafts_are_those_of_a_plain_implementation(tmp_path, target, case):
    form, tensors, changes = CASES[case]
    head = write_parallel_head(tmp_path / "head", form, tensors, **changes)
    recorder = Drafts()
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 3 * i), max_tokens=12, ignore_eos=True) for i in range(4)]
    outcome = run_requests(eagle_engine(target, head, steps=STEPS, planner=recorder, dtype="float32"), requests)
    assert not outcome.metrics.drafter_faults
    made = outcome.tokens()
    reference = Reference(head, tensors, transformers_target(target))
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    assert len(recorder.drafts) > 20
    for (name, count), (draft, parents, survival) in recorder.drafts.items():
        expected, probabilities = reference.draft(tokens[name][:count], STEPS)
        assert draft == expected[: len(draft)]
        assert parents is None
        assert survival == pytest.approx(list(accumulate(probabilities[: len(draft)], mul)), rel=1e-3)
    assert max(len(draft) for draft, *_ in recorder.drafts.values()) == STEPS


def test_a_request_with_processors_is_drafted_as_one_that_reads_no_path(tmp_path, target):
    """A bias of 0 is a processor that changes nothing, so that its masks, one after the other, propose the same."""
    head = write_parallel_head(tmp_path / "head")
    drafts = {}
    for bias in ({}, {"logit_bias": {5: 0.0}}):
        recorder = Drafts()
        engine = eagle_engine(target, head, steps=STEPS, planner=recorder, default_plugins=True)
        request = toy_request("r", range(1, 9), max_tokens=20, ignore_eos=True, temperature=0.7, seed=3, **bias)
        engine.add(request)
        while engine.has_work:
            engine.step()
        assert not engine.metrics.drafter_faults
        drafts[bool(bias)] = recorder.drafts
    assert len(drafts[True]) > 5
    assert drafts[True] == drafts[False]


def test_the_path_of_a_draft_decides_what_processors_forbid_next(tmp_path, target):
    """Without a penalty the same token is proposed several times in a row; no token twice with it."""
    tensors = random_parallel_head() | {"mask_hidden": torch.zeros(len(random_parallel_head()["mask_hidden"]))}
    head = write_parallel_head(tmp_path / "head", "eagle3", tensors)
    repeats = {}
    for penalty in (0.0, 2.0):
        recorder = Recorder(verifies=False)
        engine = eagle_engine(target, head, steps=STEPS, planner=recorder)
        run_requests(engine, [toy_request("r", range(1, 4), max_tokens=30, ignore_eos=True, presence_penalty=penalty)])
        repeats[penalty] = sum(len(draft) - len(set(draft)) for draft in recorder.drafts.values())
    assert repeats[0.0] > repeats[2.0]


@covering(form=FORMS, dtype=["float32", "bfloat16"])
def test_native_passes_draft_what_their_pieces_draft(tmp_path, target, form, dtype):
    head = write_parallel_head(tmp_path / "head", form)
    expected, expected_keys = serve(target, head, {"steps": STEPS}, how="pieces", dtype=dtype)
    drafts, keys = serve(target, head, {"steps": STEPS}, how="chains", dtype=dtype)
    assert len(drafts) > 20
    assert drafts == expected
    for place, kv in keys.items():
        assert torch.equal(kv.data, expected_keys[place].data), place
        assert torch.equal(kv.states, expected_keys[place].states), place


@pytest.mark.usefixtures("each_kernel_set")
def test_a_pass_serves_all_draft_tokens_and_drafts_end_with_the_context(tmp_path, target):
    head, recorder = write_parallel_head(tmp_path / "head"), Recorder()
    requests = [toy_request(f"r{i}", range(1, 30 + i), max_tokens=99, ignore_eos=True) for i in range(3)]
    outcome = assert_lossless(
        target, head, requests, settings={"steps": STEPS}, planner=recorder, max_model_len=64
    )  # fmt: skip
    assert {output.finish_reason for output in outcome.outputs.values()} == {"length"}
    at_the_end = {count: len(draft) for (_, count), draft in recorder.drafts.items() if count > 64 - STEPS}
    assert at_the_end
    assert all(size <= 64 - count for count, size in at_the_end.items())


def test_one_pass_of_the_head_serves_a_step(tmp_path, target):
    engine = eagle_engine(target, write_parallel_head(tmp_path / "head"), steps=STEPS)
    drafter, calls = drafter_of(engine), []
    step = drafter.passes.step
    drafter.passes.step = lambda batch, *others, **named: calls.append(batch.num_rows) or step(batch, *others, **named)
    run_requests(engine, [toy_request(f"r{i}", range(5), max_tokens=20, ignore_eos=True) for i in range(3)])
    assert len(calls) <= engine.metrics.num_steps
    assert max(calls) > 3 * STEPS


@pytest.mark.usefixtures("each_kernel_set")
def test_acceptance_on_fixed_inputs_stays_what_it_was(tmp_path, target):
    head = write_parallel_head(tmp_path / "head")
    engine = eagle_engine(target, head, steps=4, dtype="float32")
    run_requests(engine, mixed_requests(8))
    assert (engine.metrics.num_accepted_tokens, engine.metrics.num_draft_tokens) == (27, 647)


@pytest.mark.parametrize(
    ("form", "settings", "longest"),
    [
        ("speculators", {"steps": "auto"}, 6),
        ("eagle3", {"steps": "auto"}, 8),
        ("eagle3", {"steps": 2}, 2),
        ("pard", {"steps": 11}, 11),
        ("speculators", {"steps": "auto", "draft_tokens": 4}, 3),
        ("speculators", {"steps": "auto", "draft_tokens": 12}, 6),
    ],
)
def test_a_draft_is_as_long_as_the_head_was_trained_for_or_as_asked(tmp_path, target, form, settings, longest):
    recorder = Recorder()
    engine = eagle_engine(target, write_parallel_head(tmp_path / "head", form), settings=settings, planner=recorder)
    run_requests(engine, [toy_request("r", range(1, 9), max_tokens=24, ignore_eos=True)])
    assert max(map(len, recorder.drafts.values())) == longest


# --- what is wrong with a head --------------------------------------------------------------------------------


def opened(path):
    config = read_head_config(path, toy_target(num_hidden_layers=LAYERS))
    return config, open_head(path, config)


@pytest.mark.parametrize("form", FORMS)
def test_a_head_is_known_by_its_config_and_by_its_tensors(tmp_path, form):
    path = write_parallel_head(tmp_path, form)
    assert kind_of(path) == "eagle3"
    assert opened(path)[0].masks.token == MASK


def test_names_of_its_architecture_are_known(tmp_path):
    for name in ("PEagleDraftModel", "PeagleLlamaForCausalLM", "LlamaEagle3DraftModel"):
        path = write_parallel_head(tmp_path / name, "pard", architectures=[name])
        assert opened(path)[0].masks.token == MASK


@pytest.mark.parametrize(
    ("form", "changes", "match"),
    [
        (
            "eagle3",
            {"ptd_token_id": None},
            "none of pard_token, ptd_token_id, mask_token_id names the token of its masks",
        ),
        ("eagle3", {"ptd_token_id": V}, "ptd_token_id must be a token from 0 to 63; got 64"),
        ("pard", {"pard_token": "62"}, "pard_token must be a token from 0 to 63; got '62'"),
        ("pard", {"parallel_drafting": 1}, "parallel_drafting must be true or false; got 1"),
        ("speculators", {"speculators_config": ["peagle"]}, r"speculators_config must be an object; got \['peagle'\]"),
        ("speculators", {"speculators_config": {"proposal_methods": 5}}, "proposal_methods must be a list; got 5"),
    ],
)
def test_a_config_that_cannot_be_is_refused(tmp_path, form, changes, match):
    with pytest.raises(ModelError, match=match):
        opened(write_parallel_head(tmp_path, form, **changes))


@pytest.mark.parametrize(("form", "name"), [("pard", "model__mask_hidden"), ("speculators", "mask_hidden")])
def test_a_promise_without_what_masks_read_is_refused(tmp_path, form, name):
    path = change_tensors(write_parallel_head(tmp_path, form), **{name: None})
    with pytest.raises(ModelError, match="mask_hidden"):
        opened(path)


def test_masks_of_another_width_are_refused(tmp_path):
    path = change_tensors(write_parallel_head(tmp_path), mask_hidden=torch.zeros(1, 7))
    with pytest.raises(ModelError, match=r"mask_hidden has shape \[1, 7\], but config.json says \[1, 96\]"):
        opened(path)


def test_other_kinds_of_heads_draft_no_tokens_in_one_pass(tmp_path):
    from toy_heads import write_head

    with pytest.raises(ModelError, match=r"parallel_drafting = True \(all draft tokens in one pass\) is not supported"):
        opened(write_head(tmp_path, "eagle", parallel_drafting=True))


def test_trees_are_refused_before_its_weights_are_read(tmp_path, target):
    head = change_tensors(write_parallel_head(tmp_path / "head"), mask_hidden=torch.zeros(1, 7))
    with pytest.raises(ConfigError, match=r"eagle.topk = 2: .* is a P-EAGLE head, which drafts chains. Leave topk out"):
        eagle_engine(target, head, settings={"steps": 3, "topk": 2})


def test_what_masks_draft_is_not_measured_pass_by_pass(tmp_path):
    config, checkpoint = opened(write_parallel_head(tmp_path))
    with pytest.raises(ConfigError, match=r"the head has masks, which draft all tokens in one pass, which teacher"):
        refuse_other_arithmetic(config, checkpoint, toy_target(num_hidden_layers=LAYERS))
