"""Trees of block heads: the most probable prefixes of a block, by a plain implementation."""

from __future__ import annotations

from heapq import nlargest
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import pytest
import torch
from eagle_engines import eagle_engine, transformers_target, write_target
from test_eagle_lossless import BESIDE, TREES, assert_lossless, assert_lossless_beside, requests_in
from test_eagle_native import Drafts, requests_of_all_sorts
from toy_block_heads import ALL_FORMS, RANK, Reference, random_block_head

from covering import covering
from specserve.api import DraftToken
from specserve.api.drafts import paths_of
from specserve.errors import ConfigError
from specserve.types import Draft
from specserve_eagle.block.places import with_confidence
from specserve_eagle.block.trees import PrefixTree, best_prefixes, grow_trees
from specserve_eagle.options import EagleOptions
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request
from toy_adapters import write_adapters

TOPK, LIMIT = 3, 12


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def prefixes_of(draft):
    """Survival by the tokens of each path."""
    paths = [tuple(draft.tokens[node] for node in path) for path in paths_of(draft)]
    assert len(set(paths)) == len(paths)
    return dict(zip(paths, draft.survival, strict=True))


class Block(NamedTuple):
    """A block of the plain implementation."""

    reference: Reference
    last: int
    rows: torch.Tensor
    states: torch.Tensor

    def survival(self, path):
        """Of each token of the path."""
        last, memory, found = self.last, torch.zeros(RANK), []
        for row, state, token in zip(self.rows, self.states, path, strict=False):
            best, memory = self.reference.best(row, state, last, memory, TOPK)
            found.append(dict(best)[token])
            last = token
        return list(accumulate(found, mul))

    def all_prefixes(self, path=(), above=1.0, memory=None):
        """(path, survival) of every prefix of the likeliest tokens."""
        if len(path) == len(self.rows):
            return
        memory = torch.zeros(RANK) if memory is None else memory
        last = path[-1] if path else self.last
        best, memory = self.reference.best(self.rows[len(path)], self.states[len(path)], last, memory, TOPK)
        for token, probability in best:
            yield (*path, token), above * probability
            yield from self.all_prefixes((*path, token), above * probability, memory)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_tree_has_the_most_probable_prefixes_of_a_plain_implementation(target, block_heads, form):
    recorder = Drafts()
    settings = {"steps": 16, "topk": TOPK, "draft_tokens": LIMIT + 1}
    requests = [toy_request(f"r{i}", range(1 + i, 4 + 3 * i), max_tokens=8, ignore_eos=True) for i in range(3)]
    made = run_requests(eagle_engine(target, block_heads[form], settings=settings, planner=recorder), requests).tokens()
    tokens = {request.request_id: [*request.prompt_token_ids, *made[request.request_id]] for request in requests}
    reference = Reference(form, random_block_head(form), transformers_target(target))
    assert len(recorder.drafts) > 10
    for (name, count), (drafted, parents, survival) in recorder.drafts.items():
        found = prefixes_of(Draft(tokens=drafted, parents=parents, survival=survival))
        with torch.inference_mode():
            places = len(tokens[name]) - count - 1  # the last token is never drafted
            rows, states = reference.logits(tokens[name][:count])
            block = Block(reference, tokens[name][count - 1], rows[:places], states[:places])
            best = nlargest(len(found), (survival for _, survival in block.all_prefixes()))
            for path, survives in found.items():
                assert survives == pytest.approx(block.survival(path)[-1], rel=1e-3)
        assert sorted(found.values(), reverse=True) == pytest.approx(best, rel=1e-3)
        assert len(found) == min(LIMIT, sum(TOPK ** (depth + 1) for depth in range(len(block.rows))))
    assert any(parents != tuple(range(-1, len(parents) - 1)) for _, parents, _ in recorder.drafts.values())


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
def test_processors_read_the_path_of_each_node(target, block_heads):
    """One that every token on the path makes much less likely."""

    def repeats(penalty):
        recorder = Drafts()
        request = toy_request("r", range(1, 4), max_tokens=24, ignore_eos=True, repetition_penalty=penalty)
        engine = eagle_engine(target, block_heads["dflash"], settings={"steps": 16, "topk": 2}, planner=recorder)
        run_requests(engine, [request])
        drafts = [Draft(tokens=tokens, parents=parents) for tokens, parents, _ in recorder.drafts.values()]
        paths = [[draft.tokens[node] for node in path] for draft in drafts for path in paths_of(draft)]
        return sum(len(set(path)) < len(path) for path in paths) / len(paths)

    assert repeats(1.0) > 0.1
    assert repeats(50.0) == 0


class SeparatePlaces:
    """`Places` whose tokens do not depend on those before them."""

    def __init__(self, tokens):
        self.tokens = tokens

    def best(self, places, counts):
        return [self.tokens[len(place.path)][:count] for place, count in zip(places, counts, strict=True)]


@pytest.mark.parametrize("limit", [1, 2, 7, 16, 200])
def test_best_first_and_level_by_level_the_tree_is_the_same(limit):
    generator = torch.Generator().manual_seed(limit)
    for _ in range(20):
        probabilities = (3 * torch.randn(4, 3, generator=generator)).softmax(-1).sort(-1, descending=True).values
        tokens = [
            [DraftToken(10 * i + k, p) for k, p in enumerate(row)] for i, row in enumerate(probabilities.tolist())
        ]
        tree = PrefixTree(None, limit=limit, steps=4, topk=3)
        grow_trees([tree], [0], SeparatePlaces(tokens))
        found, expected = prefixes_of(best_prefixes(tokens, limit, "")), prefixes_of(tree.draft(""))
        assert found == pytest.approx(expected)
        assert len(found) == min(limit, 3 + 9 + 27 + 81)


def test_a_tree_ends_where_no_token_can_come():
    first, none = [DraftToken(1, 0.6), DraftToken(2, 0.3)], []
    assert best_prefixes([none, first], 9, "") is None
    assert set(prefixes_of(best_prefixes([first, none, first], 9, ""))) == {(1,), (2,)}


@pytest.mark.parametrize(
    ("sure", "expected"),
    [(0.2, [0.2, 0.1, 0.05]), (0.4, [0.4, 0.2, 0.1]), (0.7, [0.7, 0.1, 0.05]), (1.0, [1.0, 0.0, 0.0])],
)
def test_what_the_confidence_head_leaves_is_shared_by_the_other_tokens(sure, expected):
    tokens = [DraftToken(7, 0.4), DraftToken(8, 0.2), DraftToken(9, 0.1)]
    found = with_confidence(tokens, sure)
    assert [token for token, _ in found] == [7, 8, 9]
    assert [p for _, p in found] == pytest.approx(expected)


def test_a_tree_of_a_block_may_have_all_prefixes(target, block_heads):
    settings = {"model": str(block_heads["dspark"]), "steps": 3, "topk": 3}
    assert EagleOptions(**settings, draft_tokens=1 + 3 + 9 + 27).max_nodes == 39
    with pytest.raises(ConfigError, match="draft_tokens must be at most 40"):
        EagleOptions(**settings, draft_tokens=41)


def test_a_draft_model_that_is_on_no_disk_yet_is_judged_once_its_kind_is_known():
    options = EagleOptions(model="some/head", steps=3, topk=3, draft_tokens=30)
    options.check_size("block")
    with pytest.raises(ConfigError, match="draft_tokens must be at most 22"):
        options.check_size("eagle3")


# --- lossless -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"], case=[
    ("dflash", {"steps": 16, "topk": 4, "draft_tokens": 17}, 8, "float32"),
    ("dflash", TREES, 32, "bfloat16"),
    ("dspark", {"steps": "auto", "topk": 3}, 1, "bfloat16"),
    ("speculators", TREES, 8, "float32"),
    ("gated", TREES, 8, "bfloat16"),
    ("rnn", {"steps": 16, "topk": 2}, 32, "float32"),
])  # fmt: skip
def test_trees_of_blocks_change_nothing(target, block_heads, case):
    form, settings, batch_size, dtype = case
    assert_lossless(
        target, block_heads[form], requests_in(batch_size), settings=settings, max_num_seqs=batch_size, dtype=dtype,
        max_num_batched_tokens=256,
    )  # fmt: skip


@pytest.fixture(scope="module")
def adapters(target, tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"), target, 3)


@pytest.mark.parametrize(("form", "beside", "native"), [
    ("dflash", "lora", False), ("dflash", "all", True), ("dspark", "ngram", True), ("dspark", "hybrid_attn", True),
    ("rnn", "all", True),
])  # fmt: skip
def test_trees_of_blocks_change_nothing_beside_other_plugins(target, block_heads, adapters, form, beside, native):
    assert_lossless_beside(target, block_heads[form], BESIDE[beside], adapters, settings=TREES, default_plugins=native)


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize("form", ["dflash", "rnn"])
def test_a_tree_does_not_depend_on_the_requests_beside_it(target, block_heads, form):
    def drafts_of(requests):
        recorder = Drafts()
        run_requests(
            eagle_engine(target, block_heads[form], settings=TREES, planner=recorder, dtype="bfloat16"), requests
        )
        return recorder.drafts

    requests = list(requests_of_all_sorts())
    together = drafts_of(requests)
    for request in (requests[2], requests[-1]):
        alone = drafts_of([request])
        assert len(alone) > 2
        for place, (tokens, parents, survival) in alone.items():
            assert (tokens, parents) == together[place][:2]
            assert survival == pytest.approx(together[place][2])
