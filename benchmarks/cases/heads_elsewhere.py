"""Our draft heads in llama.cpp and vLLM: tokens that a step gives there and here, after the same prompts.

Greedy chains of fixed lengths, one request at a time, texts of one length whatever ends them. All engines compute in
float32, so that rounding seldom decides a token; a request whose text is another one elsewhere is counted out.
"""

from __future__ import annotations

import argparse
import math
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cases.peers import versions
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.subjects import SUBJECTS
from benchmarks.lib.workload import demo_engine
from benchmarks.peers.engine_process import CrashedError, EngineProcess
from benchmarks.peers.engines import installed, program, vllm_environment
from benchmarks.peers.exports import clean_environment, gguf_file
from benchmarks.peers.heads import peer_head
from benchmarks.peers.make_peers import PEERS
from specserve.errors import ConfigError
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.lib.subjects import Subject
    from benchmarks.peers.heads import PeerHead
    from benchmarks.peers.workers.wire import HeadSetup

    Prompts = Sequence[tuple[int, ...]]

TEXTS = {"demo": "code", "smollm2": "chat"}
PEER_NAMES = ("llamacpp", "vllm")
PROMPT_LEN, NUM_TOKENS, MAX_LEN = 192, 100, 512
FARTHEST, ALIKE = 3.0, 0.9
"""Percent between the lengths; the least share of requests whose texts are the same."""


class Counted(NamedTuple):
    """One request."""

    tokens: list[int]
    steps: int
    """Behind the first token, which is the prompt's."""


class Compared(NamedTuple):
    """The requests whose texts are the same in both engines."""

    alike: int
    ours: float
    theirs: float
    """Tokens of a step: accepted draft tokens and one more."""

    @property
    def percent(self) -> float:
        return 100 * (self.theirs / self.ours - 1)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks heads_elsewhere")
    parser.add_argument("--models", nargs="+", choices=list(TEXTS), default=["demo"])
    parser.add_argument("--head", help="another EAGLE-3, DFlash or DSpark head for these models than their own")
    parser.add_argument("--steps", type=positive, nargs="+", help="draft tokens of a chain; default: 3 5 7, --quick 3")
    parser.add_argument("--against", nargs="+", choices=PEER_NAMES, default=list(PEER_NAMES))
    parser.add_argument("--prompts", type=positive, help="default: 24, --quick 4")
    return parser


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}.")
    return int(text)


class Chosen(NamedTuple):
    subjects: dict[str, Subject]
    """By the names of models."""
    heads: dict[str, PeerHead]
    steps: Sequence[int]
    prompts: int
    against: Sequence[str]


def chosen_by(options: Options) -> Chosen:
    """Ends the process with a message where a head cannot be compared with these steps."""
    parser = arguments()
    args = parser.parse_args(options.rest)
    subjects = {
        model: SUBJECTS[model]._replace(eagle={"model": args.head or SUBJECTS[model].eagle["model"]})
        for model in args.models
    }
    steps = args.steps or ([3] if options.quick else [3, 5, 7])
    try:
        heads = {model: peer_head(subject.eagle["model"], subject.model) for model, subject in subjects.items()}
    except ConfigError as error:
        parser.error(str(error))
    for model, head in heads.items():
        if head.longest is not None and max(steps) > head.longest:
            parser.error(
                f"--steps {max(steps)}: a block of {subjects[model].eagle['model']} has {head.longest} draft tokens. "
                f"Give --steps of at most {head.longest}."
            )
    return Chosen(subjects, heads, steps, args.prompts or options.rounds(24, 4), args.against)


def run(options: Options) -> Result:
    chosen = chosen_by(options)
    peers = [name for name in chosen.against if name in installed()]
    notes = [
        f"{name} is left out: it is not installed. `python -m benchmarks.peers.make_peers {name}` does it."
        for name in chosen.against
        if name not in peers
    ]
    notes += [f"{name}: {versions(name)}" for name in peers]
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    for model, subject in chosen.subjects.items():
        prompts = prompts_of(subject, TEXTS[model], chosen.prompts)
        for steps in chosen.steps if peers else ():
            here = counted_here(subject, steps, prompts, options)
            for peer in peers:
                name = f"{subject.eagle['model']}, {peer}, {steps} draft tokens"
                try:
                    setup = setup_of(peer, subject, chosen.heads[model], steps, options.threads)
                    found = compared(here, list(counted_there(peer, setup, prompts)))
                except CrashedError as error:
                    notes.append(f"{name}: {error}")
                    continue
                rows.append(row_of(name, found, len(prompts)))
                checks += checks_of(name, found, len(prompts))
                print("  ".join(rows[-1]), flush=True)
    return Result(
        title=f"draft heads in other engines, greedy, float32, {NUM_TOKENS} tokens; tokens of a step",
        columns=("head, engine, chain", "there", "here", "difference", "same texts"),
        rows=rows,
        checks=checks,
        notes=notes,
    )


def prompts_of(subject: Subject, kind: str, count: int) -> Prompts:
    tokenizer = HfTokenizer.from_dir(locate_model(subject.model))
    return [prompt[:PROMPT_LEN] for prompt in subject.texts[kind](tokenizer, count)]


def counted_here(subject: Subject, steps: int, prompts: Prompts, options: Options) -> list[Counted]:
    eagle = {"model": subject.eagle["model"], "steps": steps}
    engine = demo_engine(
        options, model=subject.model, dtype="float32", plugins=("eagle",), plugin_options={"eagle": eagle},
        draft_tokens=steps,
    ).engine  # fmt: skip
    counted = []
    for number, prompt in enumerate(prompts):
        emitted: list[tuple[int, ...]] = []
        params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
        request = GenerateRequest(request_id=str(number), prompt_token_ids=prompt, params=params)
        engine.run([request], lambda output, emitted=emitted: emitted.append(output.tokens))  # type: ignore[misc]
        counted.append(Counted([token for tokens in emitted for token in tokens], len(emitted) - 1))
    return counted


def setup_of(peer: str, subject: Subject, head: PeerHead, steps: int, threads: int) -> HeadSetup:
    """Raises CrashedError where llama.cpp's converter does."""
    model, path = locate_model(subject.model).resolve(), head.path
    if peer == "llamacpp":
        path = gguf_file(subject.eagle["model"], "f32", target=model)
        model = gguf_file(subject.model, "f32")
    return {
        "model": str(model), "head": str(path), "kind": head.kind,
        "steps": steps, "threads": threads, "max_len": MAX_LEN,
    }  # fmt: skip


def counted_there(peer: str, setup: HeadSetup, prompts: Prompts) -> Iterator[Counted]:
    """Raises CrashedError."""
    env, threads = clean_environment(), setup["threads"]
    if peer == "vllm":
        # Nothing is timed: its threads need no cores of their own.
        env = {**vllm_environment(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    python = str(PEERS / peer / "bin" / "python")
    with closing(EngineProcess(program(f"{peer}_heads", str(setup["steps"]), python, env), setup)) as engine:
        for prompt in prompts:
            reply = engine.answer({"prompts": [list(prompt)], "num_tokens": NUM_TOKENS, "temperature": 0.0})
            yield Counted(reply["outputs"][0], int(reply["steps"][0]))


def compared(here: Sequence[Counted], there: Sequence[Counted]) -> Compared:
    pairs = [(a, b) for a, b in zip(here, there, strict=True) if a.tokens == b.tokens]
    ours, theirs = (tokens_of_a_step([pair[side] for pair in pairs]) for side in (0, 1))
    return Compared(len(pairs), ours, theirs)


def tokens_of_a_step(counted: Sequence[Counted]) -> float:
    steps = sum(one.steps for one in counted)
    return sum(len(one.tokens) - 1 for one in counted) / steps if steps else math.nan


def row_of(name: str, found: Compared, prompts: int) -> tuple[str, ...]:
    alike = f"{found.alike} of {prompts}"
    return (name, f"{found.theirs:.3f}", f"{found.ours:.3f}", f"{found.percent:+.1f} %", alike)


def checks_of(name: str, found: Compared, prompts: int) -> list[Check]:
    return [
        Check(f"{name}, difference", abs(found.percent), FARTHEST, True, " %"),
        Check(f"{name}, share of texts that are the same", found.alike / prompts, ALIKE, False),
    ]
