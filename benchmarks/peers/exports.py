"""Models in the peers' own formats, in build/peers/models; made again when their source has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.peers.engine_process import CrashedError, last_error
from benchmarks.peers.make_peers import PEERS
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPENVINO_FORMATS = {"auto": "fp16", "int8": "int8", "int4": "int4"}
"""By how weights are kept. It computes in bfloat16, in 8 bits where weights have 4."""
GGUF_FORMATS = {"auto": "bf16", "int8": "q8_0"}
"""llama.cpp's, likewise; its converter writes no file of 4 bits."""
GGUF_EXPORT = Path(__file__).parent / "workers" / "llamacpp_export.py"


class Export(NamedTuple):
    """One model in one format: a folder with `source.txt`, which says what it was made of."""

    model: str
    name: str
    """Of the format."""
    command: Callable[[Path, Path], Sequence[str | Path]]
    """That writes the source's export into a folder."""
    reads: Path | None = None
    """Another model that the export depends on."""

    def folder(self) -> Path:
        """Raises CrashedError."""
        source = locate_model(self.model).resolve()
        target = PEERS / "models" / f"{Path(self.model).name or source.name}-{self.name}"
        stamp = target / "source.txt"
        wanted = state_of(source) if self.reads is None else f"{state_of(source)}\n{state_of(self.reads)}"
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            print(f"== exporting {source} to {target}", flush=True)
            self.make(source, target)
            stamp.write_text(wanted, encoding="utf-8")
        return target

    def make(self, source: Path, target: Path) -> None:
        log = PEERS / "logs" / f"export-{target.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as output:
            command = self.command(source, target)
            done = subprocess.run(command, env=clean_environment(), stdout=output, stderr=output, check=False)
        if done.returncode:
            raise CrashedError(last_error(log) or f"the export failed: {log}")


def state_of(folder: Path) -> str:
    """Another one as soon as a file of the model is."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")])
    return "\n".join([str(folder), *(f"{file.name} {file.stat().st_mtime}" for file in files)])


def openvino_export(model: str, weights: str) -> Path:
    kind = OPENVINO_FORMATS[weights]
    command = PEERS / "openvino" / "bin" / "optimum-cli"
    groups = ("--group-size", "32") if kind == "int4" else ()
    arguments = ("--task", "text-generation-with-past", "--weight-format", kind, *groups)
    return Export(
        model, kind, lambda source, target: (command, "export", "openvino", "--model", source, *arguments, target)
    ).folder()


def gguf_export(model: str, weights: str, sources: Path | None = None) -> Path:
    """sources: of llama.cpp, whose converter runs in this environment; None: what `make_peers` installed."""
    return gguf_file(model, GGUF_FORMATS[weights], sources=sources)


def gguf_file(model: str, kind: str, *, target: Path | None = None, sources: Path | None = None) -> Path:
    """target: the directory of the model that a draft head is for."""
    python = Path(sys.executable) if sources else PEERS / "llamacpp" / "bin" / "python"
    program = (python, GGUF_EXPORT, sources or next((PEERS / "llamacpp" / "sources").glob("*/llama.cpp")))
    file = f"model-{kind}.gguf"
    more = () if target is None else (target,)
    return Export(model, kind, lambda source, to: (*program, source, to / file, kind, *more), target).folder() / file


def clean_environment() -> dict[str, str]:
    """This environment without variables that tune specserve's process, and without network access."""
    removed = ("GOMP_", "OMP_", "KMP_", "PYTHON", "MALLOC_", "LD_PRELOAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    return {**kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1"}
