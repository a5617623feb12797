"""Installed plugins, sound and broken, enabled and not."""

from __future__ import annotations

from found import by_check, statuses

from specserve_workbench.doctor.installed_plugins import plugin_rows

KERNELS = """
from specserve.hookspecs import hookimpl

@hookimpl
def make_kernels():
    return None
"""
DRAFTER = KERNELS.replace("make_kernels", "make_drafter")


def test_without_plugins_there_is_a_note(install, make_case):
    assert statuses(plugin_rows(make_case())) == {"installed": "note", "enabled": "ok", "declarations": "ok"}


def test_sound_plugins_are_listed_and_the_enabled_ones_named(install, make_case):
    install("ngram", provides="draft.chain", compatible={"lora.target": "WORKS"})
    install("lora", provides="lora.target")
    rows = by_check(plugin_rows(make_case(plugins=("ngram", "lora"))))
    assert (rows["ngram"].status, rows["ngram"].found) == ("ok", "1.0 (dist-ngram): draft.chain")
    assert (rows["enabled"].status, rows["enabled"].found) == ("ok", "ngram, lora")


def test_warnings_of_the_banner_are_rows(install, make_case):
    install("lora", provides="lora.target")
    rows = by_check(plugin_rows(make_case(plugins=("lora",))))
    assert rows["declarations"].status == "warning"
    assert "lora" in rows["declarations"].found
    install("drafter", plugin=DRAFTER)
    assert statuses(plugin_rows(make_case(plugins=("drafter",))))["declarations"] == "ok"


def test_a_broken_plugin_fails_where_it_is_asked_for_and_warns_elsewhere(install, make_case):
    install("broken", plugin="raise OSError('libmissing.so.1: cannot open')")
    install("misspelt", provides="draft.chian")
    install(
        "unmarked", plugin="from specserve.hookspecs import hookimpl\n\n@hookimpl\ndef make_drafterr():\n    pass\n"
    )
    install("sound")
    rows = by_check(plugin_rows(make_case()))
    assert statuses(rows.values()) == {
        "broken": "warning",
        "misspelt": "warning",
        "sound": "ok",
        "unmarked": "warning",
        "enabled": "ok",
        "declarations": "ok",
    }
    assert "libmissing.so.1: cannot open" in rows["broken"].found
    assert "did you mean 'draft.chain'" in rows["misspelt"].found
    assert "make_drafter" in rows["unmarked"].found
    rows = by_check(plugin_rows(make_case(plugins=("broken",))))
    assert (rows["broken"].status, rows["enabled"].status, rows["declarations"].status) == ("failed", "failed", "note")


def test_a_broken_default_plugin_is_a_warning_with_its_reason(install, make_case):
    install("cpu", provides="kernel.cpu", plugin="import no_such_module")
    rows = plugin_rows(make_case())
    assert [(row.check, row.status) for row in rows[:3]] == [("cpu", "warning"), ("enabled", "ok"), ("cpu", "warning")]
    assert "no_such_module" in rows[0].found
    assert "switched off here" in rows[2].found


def test_a_default_plugin_for_another_device_is_a_note(install, make_case):
    compat = (
        "from specserve.declare import Provides\n"
        "FITS = Provides('kernels', lambda config: 'it serves cpu' if config.device != 'cpu' else None)\n"
    )
    install("cpu", provides={"kernel.cpu": "FITS"}, plugin=KERNELS, compat=compat)
    rows = plugin_rows(make_case(device="cuda", graphs="none"))
    assert [(row.check, row.status) for row in rows if row.check == "cpu"] == [("cpu", "ok"), ("cpu", "note")]


def test_plugins_that_do_not_go_together_fail_with_the_reason(install, make_case):
    install("lora", provides="lora.target", conflicts={"draft.chain": "FAILS"})
    install("ngram", provides="draft.chain")
    row = by_check(plugin_rows(make_case(plugins=("ngram", "lora"))))["enabled"]
    assert row.status == "failed"
    assert "both want the same thing" in row.found


def test_wrong_options_fail(install, make_case):
    install("ngram")
    rows = by_check(plugin_rows(make_case(plugins=("ngram",), plugin_options={"ngram": {"width": "4"}})))
    assert rows["ngram"].status == rows["enabled"].status == "failed"
    assert "takes no options" in rows["enabled"].found


def test_an_unknown_plugin_fails_with_a_suggestion(install, make_case):
    install("ngram")
    row = by_check(plugin_rows(make_case(plugins=("ngrm",))))["enabled"]
    assert (row.status, "did you mean 'ngram'" in row.found) == ("failed", True)


def test_a_drafter_without_a_planner_is_told_what_there_is(install, make_case):
    fits = {"draft.chain": "WORKS", "planner.adaptive": "WORKS"}
    install("drafter", plugin=DRAFTER, compatible=fits)
    row = by_check(plugin_rows(make_case(plugins=("drafter",))))["planner"]
    assert (row.status, "specserve-plugin-adaptive" in row.advice) == ("note", True)
    assert row.found == "none: 4 draft tokens per request and step in batches of at most 8"
    assert "planner" not in by_check(plugin_rows(make_case(plugins=("drafter",), draft_tokens=3)))
    assert "planner" not in by_check(plugin_rows(make_case()))
    install("plans", plugin=KERNELS.replace("make_kernels", "make_draft_planner"), provides="planner.adaptive")
    rows = by_check(plugin_rows(make_case(plugins=("drafter",))))
    assert (rows["enabled"].found, "planner" in rows) == ("drafter, plans", False)
