"""A request ends at the token that completes it, and nowhere else, however many tokens a step finds."""

from __future__ import annotations

import pytest

from specserve.text.detokenizer import IncrementalDetokenizer
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy_tokenizer import EOS_ID

PROMPT = range(1, 30)


@pytest.fixture(scope="module")
def free(toy_model):
    """48 greedy tokens that nothing stops."""
    return run(toy_model, [request(ignore_eos=True)]).tokens()["r"]


def request(**params):
    return toy_request("r", PROMPT, **({"max_tokens": 48} | params))


def first_new(tokens, start):
    """The first index from `start` on whose token did not occur before."""
    return next(i for i in range(start, len(tokens)) if tokens[i] not in tokens[:i])


def both_ways(model, asked, future, width=8, **options):
    """(plain output, speculative output) whose guesses go on past any stop."""
    plain = run(model, [asked], **options)
    drafter = OracleDrafter({asked.request_id: future}, width)
    guessed = run(model, [asked], drafter, **options)
    assert not guessed.metrics.drafter_faults
    assert guessed.decided() == plain.decided()
    return plain.outputs["r"], guessed.outputs["r"]


@pytest.mark.parametrize("width", [1, 3, 16])
def test_a_stop_id_ends_the_request_and_is_its_last_token(toy_model, free, width):
    end = first_new(free, 6)
    plain, guessed = both_ways(toy_model, request(stop_token_ids=(free[end],)), free, width)
    assert plain.tokens == free[: end + 1]
    assert plain.finish_reason == "stop"
    figures = guessed.steps[-1].stats
    assert figures.num_accepted_draft_tokens > 0
    assert guessed.steps[-1].stop_string is None


@pytest.mark.parametrize("width", [1, 3, 16])
def test_end_of_text_ends_the_request_unless_ignored(toy_model, free, width):
    end = first_new(free, 9)
    bias = {EOS_ID: 100.0}
    plain, _ = both_ways(toy_model, request(logit_bias=bias), [EOS_ID] * 48, width)
    assert (plain.tokens, plain.finish_reason) == ([EOS_ID], "stop")
    plain, _ = both_ways(toy_model, request(logit_bias=bias, ignore_eos=True), [EOS_ID] * 48, width)
    assert (plain.tokens, plain.finish_reason) == ([EOS_ID] * 48, "length")
    plain, _ = both_ways(toy_model, request(logit_bias=bias, min_tokens=end), [*free[:end], EOS_ID, EOS_ID], width)
    assert plain.tokens == [*free[:end], EOS_ID]


def test_stop_ids_count_even_where_end_of_text_is_ignored(toy_model, free):
    plain, _ = both_ways(toy_model, request(stop_token_ids=(free[0],), ignore_eos=True), free)
    assert (plain.tokens, plain.finish_reason) == (free[:1], "stop")


def readable(model):
    """A request whose text is plain ASCII letters, its free tokens, and its text."""
    letters = tuple(range(65, 91))  # the byte-level alphabet starts with printable ASCII: these are lower-case letters
    asked = {"allowed_token_ids": letters, "ignore_eos": True, "temperature": 1.0, "seed": 5}
    assembled = make_engine(model)
    tokens = run_requests(assembled.engine, [request(**asked)]).tokens()["r"]
    text = assembled.tokenizer.decode(tokens)
    assert len(text) == len(tokens) == 48
    return asked, tokens, text, assembled.tokenizer


@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_stop_string_ends_the_request_at_the_token_that_completes_it(toy_model, width, length):
    asked, tokens, text, tokenizer = readable(toy_model)
    stop = text[20 : 20 + length]
    end = text.index(stop) + length
    plain, guessed = both_ways(toy_model, request(**asked, stop=(stop, "%%")), tokens, width)
    for output in (plain, guessed):
        assert output.tokens == tokens[:end]
        assert (output.finish_reason, output.steps[-1].stop_string) == ("stop", stop)
        detokenizer = IncrementalDetokenizer(tokenizer.stream(PROMPT), (stop, "%%"))
        pieces = [
            detokenizer.push(d.tokens, finish_reason=d.finish_reason, stop_string=d.stop_string)[0]
            for d in output.steps
        ]
        assert "".join(pieces) == text[: end - length]


def test_a_stop_string_inside_an_accepted_draft_cuts_every_count_at_the_completing_token(toy_model):
    asked, tokens, text, _ = readable(toy_model)
    stop = text[18:21]
    end = text.index(stop) + 3
    counts = {}
    for name, drafter in (("plain", None), ("guessed", OracleDrafter({"r": tokens}, 16))):
        engine = make_engine(toy_model, drafter).engine
        live = engine.add(request(**asked, stop=(stop,)))
        outcome = run_requests(engine, [])
        again = run_requests(engine, [toy_request("again", [*PROMPT, *tokens], max_tokens=1)])
        counts[name] = (
            live.tokens,
            live.computed,
            live.num_published,
            outcome.metrics.generation_tokens - 1,
            again.outputs["again"].steps[0].cached_tokens,
        )
    assert counts["plain"] == counts["guessed"]
    total = len(PROMPT) + end
    assert counts["plain"] == ([*PROMPT, *tokens[:end]], total - 1, (total - 1) // 16, end, (total - 1) // 16 * 16)


def test_the_flags_of_a_cut_draft_cover_exactly_its_tokens(toy_model, free):
    end = first_new(free, 6)
    _, guessed = both_ways(toy_model, request(stop_token_ids=(free[end],), logprobs=2), free, 16)
    last = guessed.steps[-1]
    assert len(last.accepted) == len(last.tokens) == len(last.logprobs)
    assert all(last.accepted), "the stop lay within the draft, so every token of the step was a guess"
    assert last.stats.num_accepted_draft_tokens == sum(sum(d.accepted) for d in guessed.steps)


@pytest.mark.parametrize("width", [1, 5, 16])
def test_no_end_comes_before_min_tokens(toy_model, free, width):
    first, second = free[0], free[first_new(free, 8)]
    stops = (first, second)
    plain, _ = both_ways(toy_model, request(stop_token_ids=stops), free, width)
    assert plain.tokens == [first]
    plain, _ = both_ways(toy_model, request(stop_token_ids=stops, min_tokens=12), free, width)
    assert len(plain.tokens) > 12
    assert not set(stops) & set(plain.tokens[:12]), "before min_tokens a stop id cannot even be chosen"


@pytest.mark.parametrize("width", [1, 5, 16])
def test_a_stop_string_before_min_tokens_is_read_over(toy_model, width):
    asked, tokens, text, _ = readable(toy_model)
    stop = text[4]
    later = text.find(stop, 12)
    plain, _ = both_ways(toy_model, request(**asked, stop=(stop,), min_tokens=12), tokens, width)
    assert len(plain.tokens) == (48 if later < 0 else later + 1)
    exact, _ = both_ways(toy_model, request(**asked, stop=(stop,), min_tokens=text.index(stop) + 1), tokens, width)
    assert len(exact.tokens) == text.index(stop) + 1


@pytest.mark.parametrize("max_tokens", [1, 2, 9, 10, 48])
def test_max_tokens_is_exact(toy_model, free, max_tokens):
    plain, guessed = both_ways(toy_model, request(max_tokens=max_tokens, ignore_eos=True), free, 4)
    assert (plain.tokens, plain.finish_reason) == (free[:max_tokens], "length")
    figures = guessed.steps[-1].stats
    assert figures.num_draft_tokens == figures.num_accepted_draft_tokens, "nothing is guessed beyond the end"


@pytest.mark.parametrize("width", [3, 32])
def test_the_context_ends_a_request_and_no_guess_reaches_past_it(toy_model, free, width):
    plain, _ = both_ways(toy_model, request(ignore_eos=True), free, width, max_model_len=40)
    assert (plain.tokens, plain.finish_reason) == (free[:11], "length")


def test_guesses_beyond_the_context_are_harmless(toy_model, free):
    """A drafter that does not know where the context ends proposes past it."""
    endless = [*free[:11], *[3] * 99]
    plain, guessed = both_ways(toy_model, request(ignore_eos=True), endless, 32, max_model_len=40)
    assert guessed.tokens == plain.tokens == free[:11]


def test_a_stop_id_wins_over_max_tokens_at_the_same_token(toy_model, free):
    end = first_new(free, 5)
    plain, _ = both_ways(toy_model, request(stop_token_ids=(free[end],), max_tokens=end + 1), free)
    assert (len(plain.tokens), plain.finish_reason) == (end + 1, "stop")


def test_of_two_stop_strings_that_one_token_completes_the_one_that_begins_first_counts(toy_model):
    asked, tokens, text, _ = readable(toy_model)
    longer, shorter = text[28:31], text[30]
    plain, _ = both_ways(toy_model, request(**asked, stop=(shorter, longer), min_tokens=31), tokens)
    assert (plain.steps[-1].stop_string, len(plain.tokens)) == (longer, 31)
