"""One training run: from options to a draft model in its directory, and its acceptance on held-out text.

Owns the order: whatever can be wrong is found before weights are loaded, as far as it can be.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from specserve.api.files import HfTokenizer, locate_target
from specserve_eagle.training.block_heads import BlockHeadModule
from specserve_eagle.training.block_options import (
    BLOCK_HEADS,
    DEFAULT_ANCHORS,
    block_shape,
    find_mask_token,
    unnamed_identity,
)
from specserve_eagle.training.blocks import block_loss
from specserve_eagle.training.evaluate import Sampling, layers_read, teacher_forced
from specserve_eagle.training.export import export, write_card
from specserve_eagle.training.folder import check_folder, prepare_folder, record_identity
from specserve_eagle.training.heads import Eagle1Head, Eagle3Head, MtpHead
from specserve_eagle.training.loop import Budget, Trainer
from specserve_eagle.training.modules import HeadShape
from specserve_eagle.training.options import (
    BY_BLOCKS,
    DEFAULT_DRAFT_VOCAB,
    check_against,
    check_options,
    head_identity,
)
from specserve_eagle.training.reopen import reopen
from specserve_eagle.training.report import make_report
from specserve_eagle.training.standalone import DEFAULT_LAYERS, DraftLlama, distill, standalone_shape
from specserve_eagle.training.target import Target
from specserve_eagle.training.target_files import TargetFiles
from specserve_eagle.training.teacher import LessonMemory, lessons_kept
from specserve_eagle.training.text import (
    Split,
    Windows,
    all_windows,
    check_enough,
    most_frequent,
    read_texts,
    split_windows,
    spread,
    token_stream,
)
from specserve_eagle.training.uno_loss import uno_loss
from specserve_eagle.training.uno_module import DraftAdapterModule
from specserve_eagle.training.uno_options import adapter_shape
from specserve_eagle.training.unroll import unroll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from specserve_eagle.training.evaluate import Acceptance
    from specserve_eagle.training.export import Module
    from specserve_eagle.training.report import Report
    from specserve_eagle.training.train_options import TrainOptions
    from specserve_eagle.training.unroll import Unrolled

FINAL_WINDOWS = 64
"""Held-out windows of the estimate at the end."""
MOST_RECENT = 32
"""Batches that are mixed where batches come again, at most; more would be left unused at the end."""


def train(options: TrainOptions) -> Acceptance:
    """Train, write the draft model to `options.out`, and estimate its greedy acceptance on held-out windows. The
    minutes of the budget count from here."""
    began = time.monotonic()
    check_options(options)
    path = locate_target(options.target)
    files = TargetFiles(path, options.device)
    config = files.config
    check_against(options, config, files.library)
    tokenizer = HfTokenizer.from_dir(path)
    identity = head_identity(options, config)
    prepare_folder(options.out)
    check_folder(options.out, identity, unnamed_identity(config), resume=options.resume)
    with make_report(options.head, began, options.minutes) as report:
        report.stage("preparing text")
        split = read_split(options, tokenizer, config.vocab_size, report)
        check_enough(split.train, options.length)
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        report.stage("loading the target")
        files.on_progress = report.part
        target = Target(files)
        module = make_module(options, target, split.train).to(options.device)
        windows = make_windows(options, target, module, split.train)
        report.stage(f"training on {len(split.train)} tokens")
        trainer = Trainer(
            module,
            loss_function(options, target, module),
            options.out,
            device=options.device,
            on_step=report.show,
            save=lambda _: export(module, files, options.out),
        )
        if options.resume:
            trainer.resume()
        record_identity(options.out, identity)
        if isinstance(module, BlockHeadModule):
            report.stage(f"token {int(module.mask_token)} stands for the tokens of a block that are not known yet")
        rest = FINAL_WINDOWS / options.batch * measuring_share(options)
        budget = Budget(max_steps=options.max_steps, minutes=options.minutes, steps_after=rest)
        with stopped_by_interrupt(trainer):
            progress = trainer.run(windows, budget, began)
        report.stage(f"{progress.step} steps are done: loss {progress.loss:.3f}")
        count = final_windows(options, time.monotonic() - began, progress.whole_seconds)
        report.stage(f"measuring acceptance on {count} held-out windows at most")
        sampling = Sampling()
        if isinstance(module, BlockHeadModule | DraftAdapterModule):
            sampling = Sampling(module.shape.num_proposed)
        found = teacher_forced(
            reopen(options.out, target), target, spread(split.held_out, count), sampling, options.batch
        )
        write_card(options.out, found.rates)
        return found


def final_windows(options: TrainOptions, passed: float, step_seconds: float) -> int:
    """How many fit into what is left of the minutes: one batch at least."""
    if options.minutes is None or not step_seconds:
        return FINAL_WINDOWS
    batches = int((60 * options.minutes - passed) / (step_seconds * measuring_share(options)))
    return max(min(FINAL_WINDOWS, batches * options.batch), options.batch)


def measuring_share(options: TrainOptions) -> float:
    """How many times as long it takes to measure a window as to train on it, at most: what drafts blocks is measured at
    every position, and trained at some."""
    if options.head not in BY_BLOCKS:
        return 1.0
    return max(1.0, options.length / (options.anchors or DEFAULT_ANCHORS))


def read_split(options: TrainOptions, tokenizer: HfTokenizer, vocab_size: int, report: Report) -> Split:
    """The stream to train on and the windows that are held out."""
    stream = token_stream(read_texts(options.data), tokenizer, vocab_size, report.part)
    if not options.eval_data:
        return split_windows(stream, options.length)
    held_out = token_stream(read_texts(options.eval_data, "--eval-data"), tokenizer, vocab_size)
    return Split(stream, all_windows(held_out, options.length, "--eval-data"))


def make_windows(options: TrainOptions, target: Target, module: Module, stream: Tensor) -> Windows:
    """Batches that come again do so while the target remembers them."""
    layers, draft_ids = layers_read(module), None if isinstance(module, DraftLlama) else module.draft_ids
    if options.reuse > 1:
        target.memory = LessonMemory(options.reuse)
    width = target.config.vocab_size if draft_ids is None else len(draft_ids)
    kept = lessons_kept(options.batch * options.length, target.config.hidden_size, len(layers) + 1, width)
    recent = min(kept, MOST_RECENT)
    return Windows(stream, options.length, options.batch, options.seed, reuse=options.reuse, recent=recent)


def make_module(options: TrainOptions, target: Target, stream: Tensor) -> Module:
    config = target.config
    if options.head == "standalone":
        shape = standalone_shape(config, options.hidden_size, options.intermediate_size)
        return DraftLlama(config.vocab_size, shape, options.layers or DEFAULT_LAYERS, tied=not options.untied)
    if options.head == "uno":
        return DraftAdapterModule(target, adapter_shape(options, config))
    if options.head in BLOCK_HEADS:
        return make_block_head(options, target, stream)
    shape = HeadShape.of(config)
    shape = shape._replace(intermediate_size=options.intermediate_size or shape.intermediate_size)
    if options.head == "eagle":
        return Eagle1Head(target, shape)
    if options.head == "mtp":
        return MtpHead(target, shape)
    count = min(options.draft_vocab or DEFAULT_DRAFT_VOCAB, config.vocab_size)
    return Eagle3Head(target, shape, most_frequent(stream, config.vocab_size, count))


def make_block_head(options: TrainOptions, target: Target, stream: Tensor) -> BlockHeadModule:
    """With the target's output head, if no draft vocabulary is asked for."""
    count, size = options.draft_vocab, target.config.vocab_size
    ids = None if count is None else most_frequent(stream, size, count)
    mask = find_mask_token(stream, size) if options.mask_token is None else options.mask_token
    return BlockHeadModule(target, block_shape(options, target.config), mask, ids)


def loss_function(options: TrainOptions, target: Target, module: Module) -> Callable[[Tensor, int], Unrolled]:
    """Of a batch and the number of its step."""
    if options.compile:
        module.compile()
    anchors = options.anchors or DEFAULT_ANCHORS
    if isinstance(module, DraftLlama):
        return lambda ids, _: distill(module, target, ids)
    if isinstance(module, BlockHeadModule):
        return lambda ids, step: block_loss(module, target, ids, anchors, step)
    if isinstance(module, DraftAdapterModule):
        return lambda ids, step: uno_loss(module, target, ids, anchors, step)
    return lambda ids, _: unroll(module, target, ids, options.unroll)


@contextmanager
def stopped_by_interrupt(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C ends training after the step that runs, with a checkpoint; the second ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        trainer.stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
