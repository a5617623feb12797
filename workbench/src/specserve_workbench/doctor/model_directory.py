"""The files of the model: read as `serve` reads them, of the weights the headers."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from specserve.config import DEMO_MODEL
from specserve.errors import ModelError
from specserve.models.loader import unknown_fields_told
from specserve.models.locate import GROUP
from specserve.models.served_length import resolve_length
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.collected_warnings import collected_warnings
from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, bytes_text, one_line, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from specserve_server.config import ServerConfig
    from specserve_workbench.doctor.case import Case


def directory_rows(case: Case) -> list[Row]:
    return rows_of(case, directory, config, tokenizer, weights)


def directory(case: Case) -> Iterator[Row]:
    try:
        path = case.model_path()
    except ModelError:
        if case.engine.model != DEMO_MODEL or DEMO_MODEL in entry_points(group=GROUP).names:
            raise
        advice = "name the model that is to be served, or run pip install specserve-demo"
        yield Row("directory", "warning", "the demo model is not installed", advice)
        return
    if path is None:
        advice = "`serve` downloads it; run doctor again when it is there"
        yield Row("directory", "warning", f"{case.engine.model} is a hub id, and not on this machine yet", advice)
    else:
        yield Row("directory", "ok", str(path))


def config(case: Case) -> Iterator[Row]:
    found = case.model_config()
    length = resolve_length(found, case.engine.max_model_len)
    sizes = f"{found.family}, {found.num_layers} layers, {found.hidden_size} wide, {found.vocab_size} tokens"
    figures = {"layers": found.num_layers, "max_model_len": length, "max_position": found.max_position_embeddings}
    yield Row("config", "ok", f"{sizes}, {found.dtype}, a context of {length}", figures=figures)
    if found.unknown_fields:
        yield Row("config", "note", one_line(f"{unknown_fields_told(case.path(), found)}."))


def tokenizer(case: Case) -> Iterator[Row]:
    path = case.path()
    with collected_warnings() as said:
        found = HfTokenizer.from_dir(path)
    template = template_row(path, case.server)
    yield Row("tokenizer", "ok", f"{found.vocab_size} tokens")
    for text in said:
        yield Row("tokenizer", "warning", one_line(text))
    if not found.eos_token_ids:
        advice = "answers end at max_tokens only: add eos_token_id to generation_config.json"
        yield Row("end of text", "warning", "no token ends a text", advice)
    yield template


def template_row(path: Path, server: ServerConfig) -> Row:
    """The server alone has chats. Raises ModelError."""
    from specserve_server.templates.model_template import read_model_template

    if read_model_template(path, server.chat_template).source:
        return Row("chat template", "ok", "present")
    return Row("chat template", "note", "none", "completions are served; /v1/chat/completions needs a template")


def weights(case: Case) -> Iterator[Row]:
    with needed("the model was not found, or its config.json cannot be read"):
        case.model_config()
    found = case.weights()
    dtypes = ", ".join(f"{count} {dtype}" for dtype, count in sorted(found.dtypes.items()))
    text = f"all {found.dtypes.total()} tensors ({dtypes}), {found.parameters / 1e6:.1f} M parameters"
    shares = {dtype: 100 * num_bytes / found.stored for dtype, num_bytes in sorted(found.by_dtype.items())}
    mixed = ", ".join(f"{share:.0f} % {dtype}" for dtype, share in shares.items()) if len(shares) > 1 else ""
    figures = {"bytes": found.stored, "parameters": found.parameters}
    yield Row("weights", "ok", f"{text}, {bytes_text(found.stored)}{mixed and f': {mixed}'}", figures=figures)
    for warning in found.warnings:
        yield Row("weights", "note", one_line(warning))
