"""Shapes of drafts: paths, prefixes, and the normal form that a proposal is brought to."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.batch.drafts import (
    ROOT,
    children_of,
    depth_first,
    depths_of,
    first,
    is_chain,
    keep,
    likeliest_chain,
    parents_of,
    paths_of,
)
from specserve.guards.draft_checks import DraftFault, check_draft, merge_siblings
from specserve.protocols import Observer
from specserve.types import Draft
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests, watch
from specserve_workbench.testing.requests import toy_request

VOCAB = 4


@st.composite
def trees(draw, min_size=0, max_size=14):
    """Any tree over four tokens, duplicate siblings included; some chains, some with survival."""
    size = draw(st.integers(min_size, max_size))
    tokens = tuple(draw(st.integers(0, VOCAB - 1)) for _ in range(size))
    parents = None if draw(st.booleans()) else tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    stated = st.floats(0, 1, allow_nan=False)
    survival = tuple(draw(stated) for _ in range(size)) if draw(st.booleans()) else None
    return Draft(tokens=tokens, parents=parents, survival=survival, source="s")


def token_paths(draft):
    return [tuple(draft.tokens[node] for node in path) for path in paths_of(draft)]


def normal(draft):
    return check_draft(draft, 99, VOCAB) or Draft(tokens=())


@given(trees())
def test_a_merged_draft_keeps_every_distinct_path_and_adds_none(draft):
    assert sorted(token_paths(normal(draft))) == sorted(set(token_paths(draft)))


@given(trees())
def test_in_normal_form_siblings_differ_and_parents_precede(draft):
    clean = normal(draft)
    pairs = list(zip(parents_of(clean), clean.tokens, strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(ROOT <= parent < node for node, parent in enumerate(parents_of(clean)))
    assert clean.source in ("s", "")


@given(trees())
def test_in_normal_form_no_child_survives_its_parent(draft):
    clean = normal(draft)
    if clean.survival is not None:
        assert len(clean.survival) == len(clean.tokens)
        for node, parent in enumerate(parents_of(clean)):
            assert parent == ROOT or clean.survival[node] <= clean.survival[parent]


@given(trees(min_size=1))
def test_the_likeliest_chain_is_one_path_to_a_leaf_of_the_best_children(draft):
    clean = normal(draft)
    chain = likeliest_chain(clean)
    assert chain.parents is None
    path = next(path for path in paths_of(clean) if tuple(clean.tokens[node] for node in path) == chain.tokens)
    assert not children_of(clean).get(path[-1])
    for parent, node in zip((ROOT, *path), path, strict=False):
        siblings = children_of(clean)[parent].values()
        if clean.survival is not None:
            assert clean.survival[node] == max(clean.survival[sibling] for sibling in siblings)
        else:
            assert node == min(siblings)


@given(trees())
def test_the_normal_form_of_a_normal_form_is_itself(draft):
    clean = normal(draft)
    assert normal(clean) == clean


@given(trees(min_size=1))
def test_without_duplicate_siblings_a_node_survives_as_its_least_likely_ancestor(draft):
    distinct = len(set(token_paths(draft))) == len(draft.tokens)
    if distinct and draft.survival is not None:
        lowest = [min(draft.survival[n] for n in path) for path in paths_of(draft)]
        assert list(normal(draft).survival) == lowest


@given(trees(), st.data())
def test_keep_of_a_closed_set_keeps_exactly_its_paths(draft, data):
    picked = data.draw(st.sets(st.integers(0, max(len(draft.tokens) - 1, 0)))) if draft.tokens else set()
    closed = {node for target in picked for node in paths_of(draft)[target]}
    kept = keep(draft, closed)
    if not closed:
        assert kept is None
        return
    assert token_paths(kept) == [token_paths(draft)[node] for node in sorted(closed)]
    assert kept.survival == (draft.survival and tuple(draft.survival[node] for node in sorted(closed)))


@given(trees(min_size=1), st.integers(1, 14))
def test_every_prefix_of_a_draft_is_closed_under_parents(draft, length):
    length = min(length, len(draft.tokens))
    assert token_paths(keep(draft, range(length))) == token_paths(draft)[:length]


@given(trees())
def test_depths_paths_and_children_agree(draft):
    paths = paths_of(draft)
    assert depths_of(draft) == [len(path) for path in paths]
    assert all(path[-1] == node for node, path in enumerate(paths))
    for parent, by_token in children_of(normal(draft)).items():
        for token, child in by_token.items():
            assert (parents_of(normal(draft))[child], normal(draft).tokens[child]) == (parent, token)
    assert is_chain(draft) == (depths_of(draft) == list(range(1, len(draft.tokens) + 1)))


@given(trees(), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=10))
def test_the_walk_that_follows_the_target_is_the_longest_agreeing_path(draft, target):
    children, node, walked = children_of(normal(draft)), ROOT, 0
    while walked < len(target) and target[walked] in children.get(node, {}):
        node = children[node][target[walked]]
        walked += 1
    agreeing = [len(path) for path in token_paths(draft) if list(path) == target[: len(path)]]
    assert walked == max(agreeing, default=0)


def test_the_children_of_both_duplicates_survive_under_the_first():
    duplicates = Draft(tokens=(1, 1, 2, 3, 2), parents=(-1, -1, 0, 1, 1), survival=(0.9, 0.2, 0.8, 0.1, 0.2))
    merged = merge_siblings(duplicates)
    assert sorted(token_paths(merged)) == [(1,), (1, 2), (1, 3)]
    assert merged.survival == (0.9, 0.8, 0.1)


@pytest.mark.parametrize("parents", [None, ()])
def test_an_empty_draft_is_none(parents):
    assert check_draft(Draft(tokens=(), parents=parents), 5, VOCAB) is None


def test_tensors_and_lists_become_tuples_of_plain_numbers():
    import torch

    draft = Draft(tokens=torch.tensor([1, 2]), parents=[-1, 0], survival=torch.tensor([0.5, 0.75]))
    clean = check_draft(draft, 2, VOCAB)
    assert (clean.tokens, clean.parents, clean.survival) == ((1, 2), (-1, 0), (0.5, 0.5))
    assert all(type(token) is int for token in clean.tokens)


@pytest.mark.parametrize("tokens", [(4,), (-1,), (1.0,), ("1",), (None,), (2**70,)], ids=str)
def test_a_token_that_is_not_one_of_the_vocabulary_is_a_fault(tokens):
    with pytest.raises(DraftFault, match="token out of range"):
        check_draft(Draft(tokens=tokens), 5, VOCAB)


@pytest.mark.parametrize(("draft", "reason"), [
    (Draft(tokens=(1, 2, 3)), "more tokens than the limit"),
    (Draft(tokens=(1, 2), parents=(-1,)), "parents of another length"),
    (Draft(tokens=(1, 2), parents=(-1, 1)), "does not precede"),
    (Draft(tokens=(1, 2), parents=(-2, 0)), "does not precede"),
    (Draft(tokens=(1,), survival=(1.01,)), "survival outside"),
    (Draft(tokens=(1,), survival=(-0.01,)), "survival outside"),
    (Draft(tokens=(1,), survival=(float("nan"),)), "survival outside"),
    (Draft(tokens=(1,), survival=(0.1, 0.1)), "survival of another length"),
    (Draft(tokens="12"), "not one-dimensional"),
    ("no draft", "not a Draft"),
])  # fmt: skip
def test_each_breach_of_the_contract_has_its_reason(draft, reason):
    with pytest.raises(DraftFault, match=reason):
        check_draft(draft, 2, VOCAB)


def test_merged_duplicates_have_the_higher_of_their_survivals():
    duplicates = Draft(tokens=(1, 1, 2), parents=(-1, -1, 1), survival=(0.1, 0.9, 0.8))
    assert merge_siblings(duplicates).survival == (0.9, 0.8)


def nodes_of(draft):
    """Each node as its path, with what is stated of it."""
    survival = draft.survival or (None,) * len(draft.tokens)
    sources = draft.sources or (None,) * len(draft.tokens)
    return sorted(zip(token_paths(draft), survival, sources, strict=True), key=repr)


@given(trees())
def test_walked_path_by_path_a_tree_is_the_same(draft):
    draft = msgspec.structs.replace(draft, sources=tuple(f"d{token}" for token in draft.tokens))
    walked = depth_first(draft)
    assert nodes_of(walked) == nodes_of(draft)
    assert depth_first(walked) == walked
    assert walked.source == draft.source


@given(trees())
def test_each_path_of_the_walk_goes_on_to_its_end(draft):
    parents = parents_of(depth_first(draft))
    leaves = set(range(len(parents))) - set(parents)
    begins = [node for node, parent in enumerate(parents) if parent != node - 1]
    assert [node - 1 for node in begins if node] == sorted(leaves)[:-1]


@given(trees())
def test_the_walk_goes_to_the_likeliest_child_first(draft):
    walked = depth_first(normal(draft))
    for node in (ROOT, *range(len(walked.tokens))):
        children = [child for child, parent in enumerate(parents_of(walked)) if parent == node]
        if walked.survival is not None and walked.parents is not None:
            stated = [walked.survival[child] for child in children]
            assert stated == sorted(stated, reverse=True)


def test_what_is_verified_is_in_that_order(toy_model):
    """Whatever the order of the proposal."""
    level_by_level = Draft(
        tokens=(5, 6, 7, 8, 9, 10), parents=(-1, -1, 0, 1, 1, 2), survival=(0.3, 0.6, 0.2, 0.1, 0.5, 0.1)
    )
    verified = []

    class ByLevels(OracleDrafter):
        def draft(self, request, limit):
            return first(level_by_level, limit)

    class Watch(Observer):
        def observe(self, batch, verdict):
            verified.extend(span.draft for span in batch.spans if span.draft is not None and span.drafted == 6)

    engine = make_engine(toy_model, ByLevels({}, 6)).engine
    watch(engine, Watch())
    run_requests(engine, [toy_request("a", range(1, 9), max_tokens=20, ignore_eos=True)])
    assert verified
    assert all(draft.tokens == (6, 9, 8, 5, 7, 10) for draft in verified)
    assert all(draft.parents == (-1, 0, 0, -1, 3, 4) for draft in verified)
