"""The training loop: optimisers, schedule, checkpoints, progress. Knows nothing about heads but their losses.

The schedule is a function of the share of the budget that is spent, in optimiser steps or in minutes: constant rates
after a short warm-up, then a linear cool-down over the last fifth.
"""

from __future__ import annotations

import time
from pickle import UnpicklingError
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import nn

from specserve.api import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from specserve_eagle.training.text import Windows
    from specserve_eagle.training.unroll import Unrolled

WARM_UP_STEPS = 50
COOL_DOWN = 0.2
LAST_SCALE = 0.02
CLIP = 1.0
BY_ADAM = (
    ".down",
    ".up",
    "lm_head.weight",
    "embed_tokens.weight",
    "markov_w1.weight",
    "markov_w2.weight",
    "confidence_head.proj.weight",
)
"""Matrices that AdamW trains."""
MUON_RATE, ADAM_RATE = 0.01, 2e-3
SAVE_SECONDS = 240.0
LONGEST_REST = 0.2
"""What is kept of the minutes for the last step and what follows it, at most."""
STATE_FILE = "train_state.pt"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """When training ends: at whichever comes first. The minutes are those of the whole run."""

    max_steps: int | None = None
    minutes: float | None = None
    steps_after: float = 0.0
    """How many steps' time is kept for what follows training."""

    def spent(self, steps: int, seconds: float, step_seconds: float = 0.0) -> float:
        """The share that is spent, 1 at the end, so that the next step still fits into the minutes."""
        shares = [0.0]
        if self.max_steps is not None:
            shares.append(steps / self.max_steps)
        if self.minutes is not None:
            limit = 60 * self.minutes
            kept = min(LONGEST_REST * limit, (1 + self.steps_after) * step_seconds)
            shares.append(seconds / (limit - kept))
        return max(shares)


class Progress(msgspec.Struct):
    """How far a run is; saved with every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    step_seconds: float = 0.0
    """Of a step, averaged over about the last five."""
    last_seconds: float = 0.0
    """Of the last step alone."""
    new_seconds: float = 0.0
    """The same of steps whose batch is new: the target has to read it."""
    loss: float = 0.0
    greedy: list[float] = []
    overlap: list[float] = []

    def update(self, seen: Unrolled) -> None:
        """Moving averages over about the last 50 steps."""
        keep = min(0.98, self.step / (self.step + 1))
        self.step += 1
        self.loss = keep * self.loss + (1 - keep) * float(seen.loss.detach())
        self.greedy = averaged(self.greedy, seen.greedy, keep)
        self.overlap = averaged(self.overlap, seen.overlap, keep)

    def time(self, seconds: float, step_seconds: float, *, is_new: bool) -> None:
        """After a step: of all of them, and of this one; is_new: its batch."""
        self.seconds = seconds
        self.last_seconds = step_seconds
        self.step_seconds = smoothed(self.step_seconds, step_seconds)
        if is_new:
            self.new_seconds = smoothed(self.new_seconds, step_seconds)

    @property
    def whole_seconds(self) -> float:
        """Of a step in which the target reads its batch, as far as there was one."""
        return self.new_seconds or self.step_seconds


def smoothed(old: float, new: float) -> float:
    return 0.8 * old + 0.2 * new if old else new


def averaged(old: list[float], new: list[Tensor], keep: float) -> list[float]:
    """By unrolled step. A run that goes on with another number of these begins its averages anew."""
    if len(old) != len(new):
        return [float(b) for b in new]
    return [keep * a + (1 - keep) * float(b) for a, b in zip(old, new, strict=True)]


def rate_scale(step: int, spent: float) -> float:
    """What the base rates are multiplied by."""
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    return warm * min(1.0, max(LAST_SCALE, (1.0 - spent) / COOL_DOWN))


def make_optimizers(module: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices within the head, AdamW for norms, tables and what gives one number (Jordan et al.,
    2024)."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        (matrices if parameter.ndim == 2 and not name.endswith(BY_ADAM) else rest).append(parameter)
    found: list[torch.optim.Optimizer] = []
    if matrices:
        muon = torch.optim.Muon(matrices, lr=MUON_RATE, momentum=0.95, weight_decay=0.01, adjust_lr_fn="original")
        found.append(muon)
    found.append(torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0))
    for optimizer in found:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return found


class Trainer:
    """`loss_of(ids, step)` computes the batch of a step; `on_step(progress, spent)` shows it; `save()` writes it."""

    def __init__(
        self,
        module: nn.Module,
        loss_of: Callable[[Tensor, int], Unrolled],
        folder: Path,
        *,
        device: str,
        on_step: Callable[[Progress, float], object],
        save: Callable[[Progress], object],
    ) -> None:
        self.module, self.loss_of, self.state_file = module, loss_of, folder / STATE_FILE
        self.device, self.on_step, self.save = device, on_step, save
        self.optimizers = make_optimizers(module)
        self.progress = Progress()
        self.stopped = False

    def resume(self) -> None:
        """Go on from the last checkpoint. ConfigError where there is none."""
        if not self.state_file.exists():
            raise ConfigError(f"--resume: no checkpoint at {self.state_file}. Start without --resume.")
        try:
            state = torch.load(self.state_file, weights_only=True, map_location=self.device)
            self.module.load_state_dict(state["module"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.progress = msgspec.convert(state["progress"], Progress)
        except (OSError, RuntimeError, ValueError, LookupError, EOFError, UnpicklingError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"--resume: the checkpoint {self.state_file} is not of this head, or is damaged: {reason}. "
                "Give the options that it was begun with, or another --out."
            ) from None

    def stop(self) -> None:
        """End after the step that runs now, with a checkpoint."""
        self.stopped = True

    def run(self, windows: Windows, budget: Budget, began: float | None = None) -> Progress:
        """Train until the budget is spent; the head and a checkpoint are written after the first step, every few
        minutes and at the end. began: when the budget's minutes began, of `time.monotonic`; None: now."""
        progress = self.progress
        batches: Iterator[Tensor] = windows.batches(skip=progress.step)
        now = time.monotonic()
        began = now if began is None else began
        before, saved = progress.seconds, None
        progress.seconds = before + now - began
        while (spent := budget.spent(progress.step, progress.seconds, progress.whole_seconds)) < 1.0:
            self.step(next(batches).to(self.device), rate_scale(progress.step, spent))
            now, last = time.monotonic(), now
            progress.time(before + now - began, now - last, is_new=windows.is_new)
            self.on_step(progress, budget.spent(progress.step, progress.seconds, progress.whole_seconds))
            if self.stopped:
                break
            if saved is None or now - saved > SAVE_SECONDS:  # the first one soon: it shows that it can be written
                saved = now
                self.checkpoint()
                now = time.monotonic()
        self.checkpoint()
        return progress

    def step(self, ids: Tensor, scale: float) -> None:
        with torch.autocast(self.device, torch.bfloat16):
            seen = self.loss_of(ids, self.progress.step)
        seen.loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.module.parameters(), CLIP)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.progress.update(seen)

    def checkpoint(self) -> None:
        state = {
            "module": self.module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": msgspec.to_builtins(self.progress),
        }
        partial = self.state_file.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.state_file)
        self.save(self.progress)
