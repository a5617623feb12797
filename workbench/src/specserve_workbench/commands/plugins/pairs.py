"""The finding on two plugins, under the configuration that the flags give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.config import EngineConfig
from specserve.plugins.rules import resolve
from specserve.plugins.settings import parse_settings

if TYPE_CHECKING:
    from argparse import Namespace

    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding


def engine_config(args: Namespace, plugins: tuple[str, ...]) -> EngineConfig:
    options = parse_settings(args.set)
    return EngineConfig(plugins=plugins, device=args.device, graphs=args.graphs, plugin_options=options)


def pair_finding(left: PluginDeclaration, right: PluginDeclaration, config: EngineConfig) -> Finding:
    findings = resolve([left, right], config).findings
    return next(finding for finding in findings if (finding.left, finding.right) == (left.name, right.name))
