"""A run that is resumed with wrong options leaves the way back: the right ones go on, the wrong ones stay refused."""

from __future__ import annotations

import json

import pytest
from training_cases import TEXT, options, write_target

from specserve.errors import ConfigError
from specserve_eagle.training.folder import IDENTITY_FILE
from specserve_eagle.training.run import train

KEYS = ("heads", "kv_heads", "markov")
OTHERS = {"markov": {"markov": "rnn"}, "heads": {"heads": 8}, "kv_heads": {"kv_heads": 1}}


@pytest.fixture
def go_on(tmp_path):
    """Resume a run of a DSpark head that has two steps, with that many steps and options."""
    target = write_target(tmp_path / "target", num_hidden_layers=2)
    (tmp_path / "text.py").write_text(TEXT * 20)

    def run(max_steps=4, *, resume=True, **given):
        data = (str(tmp_path / "text.py"),)
        out = tmp_path / "out"
        return train(options("dspark", target, out, data=data, max_steps=max_steps, resume=resume, **given))

    run(2, resume=False)
    return run


@pytest.mark.parametrize("name", OTHERS)
def test_a_wrong_resumption_leaves_the_run_as_it_was(tmp_path, go_on, name):
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"begun with --{name.replace('_', '-')} "):
            go_on(**OTHERS[name])
    assert go_on().num_drafts > 0


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_of_before_these_were_recorded_has_what_they_are_by_default(tmp_path, go_on, name):
    file = tmp_path / "out" / IDENTITY_FILE
    recorded = json.loads(file.read_text())
    file.write_text(json.dumps({key: value for key, value in recorded.items() if key not in KEYS}))
    with pytest.raises(ConfigError, match=f"begun with --{name.replace('_', '-')} "):
        go_on(**OTHERS[name])
    assert go_on().num_drafts > 0
    assert json.loads(file.read_text()) == recorded


def test_a_checkpoint_that_cannot_be_read_changes_no_record(tmp_path, go_on):
    file = tmp_path / "out" / IDENTITY_FILE
    file.unlink()  # judged by its tensors alone
    with pytest.raises(ConfigError, match="not of this head"):
        go_on(markov="rnn")
    assert not file.exists()
    assert go_on().num_drafts > 0
