"""The dashboard and the rules of deploy/monitoring are held against /metrics of servers that have served requests."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from exposed import exposed_series
from expressions import SCRAPE_LABELS, check
from monitoring_files import (
    MONITORING,
    ROOT,
    VARIABLE,
    alerts,
    dashboard,
    known_to_rules,
    panels,
    queries,
    read_yaml,
    recorded,
    rules,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from expressions import Series

DURATION = re.compile(r"\d+[smhd]")
DOCS = (ROOT / "docs/operating.md").read_text()


@pytest.fixture(scope="module")
def exposed(toy_model, tmp_path_factory) -> dict[str, Series]:
    return exposed_series(toy_model, tmp_path_factory.mktemp("monitoring") / "log")


def complaints(exposed: Mapping[str, Series]) -> list[str]:
    """Of every expression, with where it stands."""
    known = known_to_rules(exposed)
    of_panels = [(query.panel, query.expression, exposed) for query in queries()]
    of_rules = [(rule.get("alert", rule.get("record")), rule["expr"], known) for rule in rules()]
    return [f"{where}: {one}" for where, text, series in of_panels + of_rules for one in check(text, series).complaints]


def names_read(exposed: Mapping[str, Series]) -> set[str]:
    """Of /metrics."""
    written = [query.expression for query in queries()] + [rule["expr"] for rule in rules()]
    return {name for text in written for name in check(text, exposed).names} - {*recorded(), "up"}


def test_every_expression_reads_series_and_labels_that_metrics_has(exposed):
    assert complaints(exposed) == []
    assert len(names_read(exposed)) > 40


def test_a_series_or_a_label_that_is_renamed_is_missed(exposed):
    for name in names_read(exposed):
        renamed = {f"{other}_x" if other == name else other: series for other, series in exposed.items()}
        assert f"no series {name}" in " ".join(complaints(renamed)), name
    drafted = exposed["specserve_draft_tokens_total"]
    others = {label: values for label, values in drafted.values.items() if label != "drafter"}
    without = {**exposed, "specserve_draft_tokens_total": drafted._replace(values=others)}
    assert any("drafter" in one for one in complaints(without))


def test_every_legend_names_labels_of_its_result(exposed):
    for query in queries():
        labels = check(query.expression, exposed).labels
        assert labels is not None
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels, query


def test_every_message_of_an_alert_names_labels_of_its_result(exposed):
    known = known_to_rules(exposed)
    for name, rule in alerts().items():
        labels = check(rule["expr"], known).labels
        named = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
        assert "instance" in named
        assert set(named) <= (labels or set()), name


def test_every_recorded_series_is_read_and_is_named_by_its_level(exposed):
    read = {name for rule in alerts().values() for name in check(rule["expr"], known_to_rules(exposed)).names}
    assert set(recorded()) <= read
    assert [
        name for name in recorded() if not re.fullmatch(r"instance(_drafter)?:\w+:\w+_rate\w+|\w+:\w+:rate\w+", name)
    ] == []


def test_every_alert_says_how_bad_it_is_and_what_to_do():
    assert len(alerts()) == sum("alert" in rule for rule in rules()) > 10
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert DURATION.fullmatch(rule["for"]), name
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/operating.md#{name.lower()}"


def test_every_alert_has_its_place_in_the_docs_and_no_other_is_named():
    assert re.findall(r"^#### (Specserve\w+)$", DOCS, re.MULTILINE) == list(alerts())
    everywhere = DOCS + (MONITORING / "grafana/specserve.json").read_text() + str(rules())
    assert set(re.findall(r"\bSpecserve[A-Z]\w+", everywhere)) == set(alerts())


def test_rules_select_the_job_of_the_scrape_example():
    scraped = read_yaml("scrape.yaml")
    (job,) = scraped["scrape_configs"]
    assert set(re.findall(r'job="(\w+)"', " ".join(rule["expr"] for rule in rules()))) == {job["job_name"]}
    assert job["metrics_path"] == "/metrics"
    assert all((MONITORING / "prometheus" / name).exists() for name in scraped["rule_files"])


def test_ids_are_unique_and_panels_do_not_overlap():
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert max(Counter(panel["title"] for panel in panels()[8:]).values()) == 1
    covered = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in every)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(covered.values()) == 1
    assert max(x for x, _ in covered) < 24
    assert all(len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) for panel in panels())


def test_every_panel_says_what_it_shows_and_in_which_unit():
    for panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None, panel["title"]


def test_a_stranger_chooses_the_source_the_model_and_the_server():
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "model_name", "instance"]
    sources = {target["datasource"]["uid"] for panel in panels() for target in panel["targets"]}
    assert sources == {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}
    used = {name for query in queries() for name in VARIABLE.findall(query.written)}
    assert used == {"__rate_interval", "model_name", "instance"}


def test_variables_are_read_from_labels_that_there_are(exposed):
    for variable in dashboard()["templating"]["list"][1:]:
        name, label = re.fullmatch(r"label_values\((\w+)[^,]*, (\w+)\)", variable["query"]["query"]).groups()
        assert label in exposed[name].labels | SCRAPE_LABELS
        assert "allValue" not in variable, ".* would select the processes of all that Prometheus scrapes"


def test_every_query_is_of_the_chosen_servers(exposed):
    for query in queries():
        selectors = re.findall(r"[\w:]+\{([^}]*)\}", query.written)
        assert len(selectors) >= len(check(query.expression, exposed).names)
        for selector in selectors:
            assert 'instance=~"$instance"' in selector, query
