"""Training text: files and globs, as one stream of tokens cut into windows that are shuffled anew in every epoch."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from specserve.text.tokenizer import HfTokenizer


def read_texts(patterns: Sequence[str]) -> list[str]:
    """The UTF-8 files that the paths and globs name, in a fixed order. ConfigError for a pattern without a file."""
    texts = []
    for pattern in patterns:
        files = sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())
        if not files:
            raise ConfigError(f"--data {pattern}: no file matches. Give a path, or a quoted glob such as 'src/**/*.py'.")
        for file in files:
            try:
                texts.append(file.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                raise ConfigError(f"--data {file}: the file is not UTF-8 text. Leave it out or convert it.") from None
    return [text for text in texts if text.strip()]


def token_stream(texts: Sequence[str], tokenizer: HfTokenizer) -> Tensor:
    """All texts one after the other, an end-of-text token before each where the model has one."""
    separator = list(tokenizer.eos_token_ids[:1])
    ids: list[int] = []
    for text in texts:
        ids += separator
        ids += tokenizer.encode(text)
    return torch.tensor(ids + separator)


class Windows:
    """Endless batches of windows [B, T] of a stream, from the first after `skip` batches on."""

    def __init__(self, stream: Tensor, length: int, batch: int, seed: int) -> None:
        self.stream, self.length, self.batch, self.seed = stream, length, batch, seed
        if len(stream) < 2 * length:
            raise ConfigError(
                f"--data has {len(stream)} tokens, and training needs at least two windows of {length}. "
                "Give more text, or a smaller --length."
            )

    def batches(self, skip: int = 0) -> Iterator[Tensor]:
        epoch = 0
        while True:
            generator = torch.Generator().manual_seed(self.seed + epoch)
            offset = int(torch.randint(self.length, (1,), generator=generator))
            count = (len(self.stream) - offset) // self.length
            windows = self.stream[offset : offset + count * self.length].view(count, self.length)
            for chosen in torch.randperm(count, generator=generator).split(self.batch):
                if skip:
                    skip -= 1
                else:
                    yield windows[chosen]
            epoch += 1
