"""A short proof on this machine: the same tokens with and without drafts, and how fast both are.

A drafter of the test kit, whose draft tokens are right or wrong at random, tries verification; the enabled drafters
show what they gain. Each run has an engine of its own, and the one without drafts has no drafter at all.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.config import DEMO_MODEL
from specserve.errors import ConfigError
from specserve.faults import FAULTS
from specserve.models.locate import locate_model
from specserve.models.read_config import read_config
from specserve.models.served_length import resolve_length
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.collected_warnings import collected_warnings
from specserve_workbench.doctor.comparison import compared, speed_with_drafts, speed_without_drafts
from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, bytes_text, one_line, rows_of
from specserve_workbench.doctor.trial import WARM_UP, Trial
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, verify_everything
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.config import EngineConfig
    from specserve.plugins.host import PluginHost
    from specserve_workbench.doctor.case import Case
    from specserve_workbench.doctor.trial import Round

SMALL = 2**30
"""Bytes of weights that load in the time of a self-test."""
MAX_MODEL_LEN, MAX_NUM_SEQS = 1024, 4
RIGHT, WIDEST = 0.7, 12
"""Of the test drafter: how often a draft token is right, and its largest draft."""
SECONDS, ROUNDS = 2.0, 6
"""Of the rounds of one comparison: at least one."""


class Tested(NamedTuple):
    """The model that is used, and why it is another one than what would be served."""

    model: str
    name: str
    why: str = ""


def self_test_rows(case: Case) -> list[Row]:
    return rows_of(case, self_test)


def self_test(case: Case) -> Iterator[Row]:
    with needed("the plugins do not start"):
        host = case.host()
    with TemporaryDirectory(prefix="specserve-doctor-") as folder, collected_warnings() as said:
        tested = choose_model(case, Path(folder))
        config = small_config(case, tested)
        plain = Trial(without_drafters(config, host))
        plain.warm_up()
        expected = plain.run_round()
        yield Row("model", "note" if tested.why else "ok", describe(plain, tested))
        yield from try_test_drafter(without_drafters(config, host), host, plain, expected)
        yield from try_enabled_drafters(config, host, plain, tested)
    for text in dict.fromkeys(said):
        yield Row("warnings", "warning", one_line(text))


def choose_model(case: Case, folder: Path) -> Tested:
    """The model if it is small and sound, else the demo model, else a random one in `folder`."""
    try:
        size = case.weights().served
        if size <= SMALL:
            return Tested(str(case.path()), case.engine.model)  # the directory: a hub id could be downloaded anew
        why = f"{case.engine.model} has {bytes_text(size)} of weights, too many for a short test"
    except FAULTS:
        why = f"{case.engine.model} cannot be served"
    try:
        locate_model(DEMO_MODEL)
    except ConfigError:
        random = str(write_checkpoint(folder / "random"))
        return Tested(random, "a small random model", f"{why}, and the demo model is not installed")
    return Tested(DEMO_MODEL, DEMO_MODEL, why)


def small_config(case: Case, tested: Tested) -> EngineConfig:
    """The given configuration, with a cache for a few short requests."""
    config = case.engine
    asked_for = None if tested.why else config.max_model_len
    found = read_config(locate_model(tested.model), case.families())
    length = min(resolve_length(found, asked_for), MAX_MODEL_LEN)
    return msgspec.structs.replace(
        config, model=tested.model, max_model_len=length, max_num_seqs=MAX_NUM_SEQS, kv_memory=None, graph_warm_up=False
    )


def drafting_plugins(host: PluginHost) -> list[str]:
    plugins = host.decision.resolution.plugins
    return [plugin.name for plugin in plugins if any(token.startswith("draft.") for token in plugin.features)]


def without_drafters(config: EngineConfig, host: PluginHost) -> EngineConfig:
    names = drafting_plugins(host)
    return msgspec.structs.replace(
        config,
        plugins=tuple(name for name in config.plugins if name not in names),
        no_plugins=(*config.no_plugins, *names),
        plugin_options={name: options for name, options in config.plugin_options.items() if name not in names},
    )


def describe(trial: Trial, tested: Tested) -> str:
    chosen = f"{tested.name}: {trial.description['kernels']}, {trial.description['attention']}"
    return f"{chosen}; {tested.why}" if tested.why else chosen


def try_test_drafter(config: EngineConfig, host: PluginHost, plain: Trial, expected: Round) -> Iterator[Row]:
    """All of its drafts are verified, whatever they cost."""
    drafter = NoisyDrafter({**expected.tokens, WARM_UP: []}, p=RIGHT, max_width=WIDEST, vocab_size=plain.vocab_size)
    has_planner = bool(host.implementers["make_draft_planner"])
    plugin = drafter_plugin(lambda: drafter, None if has_planner else FixedWidthPlanner(WIDEST))
    allowed = msgspec.structs.replace(config, plugins=(*config.plugins, "drafter"), allow_undeclared=True)
    try:
        trial = Trial(allowed, {"drafter": plugin})
    except ConfigError as error:
        yield Row("test drafter", "note", f"does not run with this configuration: {one_line(str(error))}")
        return
    verify_everything(trial.engine, WIDEST)
    for _ in rounds():
        trial.run_round(expected)
    yield compared("test drafter", plain, trial)


def try_enabled_drafters(config: EngineConfig, host: PluginHost, plain: Trial, tested: Tested) -> Iterator[Row]:
    """The rounds of both engines alternate, so that what else the machine does slows down both."""
    try:
        trial = Trial(config) if drafting_plugins(host) else None
    except ConfigError as error:
        if not tested.why:
            raise
        yield Row("enabled drafters", "note", f"they do not fit the model of this test: {one_line(str(error))}")
        trial = None
    else:
        if trial is None:
            yield no_drafter(host)
    trials = [plain] if trial is None else [plain, trial]
    for each in trials[1:]:
        each.warm_up()
    for _ in rounds():
        for each in trials:
            each.run_round(plain.rounds[0])
    if trial is not None:
        yield compared("enabled drafters", plain, trial)
    yield speed_without_drafts(plain)
    if trial is not None:
        yield speed_with_drafts(plain, trial)


def no_drafter(host: PluginHost) -> Row:
    drafts = [
        name for name, declared in host.installed.items() if any("draft." in token for token in declared.provides)
    ]
    advice = f"drafts make answers faster: --plugin NAME, of {', '.join(drafts)}" if drafts else ""
    return Row("enabled drafters", "note", "no drafter is enabled", advice)


def rounds() -> Iterator[int]:
    """At least one."""
    deadline = time.perf_counter() + SECONDS
    for number in range(ROUNDS):
        if number and time.perf_counter() >= deadline:
            return
        yield number
