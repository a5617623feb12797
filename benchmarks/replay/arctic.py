"""The published suffix decoding of ArcticInference, called as its vLLM plugin calls it.

Only `arctic_inference.suffix_decoding` is used; it needs numpy and a C++20 compiler, neither torch nor vLLM. It is
downloaded and compiled into build/replay/arctic, and not installed.

Source: https://github.com/snowflakedb/ArcticInference (Apache-2.0), SuffixDecoding, arXiv 2411.04975.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.replay.archives import BUILD, SetupError, fetch
from specserve_bench.replay.harness import Draft, DrafterVariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

VERSION, NANOBIND = "0.1.1", "2.9.2"
MAX_DEPTH, MAX_FACTOR, MIN_PROBABILITY = 64, 2.0, 0.1
"""The settings of its published results; drafts are trees."""
HOME = BUILD / "arctic"
UNLIMITED, NO_CACHE = -1, 0
BUFFER_GROWTH = 1 << 14


def variants() -> list[DrafterVariant]:
    cache_class = load_cache_class()
    return [
        DrafterVariant("arctic", "cold", lambda: ArcticDrafter(cache_class, NO_CACHE), reused=False),
        DrafterVariant("arctic", "warm", lambda: ArcticDrafter(cache_class, UNLIMITED), reused=True),
    ]


class ArcticDrafter:
    """Matches a request's own prompt and output and, with a cache, outputs (not prompts) of earlier requests."""

    def __init__(self, cache_class: Any, max_cached_requests: int) -> None:
        self._cache = cache_class(MAX_DEPTH, max_cached_requests)
        self._request = -1
        self._text: NDArray[np.int32] = np.zeros(0, np.int32)
        self._len = 0

    def start(self, prompt: Sequence[int]) -> None:
        self._request += 1
        self._len = len(prompt)
        self._text = np.zeros(len(prompt) + BUFFER_GROWTH, np.int32)
        self._text[: len(prompt)] = prompt
        self._cache.start_request(self._request, self._text[: len(prompt)])

    def propose(self, limit: int) -> Draft | None:
        tail = self._text[max(0, self._len - MAX_DEPTH) : self._len]
        draft = self._cache.speculate(self._request, tail, limit, MAX_FACTOR, 0.0, MIN_PROBABILITY, True)
        return Draft(draft.token_ids, draft.parents, draft.probs)

    def feed(self, tokens: Sequence[int]) -> None:
        begin, self._len = self._len, self._len + len(tokens)
        if self._len > len(self._text):
            self._text = np.concatenate([self._text, np.zeros(BUFFER_GROWTH, np.int32)])
        self._text[begin : self._len] = tokens
        self._cache.add_active_response(self._request, self._text[begin : self._len])

    def stop(self) -> None:
        self._cache.stop_request(self._request)


def load_cache_class() -> Any:
    """`SuffixDecodingCache`; the first call builds it. SetupError if that fails."""
    if not list((HOME / "arctic_inference" / "suffix_decoding").glob("_C.*")):
        build()
    if str(HOME) not in sys.path:
        sys.path.append(str(HOME))
    return importlib.import_module("arctic_inference.suffix_decoding").SuffixDecodingCache


def build() -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise SetupError("ArcticInference's drafter needs a C++20 compiler and none was found. Set CXX.")
    HOME.mkdir(parents=True, exist_ok=True)
    top = f"arctic_inference-{VERSION}"
    # An isolated build would install torch, which the drafter does not need.
    with tarfile.open(fetch("arctic_inference", VERSION, HOME, isolated=False)) as archive:
        wanted = [m for m in archive if m.name.startswith((f"{top}/arctic_inference/suffix_", f"{top}/csrc/suffix_"))]
        archive.extractall(HOME, members=wanted, filter="data")
    package = HOME / "arctic_inference"
    shutil.rmtree(package, ignore_errors=True)
    (HOME / top / "arctic_inference").rename(package)
    (package / "__init__.py").touch()
    nanobind = HOME / "nanobind-source"
    run_or_raise([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
                  "--upgrade", "--target", str(nanobind), f"nanobind=={NANOBIND}"])  # fmt: skip
    run_or_raise(compile_command(compiler, HOME / top / "csrc" / "suffix_decoding", nanobind / "nanobind", package))


def compile_command(compiler: str, source: Path, nanobind: Path, package: Path) -> list[str]:
    includes = [sysconfig.get_path("include"), str(nanobind / "include"), str(nanobind / "ext/robin_map/include")]
    module = package / "suffix_decoding" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ["-std=c++20", "-O3", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    sources = [nanobind / "src/nb_combined.cpp", source / "bindings.cc", source / "suffix_tree.cc"]
    return [compiler, *flags, *(f"-I{path}" for path in includes), *map(str, sources), "-o", str(module)]


def run_or_raise(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SetupError(
            f"ArcticInference {VERSION} could not be built in {HOME}: {Path(command[0]).name} said "
            f"{run.stderr.strip()[-600:]!r}. Leave it out with --drafters trie ngram."
        )
