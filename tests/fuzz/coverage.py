"""Whether a run reached enough: a generator that never makes some kind of trial must not look clean.

Every kind has a share: it is reached in at least that share of trials, by a wide margin. A run of N trials in which a
kind of share p was never reached fails where that has a chance below MISSED_BY_CHANCE, that is, where (1 - p) ** N is.
So kinds of share 0.2 are required from 62 trials on, and kinds of share 0.008 from 1721 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.drawing.engines import INSTRUCTION_SETS
from fuzz.drawing.models import FAMILIES
from fuzz.drawing.relatives import RELATIVES
from specserve_cpu._native import instruction_sets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MISSED_BY_CHANCE = 1e-6

SHARES: dict[float, tuple[str, ...]] = {
    0.2: (
        *("kernels cpu", "kernels torch", "one thread", "several threads", "front sync", "drafters 1", "mode mixed"),
        *("family llama", "dtype float32", "dtype bfloat16", "heads MHA", "heads GQA", "rope default", "tied head"),
        *("attention sdpa", "attention cpu_paged", "planner all", "planner chaos", "prefix hit", "greedy", "sampled"),
        *(
            "field temperature",
            "field seed",
            "field ignore_eos",
            "field logprobs",
            "field prompt_logprobs",
            "field stop",
        ),
        *("field top_k", "field top_p", "field min_p", "field repetition_penalty", "field presence_penalty"),
        *("field frequency_penalty", "field logit_bias", "field allowed_token_ids", "field bad_words"),
        *("field stop_token_ids", "field min_tokens", "field include_stop_str_in_output", "field skip_special_tokens"),
        *(
            "priority",
            "cache salt",
            "speculation declined",
            "ended by length",
            "ended by stop",
            "ended by a stop string",
        ),
        *("drafter ngram", "weights plain", "odd width"),
    ),
    0.08: (
        *("dtype float16", "heads MQA", "odd head size"),
        *("sliding window", "mode pressure", "mode turns", "mode choices", "front async", "planner own", "preempted"),
        *("aborted", "ended by abort", "id used again", "slow reader"),
        *("KV events map", "KV events array", "KV events published"),
        *(
            "served under an adapter",
            "drafter noisy",
            "drafter uno",
            "processor edit",
            "allowed tokens alone",
            "empty bias",
        ),
        *(
            "drafters 2",
            "drafters of its own",
            "graphs piecewise, ran piecewise",
            "graphs full, ran full",
            "graphs full, ran none",
        ),
    ),
    0.04: (
        *(f"family {name}" for name in FAMILIES if name not in ("llama", *RELATIVES)),
        *("rope linear", "rope dynamic", "rope llama3", "rope yarn", "rope longrope", "weights sticky"),
        *(
            "processor apply",
            "drafter oracle",
            "drafter repeat",
            "drafter eagle",
            "ngram learned",
            "ngram bfs",
            "ngram prob",
        ),
        *(
            "refused at admission",
            "ngram corpus",
            "accepted from ngram",
            "accepted from noisy",
            "accepted from eagle",
            "accepted from several",
            "hybrid attention",
        ),
        *("hidden states seen", "adapter replace", "adapter unload", "adapter load", "no room for an adapter"),
        *("weights kept as int8", "weights kept as int8-g64", "weights kept as int4", "8-bit cache"),
        *("activations as int8", "activations as float"),
        *("grammar", "field structured_output"),
        *("end of text of its own", "drafter evil", "drafter at fault", "planner at fault", "observer at fault"),
    ),
    0.02: (
        *(f"family {name}" for family, (relative, _) in RELATIVES.items() for name in (family, relative)),
        *("weights peaked", "weights flat", "weights ties", "weights poison", "weights tiny", "weights hopeless"),
        *("quantised w4", "quantised w4 asymmetric", "quantised w8 asymmetric"),
        *("rope partial", "drafters 0", "drafters 3", "drafter switched off"),
        *("accepted from oracle", "observer switched off", "planner switched off", "stored in another dtype"),
    ),
    0.008: (
        *(
            "layers by transformers",
            "family demo",
            "end of text beyond the vocabulary",
            "processor at fault",
            "ended by error",
        ),
        "compared with transformers",
        "drafter eagle, a dspark head",
        "drafter eagle, a peagle head",
        "accepted from uno",
        *(f"instruction set {name}" for name in INSTRUCTION_SETS),
    ),
    0.004: (
        *("accepted from repeat", "processor switched off", "ranks 2"),
        *("quantised gptq", "quantised gptq ordered", "quantised awq"),
    ),
}


def expected_here() -> dict[str, float]:
    """Share by kind; without instruction sets that this processor lacks."""
    lacking = {f"instruction set {name}" for name in INSTRUCTION_SETS if name not in instruction_sets()}
    return {kind: share for share, kinds in SHARES.items() for kind in kinds if kind not in lacking}


def missed(counts: Mapping[str, int], trials: int, expected: Mapping[str, float]) -> list[str]:
    """Kinds that a sound generator would have reached in `trials` trials."""
    required = (kind for kind, share in expected.items() if (1 - share) ** trials < MISSED_BY_CHANCE)
    return [kind for kind in required if not counts.get(kind)]


def table(counts: Mapping[str, int], kinds: Iterable[str]) -> str:
    """Trials per kind, several to a line."""
    entries = [f"{kind} {counts.get(kind, 0)}" for kind in sorted(kinds)]
    return "\n".join("  " + ", ".join(entries[i : i + 6]) for i in range(0, len(entries), 6))
