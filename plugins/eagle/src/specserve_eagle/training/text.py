"""Training text: files and globs, as one stream of tokens cut into windows that are shuffled anew in every epoch."""

from __future__ import annotations

import glob
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from specserve.api.files import HfTokenizer

HELD_OUT_ONE_IN = 20


def ignore(done: int, total: int) -> None:
    """Nobody wants to know."""


def read_texts(patterns: Sequence[str], option: str = "--data") -> list[str]:
    """The UTF-8 files that the paths and globs name, in a fixed order. ConfigError for a pattern without a file."""
    texts = []
    for pattern in patterns:
        files = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
        if not files:
            raise ConfigError(
                f"{option} {pattern}: no file matches. Give a path, or a quoted glob such as 'src/**/*.py'."
            )
        texts += [read_text(file, option) for file in files]
    return [text for text in texts if text.strip()]


def read_text(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {file}: the file is not UTF-8 text. Leave it out or convert it.") from None
    except OSError as error:
        raise ConfigError(f"{option} {file}: the file cannot be read: {error.strerror}.") from None


def token_stream(
    texts: Sequence[str], tokenizer: HfTokenizer, vocab_size: int, on_part: Callable[[int, int], object] = ignore
) -> Tensor:
    """All texts one after the other, an end-of-text token before each where the model has one. ModelError where the
    tokenizer gives ids that the model does not have. `on_part(characters_done, characters)` is called per text."""
    separator = list(tokenizer.eos_token_ids[:1])
    ids: list[int] = []
    done, total = 0, sum(map(len, texts))
    for text in texts:
        ids += separator
        ids += tokenizer.encode(text)
        done += len(text)
        on_part(done, total)
    stream = torch.tensor(ids + separator, dtype=torch.int64)
    if len(stream) and (highest := int(stream.max())) >= vocab_size:
        raise ModelError(
            f"the target's tokenizer gives token {highest}, but the model has {vocab_size} tokens. "
            "tokenizer.json and config.json are not of the same model."
        )
    return stream


def most_frequent(stream: Tensor, vocab_size: int, count: int) -> Tensor:
    """[count] int64: the ids of the tokens that occur most often in the stream, ascending."""
    counts = torch.bincount(stream, minlength=vocab_size)
    return counts.argsort(descending=True, stable=True)[:count].sort().values


class Split(NamedTuple):
    train: Tensor
    """[tokens]."""
    held_out: Tensor
    """[windows, length]."""


def split_windows(stream: Tensor, length: int) -> Split:
    """Hold out every twentieth window of a stream, at least one; the rest is one stream again."""
    count = len(stream) // length
    if count < 3:
        raise too_little("--data", len(stream), 3, length)
    windows = stream[: count * length].view(count, length)
    held = torch.arange(count) % HELD_OUT_ONE_IN == min(count, HELD_OUT_ONE_IN) - 1
    return Split(torch.cat((windows[~held].flatten(), stream[count * length :])), windows[held])


def all_windows(stream: Tensor, length: int, option: str) -> Tensor:
    """[windows, length] of a held-out stream."""
    count = len(stream) // length
    if not count:
        raise too_little(option, len(stream), 1, length)
    return stream[: count * length].view(count, length)


def spread(windows: Tensor, count: int) -> Tensor:
    """At most `count` of the windows, at equal distances."""
    if len(windows) <= count:
        return windows
    return windows[torch.linspace(0, len(windows) - 1, count).long()]


def check_enough(stream: Tensor, length: int) -> None:
    """ConfigError where a stream is too short to be cut at any place."""
    if len(stream) < 2 * length:
        raise too_little("--data", len(stream), 2, length)


def too_little(option: str, tokens: int, windows: int, length: int) -> ConfigError:
    return ConfigError(
        f"{option} has {tokens} tokens, and at least {windows} windows of {length} are needed. "
        "Give more text, or a smaller --length."
    )


class Windows:
    """Endless batches of windows [B, T] of a stream, from the first after `skip` batches on.

    With `reuse` each comes that many times: once it is new, then by lot among those that wait to come again. With the
    new one these are at most `recent`, and at the beginning at most half of the batches so far, so that a short run has
    batches that come again, too.
    """

    def __init__(self, stream: Tensor, length: int, batch: int, seed: int, *, reuse: int = 1, recent: int = 1) -> None:
        self.stream, self.length, self.batch, self.seed = stream, length, batch, seed
        self.reuse, self.recent = reuse, recent
        self.is_new = True
        """Of the batch that came last: it comes for the first time."""

    def batches(self, skip: int = 0) -> Iterator[Tensor]:
        return islice(self._repeated() if self.reuse > 1 else self._new(), skip, None)

    def _repeated(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        waiting: list[tuple[Tensor, int]] = []
        for number, ids in enumerate(self._new(), 1):
            self.is_new = True
            yield ids
            waiting.append((ids, self.reuse - 1))
            while len(waiting) >= min(self.recent, max(2, number // 2)):
                drawn = int(torch.randint(len(waiting), (1,), generator=generator))
                seen, left = waiting.pop(drawn)
                self.is_new = False
                yield seen
                if left > 1:
                    waiting.append((seen, left - 1))

    def _new(self) -> Iterator[Tensor]:
        epoch = 0
        while True:
            generator = torch.Generator().manual_seed(self.seed + epoch)
            offset = int(torch.randint(self.length, (1,), generator=generator))
            count = (len(self.stream) - offset) // self.length
            windows = self.stream[offset : offset + count * self.length].view(count, self.length)
            order = torch.randperm(count, generator=generator)
            for begin in range(0, count, self.batch):
                yield windows[order[begin : begin + self.batch]]
            epoch += 1
