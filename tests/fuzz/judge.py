"""What must hold after a trial beside equal answers: nothing leaked, nothing kept, right guesses accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.failures import Failure
from fuzz.published import check_published
from fuzz.results import compare
from fuzz.weights import NOT_FINITE
from specserve.engine.drafters import SeveralDrafters
from specserve.engine.drafting import Drafting
from specserve.guards.composer import GuardedComposer
from specserve_adaptive.competition import Competition
from specserve_ngram.observer import NgramObserver

if TYPE_CHECKING:
    from fuzz.fronts.served import Answered
    from fuzz.trial import Trial

ENOUGH_GUESSES = 50
VERIFYING = "the step that verified"


def judge(trial: Trial) -> None:
    for answered in trial.served.all():
        compare_with_alone(trial, answered)
    check_blocks(trial)
    check_published(trial.built)
    check_plugins(trial)
    check_faults(trial)
    check_speculation(trial)


def compare_with_alone(trial: Trial, answered: Answered) -> None:
    """A processor that is switched off leaves out the requests that start later."""
    request, version, result = answered
    processor = trial.processor
    processed = processor is None or request.id in processor.asked
    alone = trial.reference.answer(request, version, processed=processed)
    compare(request, alone, result, may_fail=processor is not None and request.id in processor.raised)


def require(condition: bool, kind: str, message: object = "") -> None:
    if not condition:
        raise Failure(kind, str(message))


def check_blocks(trial: Trial) -> None:
    """Everybody has ended: all blocks are free or known."""
    engine = trial.built.engine
    engine.check_integrity()
    left = [*engine.requests, *engine.scheduler.running, *engine.scheduler.waiting]
    require(not left, "requests are left", left)
    pool = engine.scheduler.pool
    require(pool.num_available == pool.num_blocks and not any(pool.holders), "blocks leaked", pool.holders)
    require(trial.plan.engine.prefix_cache or not pool.hash_of, "blocks are known without a prefix cache")


def check_plugins(trial: Trial) -> None:
    require(trial.adapters.num_pins == 0, "an adapter is still pinned")
    options = trial.plan.engine.ngram
    for observer in trial.built.engine.parts.observers:
        if isinstance(observer, NgramObserver):
            stats = observer.index.stats()
            require(stats["requests"] == 0, "the n-gram index follows requests that ended", stats)
            most = options.get("capacity", 4_000_000) + 64 * options.get("generations", 4)
            require(stats["tokens"] <= most, "the n-gram index holds too much", stats)


def is_no_token(key: tuple[str, str, str]) -> bool:
    return key[:2] == ("core", "request") and key[2].startswith("left no token to choose from")


def check_faults(trial: Trial) -> None:
    """Only parts that are to raise did, and requests whose limits leave no token ended."""
    metrics, plan = trial.built.engine.metrics, trial.plan.engine
    others = {key: n for key, n in metrics.faults.counts.items() if key[0] not in plan.faulty and not is_no_token(key)}
    if trial.plan.model.weights in NOT_FINITE:  # rows without a number have no token that a grammar allows
        others.pop(("grammar", "logits processor", "raised NotAllowedError"), None)
    require(not others, "a part is at fault that should not be", others)
    faults = metrics.drafter_faults
    require({name for name, _ in faults} <= {"evil"}, "a good drafter is at fault", dict(faults))
    require(not any(VERIFYING in reason for _, reason in faults), "checked guesses made a step raise", dict(faults))
    trial.built.engine.observer_metrics()


def check_speculation(trial: Trial) -> None:
    engine, plan = trial.built.engine, trial.plan.engine
    metrics = engine.metrics
    if isinstance(engine.drafting, Drafting) and isinstance(engine.drafting.drafters, SeveralDrafters):
        composer = engine.drafting.drafters.composer
        if isinstance(composer, GuardedComposer) and isinstance(composer.composer, Competition):
            proposals = composer.composer.proposals
            require(not proposals, "proposals of ended requests are kept", [*proposals])
    require(metrics.num_accepted_tokens <= metrics.num_draft_tokens, "more accepted than drafted")
    for request, _, result in trial.served.all():
        wish = request.speculation
        wanted = wish.enabled and wish.max_draft_tokens != 0
        require(wanted or not any(result.accepted), "a guess was accepted where none was wanted", request.id)
        drafters = {*filter(None, result.drafted_by)} - {"planner"}  # which may make some of its own
        require(all(map(wish.allows, drafters)), "a drafter guessed that the request excludes", (request.id, drafters))
    accepted, drafted = metrics.num_accepted_tokens, metrics.num_draft_tokens
    if plan.drafters == ("oracle",) and not trial.plan.events and not plan.faulty:
        # a grammar forces tokens, which are drafted, behind a text that a stop string ends
        forced = any(request.params.structured_output for request, _, _ in trial.served.all())
        every = plan.planner == "all" and not forced
        wrong = accepted != drafted if every else drafted > ENOUGH_GUESSES and not accepted
        require(not wrong, "right guesses are not accepted", f"{accepted} of {drafted}")
    if plan.drafters == ("noisy",) and plan.noisy_p == 1.0 and drafted > ENOUGH_GUESSES and not plan.faulty:
        require(accepted > 0, "right guesses are never accepted", f"0 of {drafted}")
