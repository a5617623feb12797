"""One trial: write, build, draw the requests where they are not given, serve, judge."""

from __future__ import annotations

import gc
import shutil
import signal
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from fuzz.adapter_files import write_adapter
from fuzz.block_heads import write_block_head
from fuzz.building import Files, attention_of, build_tested, instruction_set_of, write_corpus
from fuzz.drawing.requests import World, draw_requests
from fuzz.failures import Failure, TooSlowError, as_failure
from fuzz.fronts.served import Served
from fuzz.fronts.stepping import Stepping
from fuzz.fronts.streaming import Streaming
from fuzz.judge import judge
from fuzz.live_adapters import LiveAdapters
from fuzz.parallel_heads import write_parallel_head
from fuzz.parity import compare_with_transformers
from fuzz.parts.plugins import OWN_DRAFTERS, make_drafter, make_processor
from fuzz.plans import changed
from fuzz.reached import figures_of, kinds_of
from fuzz.reference import Reference, version_name
from fuzz.weights import write_model
from fuzz.wire import as_request
from specserve.errors import RequestError
from specserve.models.read_config import read_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.parts.guessing import Oracle
    from fuzz.plans import Plan, RequestPlan

LIMIT_SECONDS = 240
HEADS = {"dspark": write_block_head, "peagle": write_parallel_head}


class Outcome(NamedTuple):
    plan: Plan
    """With its requests, as far as they were drawn."""
    failure: Failure | None
    kinds: set[str]
    """What was reached; nothing where it failed."""
    figures: Counter[str]


def run_trial(plan: Plan, *, limit_seconds: int = LIMIT_SECONDS) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="specserve-fuzz-"))
    trial = Trial(plan, folder)
    failure = None
    try:
        with time_limit(limit_seconds):
            trial.run()
    except (Exception, TooSlowError) as error:  # whatever leaves a trial is a finding
        failure = as_failure(error)
    finally:
        trial.closing.close()
        shutil.rmtree(folder, ignore_errors=True)
        torch.set_num_threads(1)
        gc.collect()
    if failure is not None:
        return Outcome(trial.plan, failure, set(), Counter())
    return Outcome(trial.plan, None, kinds_of(trial), figures_of(trial))


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooSlowError in the main thread after so long."""

    def expire(number: int, frame: object) -> None:
        raise TooSlowError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Trial:
    """Its attributes are made in the order of `run`; `judge`, `parity` and `coverage` read them."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.num_refused = self.num_compared = 0
        """Requests that admission refused, and those that transformers was asked about."""
        self.closing = ExitStack()
        """Ends the processes of ranks."""

    def run(self) -> None:
        self.write()
        self.build()
        if self.plan.requests is None:
            self.draw()
        for request in self.plan.requests or ():
            self.futures[request.id] = self.reference.answer(request).tokens
        self.served = Served(self.built.tokenizer)
        self.adapters = LiveAdapters(self.plan, self.built, self.adapter_paths)
        front = Stepping if self.plan.engine.front == "sync" else Streaming
        front(self.plan, self.built, self.adapters, self.served).run()
        judge(self)
        self.num_compared = compare_with_transformers(self) if self.plan.transformers else 0

    def write(self) -> None:
        model = write_model(self.plan.model, self.folder / "model")
        self.adapter_paths = {
            (adapter.name, version): write_adapter(self.folder / version_name(adapter.name, version), model, seed)
            for adapter in self.plan.adapters
            for version, seed in enumerate(adapter.seeds)
        }
        first = {name: path for (name, version), path in self.adapter_paths.items() if version == 0}
        wants_corpus = self.plan.engine.corpus and "ngram" in self.plan.engine.drafters
        corpus = write_corpus(self.folder / "corpus.txt", self.plan.engine.seed) if wants_corpus else None
        kind = self.plan.engine.head
        head = HEADS[kind](model, self.folder / "head") if kind else None
        draft_adapter = None
        if "uno" in self.plan.engine.drafters:
            draft_adapter = write_adapter(self.folder / "draft adapter", model, self.plan.engine.seed)
        self.files = Files(model, first, corpus, head, draft_adapter)

    def build(self) -> None:
        plan, vocab_size = self.plan, read_config(self.files.model).vocab_size
        self.futures: dict[str, list[int]] = {}
        own = [name for name in plan.engine.drafters if name in OWN_DRAFTERS]
        self.drafters: dict[str, Oracle] = {n: make_drafter(n, plan.engine, self.futures, vocab_size) for n in own}
        self.processor = make_processor(plan.engine)
        self.built = build_tested(plan.model, plan.engine, self.files, self.drafters, self.processor)
        self.closing.callback(self.built.engine.runner.close)
        self.limits = self.built.engine.parts.limits
        if self.limits.max_model_len != plan.engine.max_model_len:
            raise Failure("max_model_len was not kept", f"{self.limits}")
        self.attention = attention_of(self.built)
        self.instruction_set = instruction_set_of(plan.engine)
        versions = {version_name(*key): path for key, path in self.adapter_paths.items()}
        longest = min(self.limits.max_model_len, self.limits.cache_tokens)
        self.reference = Reference(plan, self.files.model, versions, self.attention, longest)
        self.closing.callback(self.reference.close)

    def draw(self) -> None:
        """Give the plan its requests; where serving one alone fails, those up to it."""
        asked: dict[str, RequestPlan] = {}

        def answer(request: RequestPlan) -> tuple[int, ...]:
            asked[request.id] = request
            return tuple(self.reference.answer(request, anew=True).tokens)

        def decode(tokens: tuple[int, ...], skip: bool) -> str:
            return self.built.tokenizer.decode(tokens, skip_special_tokens=skip)

        world = World(self.limits.vocab_size, self.reference.longest, self.accepts, answer, decode)
        try:
            draw_requests(self.plan, world)
        finally:
            self.plan = changed(self.plan, requests=tuple(asked.values()))

    def accepts(self, request: RequestPlan) -> bool:
        try:
            self.built.engine.check(as_request(request, ""))
        except RequestError:
            self.num_refused += 1
            return False
        return True
