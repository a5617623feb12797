"""Acceptance on fixed inputs: how many draft tokens are accepted when a known text is taken as the output. No model.

A drafter of random tokens is lossless too; these counts show that ours is accepted. The streams are made by a
generator of fixed seed, and the index computes the same on every machine.
"""

from __future__ import annotations

import random
from array import array
from typing import NamedTuple

import pytest

from specserve_ngram._native import Corpus, Index

LIMIT = 16


def make_index(**settings):
    defaults = {
        "match_type": "learned", "capacity": 100_000, "generations": 4, "shared": True, "min_match": 1,
        "max_match": 1024, "min_breadth": 1, "max_breadth": 10, "max_depth": 64, "min_survival": 0.05,
    }  # fmt: skip
    return Index(**(defaults | settings))


class Replayed(NamedTuple):
    steps: int
    drafted: int
    accepted: int


def replay(index, prompt, output, *, limit=LIMIT, namespace=""):
    """Take `output` as what the model generates; accept each draft along it as the verifier would."""
    handle = index.start(namespace, array("i", prompt))
    steps = drafted = accepted = at = 0
    new: list[int] = []
    while at < len(output):
        (draft,) = index.step(array("q", [handle]), array("i", new), array("i", [len(new)]), array("i", [limit]))
        hits = along(draft, output[at:])
        emitted = min(hits + 1, len(output) - at)
        new = output[at : at + emitted]
        at += emitted
        steps, accepted = steps + 1, accepted + emitted - 1
        drafted += len(draft[0]) if draft else 0
    index.stop(handle, array("i", new))
    return Replayed(steps, drafted, accepted)


def along(draft, truth):
    if draft is None:
        return 0
    tokens, parents, _ = draft
    at, depth = -1, 0
    for node, token in enumerate(tokens):
        parent = node - 1 if parents is None else parents[node]
        if parent == at and depth < len(truth) and token == truth[depth]:
            at, depth = node, depth + 1
    return depth


def words(seed, count, vocabulary=500):
    """Tokens that hardly repeat."""
    source = random.Random(seed)
    return [source.randrange(vocabulary) for _ in range(count)]


def edited(text, seed, every=40):
    """A copy in which about every `every` tokens something is replaced, inserted or left out."""
    source, copy, at = random.Random(seed), [], 0
    while at < len(text):
        stretch = source.randrange(every // 2, every * 3 // 2)
        copy += text[at : at + stretch]
        at += stretch
        kind = source.randrange(3)
        if kind != 2:
            copy += [1000 + source.randrange(100) for _ in range(source.randrange(1, 4))]
        if kind != 1:
            at += source.randrange(1, 4)
    return copy


@pytest.mark.parametrize("match_type", ["learned", "prob", "bfs"])
def test_a_text_that_repeats_its_prompt_is_drafted_to_the_limit(match_type):
    text = words(1, 400)
    found = replay(make_index(match_type=match_type), text, text)
    # the first token finds the match, and the estimates of a new server rise with every hit
    assert found.steps <= 400 / (LIMIT + 1) + 12
    assert found.accepted / found.drafted > 0.9


def test_an_edited_copy_costs_few_steps_per_edit():
    text = words(2, 1200)
    copy = edited(text, 3)
    index = make_index()
    replay(index, words(4, 600), edited(words(4, 600), 5))  # from which the server learns what edits are like
    found = replay(index, text, copy)
    assert found == Replayed(steps=112, drafted=1789, accepted=1072)
    assert found.steps < len(copy) / 8


def test_after_an_edit_the_alignment_predicts_how_the_text_goes_on():
    """After a new token no context matches; only the alignment knows how the text may go on."""
    text = list(range(100, 160))
    index = make_index()
    handle = index.start("", array("i", [*text, 7]))
    follow = [*text[:20], 999]
    for token in follow[:-1]:
        index.step(array("q", [handle]), array("i", [token]), array("i", [1]), array("i", [LIMIT]))
    (draft,) = index.step(array("q", [handle]), array("i", [999]), array("i", [1]), array("i", [LIMIT]))
    tokens, parents, _ = draft
    roots = [token for token, parent in zip(tokens, parents or range(-1, 99), strict=False) if parent == -1]
    assert text[20] in roots, "as after an insertion"
    assert text[21] in roots, "as after a replacement"


def test_random_text_is_hardly_drafted():
    index = make_index()
    replay(index, words(6, 500), words(7, 500))
    found = replay(index, words(8, 500), words(9, 500))
    assert found.drafted < 100


def test_a_second_request_drafts_from_the_first_and_only_in_its_namespace():
    text = words(10, 300)
    index = make_index()
    alone = replay(index, words(11, 50), text, namespace="a")
    again = replay(index, words(12, 50), text, namespace="a")
    elsewhere = replay(index, words(13, 50), text, namespace="b")
    assert again.steps < 60 < 200 < alone.steps
    assert elsewhere.steps > 200


def test_without_sharing_every_request_is_on_its_own():
    text = words(10, 300)
    index = make_index(shared=False)
    replay(index, words(11, 50), text)
    assert replay(index, words(12, 50), text).steps > 200


def test_a_corpus_is_drafted_from_while_it_is_there():
    text, corpus = words(14, 300), Corpus()
    corpus.add(array("i", text))
    index = make_index()
    index.add_corpus("c", corpus)
    with_it = replay(index, words(15, 50), text, namespace="a")
    assert index.remove_corpus("c")
    without = replay(index, words(16, 50), text, namespace="b")
    assert with_it.steps < 80
    assert without.steps > 200


def test_evicted_text_is_not_drafted_from():
    text = words(17, 300)
    index = make_index(capacity=1000, max_depth=8)
    replay(index, words(18, 20), text)
    for i in range(8):
        replay(index, words(20 + i, 200), words(30 + i, 200))
    assert index.stats()["evicted_generations"] > 0
    assert index.stats()["tokens"] <= 1000
    assert replay(index, words(40, 50), text).steps > 200


def test_the_budget_is_kept_and_used():
    text = words(50, 500)
    for limit in (1, 4, 32):
        found = replay(make_index(), text, text, limit=limit)
        assert found.drafted <= found.steps * limit
        assert found.steps >= len(text) / (limit + 1)


def test_what_a_server_has_learned_serves_the_next_request():
    index = make_index()
    first = replay(index, words(60, 300), edited(words(60, 300), 61), namespace="a")
    second = replay(index, words(62, 300), edited(words(62, 300), 61), namespace="b")
    assert second.steps < first.steps


def test_survival_estimates_are_calibrated():
    """In each tenth that holds a hundredth of the draft tokens: on edits alone, from a server that has seen some. The
    priors of a new one are for a mix of texts."""
    index, stated = make_index(), [[0, 0.0, 0] for _ in range(10)]
    for seed in range(67):
        text = words(100 + seed, 800, vocabulary=120)
        judge = stated if seed >= 40 else [[0, 0.0, 0] for _ in range(10)]
        judge_nodes(index, text, edited(text, 200 + seed), judge)
    total = sum(count for count, _, _ in stated)
    for count, sum_stated, hits in stated:
        if count >= 0.01 * total:
            assert abs(sum_stated - hits) / count < 0.1, stated


def judge_nodes(index, prompt, output, judge):
    handle, at, new = index.start("", array("i", prompt)), 0, []
    while at < len(output) - LIMIT:
        (draft,) = index.step(array("q", [handle]), array("i", new), array("i", [len(new)]), array("i", [LIMIT]))
        tokens, parents, survival = draft or ((), (), ())
        true_depth = {-1: 0}
        for node, (token, own) in enumerate(zip(tokens, survival, strict=True)):
            parent = node - 1 if parents is None else parents[node]
            depth = true_depth.get(parent)
            hit = depth is not None and output[at + depth] == token
            if hit:
                true_depth[node] = depth + 1
            cell = judge[min(9, int(own * 10))]
            cell[0], cell[1], cell[2] = cell[0] + 1, cell[1] + own, cell[2] + hit
        emitted = max(true_depth.values()) + 1
        new = output[at : at + emitted]
        at += emitted
    index.stop(handle, array("i"))
