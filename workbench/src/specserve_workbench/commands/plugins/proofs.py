"""What a run of the conformance kit proves of two plugins, or of a plugin and a feature of the core.

Reads the file of `pytest --specserve-plugin NAME --specserve-report FILE`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from specserve.errors import ConfigError

NATIVE = "as it is"
"""The case with the default plugins, which the kit leaves on."""
CASE_OF_FEATURE = {
    "prefix_cache": NATIVE,
    "chunked_prefill": "chunks of 16 tokens",
    "logprobs": NATIVE,
    "penalties": NATIVE,
    "graph.full": "full graphs",
    "graph.piecewise": "piecewise graphs",
}
"""Requests with log-probabilities and penalties are in every case, and each request is run twice, the second time with
its prefix in the cache."""


class Proof(msgspec.Struct, frozen=True):
    """A test of the kit on a plugin, which passed, failed or was skipped."""

    outcome: str
    plugin: str
    what: str
    detail: str


class Proofs(NamedTuple):
    """Those that passed, by the plugin and by what it was run with."""

    passed: dict[tuple[str, str], Proof]

    def of_pair(self, left: str, right: str, defaults: frozenset[str]) -> Proof | None:
        """`defaults`: plugins that are enabled by default, with which every other is run."""
        cases = [(left, f"with {right}"), (right, f"with {left}")]
        cases += [(left, NATIVE)] if right in defaults else []
        cases += [(right, NATIVE)] if left in defaults else []
        return next((self.passed[case] for case in cases if case in self.passed), None)

    def of_feature(self, plugin: str, token: str) -> Proof | None:
        return self.passed.get((plugin, CASE_OF_FEATURE[token]))


def read_proofs(file: str | None) -> Proofs:
    """None: no proof. Raises ConfigError for a file that is not such a report."""
    if file is None:
        return Proofs({})
    advice = "Give the file that `pytest --specserve-plugin NAME --specserve-report FILE` wrote."
    try:
        found = msgspec.json.decode(Path(file).read_bytes(), type=list[Proof])
    except OSError as error:
        raise ConfigError(f"--proofs {file} cannot be read: {error.strerror or error}. {advice}") from None
    except msgspec.MsgspecError:
        raise ConfigError(f"--proofs {file} is no report of the conformance kit. {advice}") from None
    return Proofs({(proof.plugin, proof.what): proof for proof in found if proof.outcome == "passed"})
