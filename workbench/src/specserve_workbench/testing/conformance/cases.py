"""With what a plugin is run: settings of the engine, and the other plugins that are installed.

Owns which plugins of a case draft, and the engine with them and without. Knows no pytest.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.plugins import discovery
from specserve.plugins.enabling import find
from specserve.plugins.loaded_declaration import load_declaration
from specserve_workbench.testing.composers import everything
from specserve_workbench.testing.drafters import DrafterPlugin, NoisyDrafter
from specserve_workbench.testing.engines import Run, make_engine, planner_plugin, run_requests
from specserve_workbench.testing.requests import (
    TOY_VOCAB,
    structured_requests,
    toy_request,
    varied_requests,
    without_drafts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from specserve.engine.engine import Engine
    from specserve.protocols import Drafter
    from specserve.types import GenerateRequest

    Options = Mapping[str, Mapping[str, object]]

DRAFTS = ("draft.chain", "draft.tree")
DECIDES = "logits.processor"


class Settings(TypedDict, total=False):
    """Fields of EngineConfig."""

    allow_undeclared: bool
    default_plugins: bool
    dtype: str
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    chunked_prefill: bool
    prefix_cache: bool
    block_size: int
    kv_memory: str
    graphs: str
    threads: int


SETTINGS: dict[str, Settings] = {
    "as it is": {},
    "torch kernels": {"default_plugins": False},
    "bfloat16": {"dtype": "bfloat16"},
    "chunks of 16 tokens": {"max_num_batched_tokens": 16},
    "no chunked prefill": {"chunked_prefill": False},
    "no prefix cache": {"prefix_cache": False},
    "blocks of 4 tokens": {"block_size": 4},
    "preemption": {"kv_memory": "1200K", "max_model_len": 400, "max_num_seqs": 12},
    "piecewise graphs": {"graphs": "piecewise"},
    "full graphs": {"graphs": "full"},
}
COMMON: Settings = {"threads": 1, "max_num_seqs": 8, "kv_memory": "64M", "default_plugins": True}


class Case(NamedTuple):
    """A plugin, with a setting or beside a partner."""

    plugin: str
    what: str
    settings: Settings
    partner: str = ""

    @property
    def plugins(self) -> tuple[str, ...]:
        return (self.plugin, self.partner) if self.partner else (self.plugin,)


def cases_of(plugin: str) -> list[Case]:
    """Raises PluginError for a plugin that is not installed."""
    installed = discovery.discover()
    find(plugin, installed)
    partners = [name for name, declared in installed.items() if name != plugin and is_partner(declared)]
    alone = [Case(plugin, what, settings) for what, settings in SETTINGS.items()]
    return alone + [Case(plugin, f"with {partner}", {}, partner) for partner in partners]


def is_partner(declared: PluginDeclaration) -> bool:
    """Kernels are in every case, and families of models matter to their models alone."""
    return not declared.default_on or any(token.startswith("planner.") for token in declared.provides)


def kit_requests() -> list[GenerateRequest]:
    """Requests that grow together, one token again and again, and all that requests may ask for."""
    growing = [
        toy_request(f"growing {i}", range(i, i + 60), max_tokens=48, temperature=0.8, seed=i, ignore_eos=True)
        for i in range(12)
    ]
    one_token = [toy_request(f"one token {i}", (5, 6, 6), max_tokens=20, logit_bias={6: 20.0}) for i in range(2)]
    return [*growing, *one_token, *varied_requests(12)]


def requests_for(engine: Engine) -> list[GenerateRequest]:
    """The kit's, and those of structured output that a plugin of the engine enforces."""
    return [*kit_requests(), *structured_requests(engine.parts.limits.output_kinds)]


class Compared(NamedTuple):
    """The same requests without drafts and with them, each twice: the second time prefixes are in the cache. `drafts`:
    from which plugin, or noise."""

    plain: tuple[Run, Run]
    drafted: tuple[Run, Run]
    drafts: str


@cache
def features_of(name: str) -> tuple[str, ...]:
    return load_declaration(discovery.discover()[name], EngineConfig(plugins=(name,))).features


class References:
    """Runs without drafts. Many cases compare with the same one, which is made once."""

    def __init__(self, model: Path, options: Options) -> None:
        self.model, self.options = model, options
        self.runs: dict[tuple[object, ...], tuple[Run, Run]] = {}

    def run(self, plugins: tuple[str, ...], settings: Settings, requests: Sequence[GenerateRequest]) -> tuple[Run, Run]:
        """Of an engine with these plugins. Raises ConfigError where start-up refuses."""
        key = (plugins, *sorted(settings.items()), *(request.request_id for request in requests))
        if key not in self.runs:
            engine = build(self.model, plugins, self.options, verifying_everything(plugins), settings)
            self.runs[key] = serve(engine, without_drafts(requests))
        return self.runs[key]


def compare(case: Case, model: Path, options: Options, references: References) -> Compared:
    """Where no plugin of the case drafts, noise does: chains and trees that are often wrong. Raises ConfigError where
    start-up refuses."""
    features = {name: features_of(name) for name in case.plugins}
    drafters = [name for name in case.plugins if any(token in features[name] for token in DRAFTS)]
    # what drafts and decides tokens, too, is in both; requests are without drafts in one
    needed = tuple(name for name in case.plugins if name not in drafters or DECIDES in features[name])
    whole = build(model, case.plugins, options, verifying_everything(case.plugins), case.settings)
    requests = requests_for(whole)
    plain = references.run(needed, case.settings, requests)
    if drafters:
        return Compared(plain, serve(whole, requests), " and ".join(drafters))
    noise = NoisyDrafter(plain[0].tokens(), p=0.7, max_width=6, vocab_size=TOY_VOCAB)
    extra = {"noise": drafter_named("noise", noise), **verifying_everything(case.plugins)}
    noisy = build(model, case.plugins, options, extra, case.settings)
    return Compared(plain, serve(noisy, requests), "noise")


def verifying_everything(plugins: Sequence[str]) -> dict[str, InProcessPlugin]:
    """A planner, unless one of these has its own."""
    return {} if plans(plugins) else {"planner": planner_plugin(everything(8))}


def serve(engine: Engine, requests: Sequence[GenerateRequest]) -> tuple[Run, Run]:
    return run_requests(engine, requests), run_requests(engine, requests)


def plans(plugins: Sequence[str]) -> bool:
    """Whether one of them has a planner of its own."""
    return any("planner.adaptive" in features_of(name) for name in plugins)


def drafter_named(name: str, drafter: Drafter) -> InProcessPlugin:
    declared = PluginDeclaration(name=name, provides=dict.fromkeys(DRAFTS, "drafts that are often wrong"))
    return InProcessPlugin(DrafterPlugin(lambda: drafter), declared)


def build(
    model: Path,
    plugins: Sequence[str],
    options: Options,
    extra: Mapping[str, InProcessPlugin],
    settings: Settings,
) -> Engine:
    """Raises ConfigError where start-up refuses."""
    given = {name: table for name, table in options.items() if name in plugins}
    merged: Settings = {**COMMON, **settings}
    return make_engine(model, plugins=tuple(plugins), extra=extra, plugin_options=given, **merged).engine
