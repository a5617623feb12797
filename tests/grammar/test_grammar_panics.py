"""Grammars of which the library panics: llguidance 1.9 does behind `thee` of this one. The lexer that all matchers of
the grammar share is of no more use then; only the request that brought it there ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grammar_cases import grammar_engine, structured, wanted

from specserve.text.tokenizer import HfTokenizer
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.matching import Matching, NotAllowedError
from specserve_grammar.options import GrammarOptions
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable

FORM = wanted("grammar", 'start: "the" thought body | body\nthought[lazy]: /(.|\\n)*/ "e"\nbody: "the first" | "none"')
ENDS = frozenset({EOS_ID})


@pytest.fixture(scope="module")
def spelt(toy_model):
    """The tokens of `thee`: `th`, `e`, `e`."""
    return HfTokenizer.from_dir(toy_model).encode("thee")


def test_only_the_request_ends_for_which_the_library_panics(toy_model, spelt):
    engine, (th, e, _) = grammar_engine(toy_model), spelt
    bad = structured("bad", range(4), FORM, logit_bias={th: 50.0, e: 100.0})
    others = [structured(f"{seed}", range(5), FORM, temperature=1.0, seed=seed) for seed in range(6)]
    alone = run_requests(grammar_engine(toy_model), others).decided()
    outcome = run_requests(engine, [bad, *others])
    assert "the grammar library failed on this grammar behind" in str(outcome.outputs["bad"].steps[-1].error)
    assert {name: outcome.decided()[name] for name in alone} == alone
    assert any(len(tokens) > 3 for name, tokens in outcome.tokens().items() if name != "bad")
    assert run_requests(engine, others).decided() == alone


OPERATIONS: dict[str, Callable[[Matching, int], object]] = {
    "forced": lambda matching, e: matching.forced(()),
    "forced behind a path": lambda matching, e: matching.forced((e,)),
    "allows": lambda matching, e: matching.allows((), e),
    "allows an end": lambda matching, e: matching.allows((), EOS_ID),
    "allowed": lambda matching, e: matching.allowed(()).tolist(),
    "num_allowed": lambda matching, e: matching.num_allowed((e,)),
    "coming": lambda matching, e: matching.coming(),
    "commit": lambda matching, e: (matching.commit((e,)), matching.allowed(()).tolist()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_question_has_the_answer_that_it_had_before_the_panic(name, toy_model, spelt):
    def behind(*tokens):
        matching = Matching(grammars.matcher(FORM), TOY_VOCAB, ENDS, lambda: grammars.recompiled(FORM))
        matching.commit(tokens)
        return matching

    th, e, _ = spelt
    grammars = Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), GrammarOptions())
    expected = OPERATIONS[name](behind(th), e)
    neighbour, bad = behind(th), behind(th, e)
    with pytest.raises(NotAllowedError, match="the grammar library failed"):
        bad.allows((e,), e)
    assert OPERATIONS[name](neighbour, e) == expected
