"""What comes with the package for pytest: fixtures, and `--specserve-plugin NAME`, which runs the conformance kit.

Imports nothing heavy: pytest loads this in every project.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_workbench.testing.conformance.cases import Case, Options, References

MOST = 160
"""Characters of a reason in the table; the whole one is in the test's report."""
KIT = [Path(__file__).parent / "conformance" / name for name in ("test_plugin.py", "test_hooks.py", "test_stress.py")]
NOTE = "specserve"
"""The property of a test's report that is its detail in the table; the last counts."""
CASES = pytest.StashKey["list[Case]"]()


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a two-layer random Llama with a byte-level tokenizer of 320 tokens."""
    from specserve_workbench.testing.toy import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("toy") / "llama")


# --- the conformance kit --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("specserve")
    group.addoption(
        "--specserve-plugin", action="append", default=[], metavar="NAME", help="run the conformance kit on this plugin"
    )
    group.addoption(
        "--specserve-set",
        action="append",
        default=[],
        metavar="NAME.KEY=VALUE",
        help="an option of a plugin in the kit",
    )
    group.addoption("--specserve-report", metavar="FILE", help="write what the kit found as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """The kit in place of the project's tests, unless some are named beside it."""
    config.stash[CASES] = []
    if names := config.getoption("--specserve-plugin"):
        config.stash[CASES] = find_cases(names)
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.args = [*(config.args if named else ()), *map(str, KIT)]
    report = config.getoption("--specserve-report")
    if report is not None and not (names and Path(report).absolute().parent.is_dir()):
        raise pytest.UsageError(
            f"--specserve-report {report}: give a file in a folder that exists, and --specserve-plugin NAME."
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not is_of_kit(metafunc.module.__file__ or ""):
        return
    if "case" in metafunc.fixturenames:
        cases = metafunc.config.stash[CASES]
        metafunc.parametrize("case", cases, ids=[f"{case.plugin}: {case.what}" for case in cases])
    else:
        names = metafunc.config.getoption("--specserve-plugin")
        what = metafunc.function.__name__.removeprefix("test_").replace("_", " ")
        metafunc.parametrize("plugin", names, ids=[f"{name}: {what}" for name in names])


@cache
def is_of_kit(file: str) -> bool:
    """Asked for each test of a project, so a file is looked at once."""
    return Path(file).resolve() in [each.resolve() for each in KIT]


def find_cases(names: list[str]) -> list[Case]:
    from specserve.errors import PluginError
    from specserve_workbench.testing.conformance.cases import cases_of

    try:
        return [case for name in names for case in cases_of(name)]
    except PluginError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def plugin_options(request: pytest.FixtureRequest) -> Options:
    """What `--specserve-set` gives."""
    from specserve.plugins.settings import parse_settings

    return parse_settings(request.config.getoption("--specserve-set"))


@pytest.fixture(scope="session")
def references(toy_model: Path, plugin_options: Options) -> References:
    from specserve_workbench.testing.conformance.cases import References

    return References(toy_model, plugin_options)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Puts a text into the test's line in the kit's table."""

    def put(text: str) -> None:
        request.node.user_properties.append((NOTE, text))

    put("")
    return put


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--specserve-plugin"):
        return
    results = [
        (outcome, report.nodeid.partition("[")[2].removesuffix("]"), skip_reason(report) or notes[-1])
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, ())
        if (notes := [text for name, text in report.user_properties if name == NOTE])
    ]
    terminalreporter.section("conformance")
    for outcome, name, detail in results:
        terminalreporter.line(f"{outcome:<8}{name:<40}{detail if len(detail) <= MOST else f'{detail[: MOST - 1]}…'}")
    for plugin in config.getoption("--specserve-plugin"):
        undeclared = [name for outcome, name, detail in results if is_undeclared(outcome, name, detail, plugin)]
        if undeclared:
            cases = "1 case proves" if len(undeclared) == 1 else f"{len(undeclared)} cases prove"
            why = f"what {plugin} works with is not declared (specserve.compatible.{plugin})"
            terminalreporter.line(f"{plugin}: {cases} nothing, since {why}.")
    if file := config.getoption("--specserve-report"):
        Path(file).write_text(report_text(results))


def is_undeclared(outcome: str, name: str, detail: str, plugin: str) -> bool:
    return outcome == "skipped" and name.startswith(f"{plugin}: ") and "undeclared: neither says" in detail


def report_text(results: list[tuple[str, str, str]]) -> str:
    """For `specserve plugins matrix --proofs FILE`: a line for each result."""
    lines = []
    for outcome, name, detail in sorted(results, key=lambda result: result[1]):
        plugin, _, what = name.partition(": ")
        lines.append(json.dumps({"outcome": outcome, "plugin": plugin, "what": what, "detail": detail}))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def skip_reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
