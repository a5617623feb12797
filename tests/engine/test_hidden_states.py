"""Hidden states for the drafters that ask: every row of every step, prompts included, as transformers has them."""

from __future__ import annotations

import pytest
import torch

from specserve.protocols import Drafter, DrafterNeeds
from specserve.types import Draft
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request

pytestmark = pytest.mark.usefixtures("each_kernel_set")

PROMPTS = {"a": tuple(range(1, 90)), "b": tuple(range(100, 103)), "c": tuple(range(40, 110))}


class Listener(Drafter):
    """Collects the states of each committed token, and drafts `draft_for(request, limit)`."""

    name = "listener"

    def __init__(self, layers, draft_for=None):
        self.needs = DrafterNeeds(hidden_layers=layers)
        self.draft_for = draft_for
        self.received = {}
        self.widths = []

    def propose(self, batch, output, verdict, limits):
        self.widths.append({layer: states.shape for layer, states in output.hidden.items()})
        for span, offset, decided in zip(batch.spans, batch.row_offsets, verdict.spans, strict=True):
            known = range(offset, offset + span.known)
            rows = [*known, *(offset + span.known + node for node in decided.path)]
            for i, row in enumerate(rows):
                states = {layer: states[row].clone() for layer, states in output.hidden.items()}
                self.received.setdefault(span.request.id, {})[span.start + i] = states
        if self.draft_for is None:
            return [None] * len(limits)
        return [
            self.draft_for(span.request, limit) if limit else None
            for span, limit in zip(batch.spans, limits, strict=True)
        ]


def requests(max_tokens=12):
    return [toy_request(name, prompt, max_tokens=max_tokens, ignore_eos=True) for name, prompt in PROMPTS.items()]


@pytest.fixture(scope="module")
def transformers_states(toy_model):
    """tokens -> [layers + 1][len(tokens), hidden]; the last one is what the final norm gets."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float32, attn_implementation="eager").eval()

    @torch.inference_mode()
    def states(tokens):
        before_norm = []
        hook = model.model.norm.register_forward_pre_hook(lambda module, args: before_norm.append(args[0][0]))
        outcome = model(torch.tensor([tokens]), output_hidden_states=True)
        hook.remove()
        return [*(h[0] for h in outcome.hidden_states[:-1]), before_norm[0]]

    return states


@pytest.mark.parametrize("budget", [512, 16])
def test_a_drafter_gets_every_computed_row_as_transformers_has_it(toy_model, transformers_states, budget):
    listener = Listener((0, 1, -1))
    outcome = run(toy_model, requests(), listener, max_num_batched_tokens=budget)
    for name, prompt in PROMPTS.items():
        tokens = [*prompt, *outcome.tokens()[name]]
        expected = transformers_states(tokens)
        assert sorted(listener.received[name]) == list(range(len(tokens) - 1)), "the last token is never computed"
        for position, states in listener.received[name].items():
            for layer in (0, 1, 2):
                assert torch.allclose(states[layer], expected[layer][position], atol=1e-4, rtol=1e-4), (position, layer)


def tree_around(expected):
    """The right token and a wrong sibling at each of two depths, the wrong one first, so accepted rows are moved."""

    def draft_for(request, limit):
        right = expected[request.id][request.num_generated :][:2]
        if len(right) < 2 or limit < 4:
            return None
        wrong = [(token + 1) % 320 for token in right]
        return Draft(tokens=(wrong[0], right[0], wrong[1], right[1]), parents=(-1, -1, 1, 1))

    return draft_for


def test_hidden_states_of_accepted_guesses_are_those_of_plain_decoding_bit_for_bit(toy_model):
    plain = Listener((1, -1))
    expected = run(toy_model, requests(30), plain).tokens()
    guessing = Listener((1, -1), tree_around(expected))
    outcome = run(toy_model, requests(30), guessing)
    assert outcome.tokens() == expected
    assert outcome.metrics.num_accepted_tokens > 40
    for name, received in guessing.received.items():
        for position in received.keys() & plain.received[name].keys():
            for layer in (1, 2):
                assert torch.equal(received[position][layer], plain.received[name][position][layer]), (name, position)


def test_only_the_layers_that_were_asked_for_are_kept(toy_model):
    listener = Listener((1,))
    run(toy_model, requests(3), listener)
    assert {tuple(shapes) for shapes in listener.widths} == {(1,)}
    nobody = Listener(())
    run(toy_model, requests(3), nobody)
    assert {tuple(shapes) for shapes in nobody.widths} == {()}


def test_a_drafter_that_needs_states_gets_steps_that_decide_nothing(toy_model):
    listener = Listener((-1,))
    engine = make_engine(toy_model, listener, max_num_batched_tokens=32).engine
    run_requests(engine, [toy_request("long", range(1, 100), max_tokens=2, ignore_eos=True)])
    assert [shapes[2][0] for shapes in listener.widths][:4] == [32, 32, 32, 3]


def test_states_are_the_drafters_to_keep(toy_model):
    """A later step must not write into what an earlier one gave."""
    kept = []

    class Keeper(Listener):
        def propose(self, batch, output, verdict, limits):
            kept.append((output.hidden[2], output.hidden[2].clone()))
            return [None] * len(limits)

    run(toy_model, requests(), Keeper((-1,)))
    assert len(kept) > 5
    assert all(torch.equal(given, copy) for given, copy in kept)
