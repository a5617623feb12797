"""docs/plugins/token_recycling.md: its plugin is installed as the page shows it, and drafts what the method says."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
import torch
from conformance_runs import counts_of, run_kit, table_of
from doc_examples import check_page_types, install_page
from transformers import AutoModelForCausalLM

from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.text.tokenizer import HfTokenizer
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_server.cli import main
from specserve_workbench.testing.engines import make_engine, run_requests, verify_everything, watch
from specserve_workbench.testing.requests import toy_request

PAGE = "token_recycling.md"
CHANCES = (0.5, 0.15, 0.08, 0.05)
PARTNERS = ("adaptive", "eagle", "hybrid_attn", "lora", "ngram")


@pytest.fixture
def installed(site):
    return install_page(site, PAGE)


# --- a loop of its own ----------------------------------------------------------------------------------


def reference_tree(followers, root, limit):
    """The likeliest nodes, found among all paths: {path: its node}, the likeliest first."""
    paths = {(): 1.0}
    for path in iter_paths(followers, root, depth=7):
        paths[path] = chance_of(followers, root, path)
    ranked = sorted((path for path in paths if path), key=lambda path: -paths[path])
    return ranked[:limit]


def iter_paths(followers, root, depth):
    level = [()]
    for _ in range(depth):
        level = [(*path, token) for path in level for token in followers.get((path or (root,))[-1], ())]
        level = sorted(level, key=lambda path: -chance_of(followers, root, path))[:64]
        yield from level


def chance_of(followers, root, path):
    return math.prod(CHANCES[followers[before].index(token)] for before, token in itertools.pairwise((root, *path)))


def reference_counts(model, prompt, max_tokens, limit):
    """Greedy decoding with drafts of `limit` nodes: (tokens, draft tokens, accepted ones)."""
    logits = lambda tokens: model(torch.tensor([tokens])).logits[0, -1]  # noqa: E731
    best = lambda tokens: logits(tokens).topk(4).indices.tolist()  # noqa: E731
    tokens, followers, drafted, accepted = list(prompt), {}, 0, 0
    followers[tokens[-1]] = best(tokens)
    tokens.append(followers[tokens[-1]][0])
    while len(tokens) < len(prompt) + max_tokens:
        left = len(prompt) + max_tokens - len(tokens) - 1
        tree = reference_tree(followers, tokens[-1], limit) if left else []
        tree = [path for path in tree if len(path) <= left]
        drafted += len(tree)
        learned = [(tokens[-1], best(tokens)), *((path[-1], best([*tokens, *path])) for path in tree)]
        path = ()
        while True:
            token = int(logits([*tokens, *path]).argmax())
            if (*path, token) not in tree:
                break
            path = (*path, token)
        accepted += len(path)
        tokens += [*path, token]
        followers.update(learned)
    return tokens[len(prompt) :], drafted, accepted


@pytest.fixture(scope="module")
def reference(demo_model):
    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32)
    prompt = HfTokenizer.from_dir(demo_model).encode("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return")
    with torch.inference_mode():
        return prompt, *reference_counts(model, prompt, 40, limit=12)


@pytest.mark.parametrize("others", [(), ("hybrid_attn",), ("lora",)], ids="+".join)
@pytest.mark.usefixtures("installed")
def test_it_accepts_as_many_draft_tokens_as_the_loop(demo_model, reference, site, others, monkeypatch):
    monkeypatch.undo()  # the other plugins are found again
    monkeypatch.syspath_prepend(str(site))
    prompt, tokens, drafted, accepted = reference
    engine = make_engine(demo_model, plugins=("token_recycling", *others), dtype="float32").engine
    verify_everything(engine, 12)
    outcome = run_requests(engine, [toy_request("a", prompt, max_tokens=40, ignore_eos=True)])
    assert outcome.tokens()["a"] == tokens
    assert (outcome.metrics.num_draft_tokens, outcome.metrics.num_accepted_tokens) == (drafted, accepted)
    assert accepted > 10


class VerifiedDrafts:
    """Keeps every draft that was verified, and how many tokens its request had generated before."""

    def __init__(self):
        self.drafts = []

    def observe(self, batch, verdict):
        for span in batch.spans:
            if span.draft is not None:
                generated = span.start + span.known - span.request.prompt_len
                self.drafts.append((generated, span.draft))

    def metrics(self):
        return []


class BothPropose(Competition):
    """In every step, whatever that costs."""

    def limits(self, drafter, drafts):
        return [each.limit for each in drafts]


def expected_counts(drafts, tokens):
    """{drafter: [drafted, accepted]} of these drafts, if a draft token is right where the loop decided it, too."""
    counts = defaultdict(lambda: [0, 0])
    for generated, draft in drafts:
        parents = draft.parents or range(-1, len(draft.tokens) - 1)
        drafters = draft.sources or [draft.source] * len(draft.tokens)
        right = {-1: generated}
        for node, (token, parent, drafter) in enumerate(zip(draft.tokens, parents, drafters, strict=True)):
            counts[drafter][0] += 1
            if parent in right and tokens[right[parent]] == token:
                counts[drafter][1] += 1
                right[node] = right[parent] + 1
    return dict(counts)


@pytest.mark.parametrize(("other", "options"), [("ngram", {}), ("eagle", {"eagle": {"model": "demo-eagle3"}})])
@pytest.mark.usefixtures("installed")
def test_beside_another_drafter_exactly_the_right_draft_tokens_of_both_are_accepted(
    demo_model, reference, site, other, options, monkeypatch
):
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(site))
    prompt, tokens, _, _ = reference
    plugins = ("token_recycling", other)
    planner = FixedWidthPlanner(48)
    planner.composer = BothPropose(Planner("fair", 0.0), None, scores_all=True)
    given = {"plugins": plugins, "plugin_options": options, "dtype": "float32", "planner": planner}
    engine = make_engine(demo_model, **given).engine
    watch(engine, verified := VerifiedDrafts())
    outcome = run_requests(engine, [toy_request("a", prompt, max_tokens=40, ignore_eos=True)])
    assert outcome.tokens()["a"] == tokens
    counts = {
        name: [drafted, outcome.metrics.accepted_tokens_by_drafter[name]]
        for name, drafted in outcome.metrics.draft_tokens_by_drafter.items()
    }
    assert counts == expected_counts(verified.drafts, tokens)
    assert set(counts) == set(plugins)
    assert sum(accepted for _, accepted in counts.values()) > 10


@pytest.mark.sweep
def test_it_passes_the_conformance_kit_alone_and_beside_every_plugin(tmp_path, toy_model):
    install_page(tmp_path, PAGE)
    settings = (f"eagle.model={toy_model}", "eagle.steps=3")
    code, said = run_kit(tmp_path, "token_recycling", site=tmp_path, settings=settings)
    assert code == 0, said
    table = table_of(said)
    for partner in PARTNERS:
        assert f"passed  token_recycling: with {partner} " in table
    assert sum(counts_of(table)) > 1000


def test_check_load_says_ok(installed, site, capsys):
    assert main(["plugins", "check", "--load", "token_recycling"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "ok."


def test_it_is_well_typed(tmp_path):
    check_page_types(PAGE, tmp_path)
