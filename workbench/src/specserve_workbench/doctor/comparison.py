"""What two trials say of each other: whether their tokens are the same, and which is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_workbench.doctor.rows import Row

if TYPE_CHECKING:
    from specserve_workbench.doctor.trial import Round, Trial

SLOWER = 0.8
FEW = 32
"""Tokens that prove little."""
REPORT = "this must not happen: report it with the output of specserve doctor --json"


def speed_without_drafts(plain: Trial) -> Row:
    found, figures = speed_text(plain), {"tokens_per_second": plain.tokens_per_second}
    if again := difference(plain.rounds[0], plain):
        return Row("without drafts", "failed", f"not the same tokens each time: {again}", REPORT, figures)
    return Row("without drafts", "ok", found, figures=figures)


def speed_with_drafts(plain: Trial, trial: Trial) -> Row:
    ratio = trial.tokens_per_second / max(plain.tokens_per_second, 1e-9)
    found = f"{speed_text(trial)}, {ratio:.2f} times the speed without"
    figures = {"tokens_per_second": trial.tokens_per_second, "ratio": ratio}
    if ratio < SLOWER:
        advice = "drafts cost more than they gain on these few texts: measure with your own"
        return Row("with drafts", "note", found, advice, figures)
    return Row("with drafts", "ok", found, figures=figures)


def speed_text(trial: Trial) -> str:
    digits = 0 if trial.tokens_per_second >= 10 else 1
    return f"{trial.tokens_per_second:.{digits}f} tokens/s"


def compared(check: str, plain: Trial, trial: Trial) -> Row:
    """Whether the tokens are those without drafts, and how many draft tokens were accepted."""
    count, metrics = num_compared(plain.rounds[0], trial), trial.engine.metrics
    accepted, drafted = metrics.num_accepted_tokens, metrics.num_draft_tokens
    figures = {"compared": count, "drafted": drafted, "accepted": accepted}
    if differs := difference(plain.rounds[0], trial):
        found = f"{trial.drafters}: {differs}"
        if reason := no_guarantee(plain, trial):
            return Row(check, "warning", f"{found}; {reason}", figures=figures)
        return Row(check, "failed", found, REPORT, figures)
    found = f"{trial.drafters}: the same {count} tokens; {accepted} of {drafted} draft tokens accepted"
    if count < FEW or not accepted:
        return Row(check, "note", found, "too few in the time of this test to prove much", figures)
    return Row(check, "ok", found, figures=figures)


def no_guarantee(plain: Trial, trial: Trial) -> str:
    """Why these two need not give the same tokens; empty where they must."""
    for part in ("kernels", "attention"):
        if plain.description[part] != trial.description[part]:
            return f"without drafts other {part} serve ({plain.description[part]}, not {trial.description[part]})"
    if not trial.description["lossless"]:
        return "the verifier is lossy"
    if not trial.description["row_invariant"]:
        return "equal tokens are not guaranteed on this device yet"
    return ""


def difference(expected: Round, trial: Trial) -> str:
    """The first token of a trial that differs from those of a round without drafts, in words; empty where none does."""
    for each in trial.rounds:
        for name, tokens in each.tokens.items():
            for place, (got, wanted) in enumerate(zip(tokens, expected.tokens.get(name, ()), strict=False)):
                if got != wanted:
                    return f"request {name}: token {place} is {got}, and {wanted} without drafts"
    return ""


def num_compared(expected: Round, trial: Trial) -> int:
    return sum(
        min(len(tokens), len(expected.tokens.get(name, ())))
        for each in trial.rounds
        for name, tokens in each.tokens.items()
    )
