"""The installed plugins: whether each loads, and whether the enabled ones start together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import PluginError
from specserve.faults import FAULTS
from specserve.plugins import discovery
from specserve.plugins.describe import banner
from specserve.plugins.error_messages import how_to_disable
from specserve.plugins.load import load
from specserve.plugins.loaded_declaration import load_declaration
from specserve.speculation.fixed_width import DRAFT_TOKENS, MAX_DRAFT_BATCH
from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, failure, one_line, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration
    from specserve.plugins.host import PluginHost
    from specserve_workbench.doctor.case import Case
    from specserve_workbench.doctor.rows import Status


def plugin_rows(case: Case) -> list[Row]:
    return rows_of(case, installed, enabled, declarations)


def installed(case: Case) -> Iterator[Row]:
    """Each plugin by itself, as start-up would load it. What is broken and was not asked for is a warning."""
    found = discovery.discover()
    if not found:
        yield Row("installed", "note", "no plugin", "see the plugins of this project: pip install specserve-plugin-cpu")
    for name, declared in found.items():
        text = f"{declared.version} ({declared.dist}): {', '.join(declared.provides) or 'no features'}"
        if declared.default_on:
            text += "; on by default"
        try:
            try_loading(declared, case.engine)
        except FAULTS as error:
            reason = failure(name, error).found.removesuffix(f" {how_to_disable(name)}")
            found_text, advice = f"{declared.version}: {reason}", f"uninstall {declared.dist} where you do not need it"
            if name in case.engine.plugins:
                yield Row(name, "failed", found_text, how_to_disable(name))
            else:
                yield Row(name, "warning", found_text, advice)
        else:
            yield Row(name, "ok", text)


def try_loading(declared: PluginDeclaration, config: EngineConfig) -> None:
    """Raises ConfigError where its declarations are not sound, its code does not import, or its hooks or options are
    wrong."""
    load_declaration(declared, config)
    load(declared, None, config.plugin_options.get(declared.name, {}))


def enabled(case: Case) -> Iterator[Row]:
    """The errors of start-up, compatibility included, are this check's."""
    host = case.host()
    yield Row("enabled", "ok", ", ".join(host.loaded_names) or "none")
    for name, reason in host.decision.switched_off.items():
        status: Status = "note" if provides_nothing(host, name) else "warning"
        yield Row(name, status, f"on by default, and switched off here: {one_line(reason)}")
    for note in host.notes:
        yield Row("graphs", "note", one_line(note))
    enabled_features = {token.partition(".")[0] for token in host.features}
    config = case.engine
    if "draft" in enabled_features and "planner" not in enabled_features and is_unset(config):
        found = f"none: {DRAFT_TOKENS} draft tokens per request and step in batches of at most {MAX_DRAFT_BATCH}"
        yield Row("planner", "note", found, "pip install specserve-plugin-adaptive drafts and verifies what pays")


def is_unset(config: EngineConfig) -> bool:
    """Whether nobody asked for a fixed number of draft tokens."""
    return config.draft_tokens is None and config.max_draft_batch is None


def provides_nothing(host: PluginHost, name: str) -> bool:
    """Whether the plugin says of itself that this configuration is none of its business."""
    try:
        return not load_declaration(host.installed[name], host.config).features
    except PluginError:
        return False


def declarations(case: Case) -> Iterator[Row]:
    """What is declared about the enabled plugins, with the warnings of the banner."""
    with needed("the plugins do not start"):
        host = case.host()
    said = [
        line.removeprefix("warning: ") for line in banner(host.plugins, host.decision) if line.startswith("warning")
    ]
    for line in said:
        yield Row("declarations", "warning", one_line(line))
    if not said:
        yield Row("declarations", "ok", "no problem among the enabled plugins")
