"""What the engine's process tells the server of a loaded engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.engine_process import frames

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specserve_server.engine_client import LoadedEngine


def loaded_frame(
    engine: LoadedEngine, announcements: Sequence[str], directory: Path, patterns: tuple[str, ...]
) -> frames.Loaded:
    tokenizer = engine.tokenizer
    return frames.Loaded(
        engine.model_name,
        engine.created,
        engine.limits,
        frames.SentTokenizer(
            str(tokenizer.path),
            engine.limits.eos_token_ids,
            dict(tokenizer.sampling_defaults),
            tokenizer.tokenizer_class,
        ),
        tuple(announcements),
        str(directory),
        patterns,
    )
