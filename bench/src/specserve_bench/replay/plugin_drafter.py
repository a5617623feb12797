"""A plugin's drafter, called for one request at a time as the engine calls it, without a model.

The batches that it is handed are real: one span of one token, and the request behind it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.engine.roles import make_drafters
from specserve.errors import ConfigError
from specserve.plugins.host import PluginHost
from specserve.types import ForwardOutput, GenerateRequest, SamplingParams, SpanVerdict, Verdict
from specserve_bench.replay.harness import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.config import EngineConfig
    from specserve.protocols import Drafter

BLOCK_SIZE = 16
MAX_LEN = 1 << 20
NOTHING = ForwardOutput(torch.empty(0, 0), {})


class TextOnlyModel:
    """What a drafter is given in place of the model. It has a vocabulary and nothing else."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __getattr__(self, name: str) -> object:
        raise ConfigError(f"it asks for {name!r} of the model, and a replay has none")


class DrafterFactory:
    """Makes the drafter of one plugin, again and again: each one knows nothing of what others saw."""

    def __init__(self, config: EngineConfig, plugin: str, vocab_size: int) -> None:
        """`config`: with the plugin's options. Raises ConfigError where the drafter needs a model."""
        options = {name: own for name, own in config.plugin_options.items() if name == plugin}
        self._config = msgspec.structs.replace(
            config, plugins=(plugin,), plugin_options=options, default_plugins=False, no_plugins=()
        )
        self._plugin, self._model = plugin, TextOnlyModel(vocab_size)
        self._host = PluginHost.start(self._config)
        self.make()

    def make(self) -> PluginDrafter:
        try:
            drafters = make_drafters(self._config, self._host, self._model)  # type: ignore[arg-type] # it says what it lacks
        except ConfigError as error:
            raise self.refusal(f"it cannot be made without a model ({error})") from error
        if not drafters:
            raise self.refusal("it makes no drafter with these options")
        needs = drafters[0].needs
        if needs.hidden_layers or needs.layers or needs.logits:
            raise self.refusal("it drafts from what a model computes")
        return PluginDrafter(drafters[0])

    def refusal(self, why: str) -> ConfigError:
        return ConfigError(
            f"bench replay: the drafter of {self._plugin} cannot be replayed: {why}. "
            "Measure it with `specserve bench sweep`."
        )


class PluginDrafter:
    """`specserve_bench.replay.harness.ReplayDrafter`."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._builder = BatchBuilder(BLOCK_SIZE, torch.device("cpu"))
        self._request: Request | None = None
        self._new: tuple[int, ...] = ()
        self._count = 0

    def start(self, prompt: Sequence[int]) -> None:
        self._count += 1
        wire = GenerateRequest(
            request_id=f"replay-{self._count}",
            prompt_token_ids=tuple(prompt),
            params=SamplingParams(temperature=0.0, max_tokens=MAX_LEN - len(prompt), ignore_eos=True),
        )
        now = time.monotonic()
        self._request = Request.admit(wire, seed=0, arrival=now, order=self._count, max_len=MAX_LEN)
        self._new = ()
        self._drafter.start(self._request)

    def propose(self, limit: int) -> Draft | None:
        request = self._request
        assert request is not None, "started"
        end = len(request.tokens)
        request.blocks = list(range(end // BLOCK_SIZE + 1))
        request.computed = end - 1
        batch = self._builder.schedule([ScheduledSpan.of(request, end - 1, 1, scored=1)])
        verdict = Verdict([SpanVerdict((), self._new, None, None, None)])
        (draft,) = self._drafter.propose(batch, NOTHING, verdict, [limit])
        if draft is None:
            return None
        parents = range(-1, len(draft.tokens) - 1) if draft.parents is None else draft.parents
        return Draft(draft.tokens, parents, draft.survival or ())

    def feed(self, tokens: Sequence[int]) -> None:
        assert self._request is not None, "started"
        self._request.tokens.extend(tokens)
        self._new = tuple(tokens)

    def stop(self) -> None:
        assert self._request is not None, "started"
        self._drafter.stop(self._request)
        self._request = None
