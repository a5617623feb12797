"""Who decides how deep drafts of `steps=auto` are."""

from __future__ import annotations

import pytest
from eagle_engines import drafter_of, runtime_of, write_draft, write_target

from specserve_eagle.depth import AutoDepth
from specserve_workbench.testing.engines import make_engine


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("beside", [("adaptive",), ("adaptive", "ngram"), ()], ids="+".join)
def test_the_depth_is_the_planners_or_decided_by_what_it_knows_of_step_costs(target, tmp_path, beside):
    """Without a planner that knows any, a draft grows to the number of tokens that is wanted."""
    draft = write_draft(tmp_path / "draft", "eagle", target)
    tables = {"eagle": {"model": str(draft)}, "adaptive": {"cost_cache": "none"}}
    options = {"plugin_options": {name: table for name, table in tables.items() if name in ("eagle", *beside)}}
    engine = make_engine(target, plugins=("eagle", *beside), **options).engine
    resources, depth = runtime_of(engine).resources, type(drafter_of(engine).depth)
    assert (resources.costs is not None, resources.depth_is_planned) == ("adaptive" in beside, beside == ("adaptive",))
    assert (depth is AutoDepth) == (len(beside) == 2)
