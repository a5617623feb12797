"""Drafts of several drafters, merged into one tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.batch.drafts import ROOT, parents_of, paths_of
from specserve.batch.merging import Estimated, merge
from specserve.types import Draft

MANY = 99


def estimated(source, tokens, survival, parents=None):
    return Estimated(Draft(tokens=tokens, parents=parents, source=source), survival)


def nodes_of(draft):
    """Tokens of the path to each node -> what the draft says of the node."""
    return {
        tuple(draft.tokens[node] for node in path): (draft.survival[path[-1]], draft.sources[path[-1]])
        for path in paths_of(draft)
    }


@st.composite
def proposals(draw):
    """Two or three trees over three tokens in normal form: siblings differ, no child survives its parent."""
    drafts = []
    for source in "abc"[: draw(st.integers(2, 3))]:
        paths = {(): 1.0}
        for _ in range(draw(st.integers(1, 6))):
            above = draw(st.sampled_from(list(paths)))
            paths.setdefault((*above, draw(st.integers(0, 2))), paths[above] * draw(st.sampled_from((0.25, 0.5, 1.0))))
        order = list(paths)
        parents = tuple(order.index(path[:-1]) - 1 for path in order[1:])
        drafts.append(estimated(source, tuple(p[-1] for p in order[1:]), [paths[p] for p in order[1:]], parents))
    return drafts


def best_estimates(drafts):
    """The oracle of a union: each path with the highest of its estimates."""
    best = {}
    for draft, survival in drafts:
        for path in paths_of(draft):
            tokens = tuple(draft.tokens[node] for node in path)
            best[tokens] = max(best.get(tokens, 0.0), survival[path[-1]])
    return best


def test_the_only_draft_stays_as_it_is():
    only = estimated("a", (1, 2, 3), [0.5, 0.4, 0.3])
    assert merge([only], 2) is only.draft


def test_draft_tokens_after_one_beginning_become_branches():
    union = merge([estimated("a", (1, 2), [0.9, 0.8]), estimated("b", (1, 3), [0.7, 0.6])], MANY)
    assert nodes_of(union) == {(1,): (0.9, "a"), (1, 2): (0.8, "a"), (1, 3): (0.6, "b")}
    assert union.source == "a+b"


def test_a_shared_path_belongs_to_the_drafter_that_is_surest_of_it():
    union = merge([estimated("a", (1, 2), [0.9, 0.3]), estimated("b", (1, 2), [0.8, 0.7])], MANY)
    assert nodes_of(union) == {(1,): (0.9, "a"), (1, 2): (0.7, "b")}


def test_of_equally_sure_drafters_the_first_has_the_token():
    drafts = [estimated("a", (1,), [0.5]), estimated("b", (1,), [0.5])]
    assert nodes_of(merge(drafts, MANY)) == {(1,): (0.5, "a")}
    assert nodes_of(merge(drafts[::-1], MANY)) == {(1,): (0.5, "b")}


@pytest.mark.parametrize(("limit", "kept"), [(1, {(4,)}), (2, {(4,), (4, 5)}), (3, {(4,), (4, 5), (1,)})])
def test_the_limit_leaves_the_likeliest(limit, kept):
    drafts = [estimated("a", (1, 2), [0.5, 0.2]), estimated("b", (4, 5), [0.9, 0.6])]
    assert set(nodes_of(merge(drafts, limit))) == kept


@given(proposals())
def test_the_union_has_every_path_once_with_its_best_estimate(drafts):
    found = nodes_of(merge(drafts, MANY))
    assert {path: survival for path, (survival, _) in found.items()} == best_estimates(drafts)


@given(proposals())
def test_each_token_is_from_a_drafter_that_proposed_it_and_was_surest(drafts):
    best = best_estimates(drafts)
    for path, (_, source) in nodes_of(merge(drafts, MANY)).items():
        own = [each for each in drafts if each.draft.source == source]
        assert best_estimates(own)[path] == best[path]


@given(proposals(), st.integers(1, 12))
def test_what_is_kept_keeps_its_parents_and_is_no_less_likely_than_what_is_not(drafts, limit):
    union = merge(drafts, limit)
    assert len(union.tokens) == min(limit, len(best_estimates(drafts)))
    assert all(ROOT <= parent < node for node, parent in enumerate(parents_of(union)))
    assert sorted(union.survival) == sorted(best_estimates(drafts).values())[-limit:]


@given(proposals(), st.integers(1, 12), st.randoms())
def test_the_order_of_the_drafts_decides_only_between_equals(drafts, limit, random):
    shuffled = random.sample(drafts, len(drafts))
    one, other = merge(drafts, limit), merge(shuffled, limit)
    assert sorted(one.survival) == sorted(other.survival)
    least = min(one.survival)
    above = [{path for path, (survival, _) in nodes_of(each).items() if survival > least} for each in (one, other)]
    assert above[0] == above[1]
