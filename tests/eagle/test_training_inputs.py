"""Every bad input of `specserve-eagle` is one sentence on standard error and exit code 2."""

from __future__ import annotations

import shutil

import pytest
import torch
from training_cases import TEXT, write_target

from specserve_eagle.cli import main

BUDGET = ("--max-steps", "2")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Targets, texts and a trained head."""
    path = tmp_path_factory.mktemp("inputs")
    write_target(path / "target", num_hidden_layers=2)
    write_target(path / "deep")
    (path / "text.txt").write_text(TEXT * 30)
    (path / "tiny.txt").write_text("def")
    (path / "latin.txt").write_bytes(b"caf\xe9")
    shutil.copytree(path / "target", path / "bare")
    (path / "bare" / "tokenizer.json").unlink()
    shutil.copytree(path / "target", path / "alien")
    write_target(path / "alien", num_hidden_layers=2, vocab_size=50)
    write_target(path / "qwen", num_hidden_layers=2, architecture="qwen3")
    (path / "file").touch()
    assert main(train_args(path, "eagle", *BUDGET, out="head")) == 0
    return path


def train_args(path, head, *more, target="target", data="text.txt", out="out"):
    return [
        "train", "--target", str(path / target), "--data", str(path / data), "--out", str(path / out), "--head", head,
        "--length", "24", "--batch", "2", "--threads", "1", *more,
    ]  # fmt: skip


def eval_args(path, *more, target="target", head="head", data="text.txt"):
    return [
        "eval", "--target", str(path / target), "--head", str(path / head), "--data", str(path / data),
        "--length", "24", "--threads", "1", *more,
    ]  # fmt: skip


def refused(capsys, args):
    """The message of a command that fails as a bad input should."""
    capsys.readouterr()
    try:
        code = main(args)
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    *told, error = captured.err.splitlines()
    assert error.startswith("specserve-eagle: error: ")
    assert all(" [0:0" in line for line in told), "only stages may come before the error"
    assert "Traceback" not in captured.err
    return captured.err


OPTIONS = {
    "no budget": ("eagle", (), "a budget is missing"),
    "no minutes": ("eagle", ("--minutes", "0"), "--minutes must be a positive number"),
    "minutes that never end": ("eagle", ("--minutes", "nan"), "--minutes must be a positive number"),
    "no steps": ("eagle", ("--max-steps", "0"), "--max-steps must be at least 1"),
    "unknown head": ("medusa", BUDGET, "medusa"),
    "unroll": ("eagle", (*BUDGET, "--unroll", "2"), "--unroll must be between 3 and 7"),
    "batch": ("eagle", (*BUDGET, "--batch", "0"), "--batch must be at least 1"),
    "threads": ("eagle", (*BUDGET, "--threads", "0"), "--threads must be at least 1"),
    "short windows": ("eagle", (*BUDGET, "--length", "6"), "--length must be between 7 "),
    "long windows": ("eagle", (*BUDGET, "--length", "4096"), "2048 (what the target supports)"),
    "draft vocabulary of a whole head": ("mtp", (*BUDGET, "--draft-vocab", "9"), "belongs to --head eagle3, dspark"),
    "draft vocabulary of a DFlash head": (
        "dflash",
        (*BUDGET, "--draft-vocab", "9"),
        "belongs to --head eagle3, dspark",
    ),
    "layers of a head": ("eagle", (*BUDGET, "--layers", "2"), "belongs to --head standalone, dflash, dspark"),
    "a block of a head that has none": ("mtp", (*BUDGET, "--block-size", "4"), "belongs to --head dflash, dspark"),
    "a mask token of a head that has none": ("mtp", (*BUDGET, "--mask-token", "0"), "belongs to --head dflash, dspark"),
    "a Markov head of DFlash": ("dflash", (*BUDGET, "--markov-rank", "4"), "belongs to --head dspark"),
    "a block of one row": ("dflash", (*BUDGET, "--block-size", "1"), "--block-size must be between 2 and 64; got 1"),
    "a large rank": (
        "dspark",
        (*BUDGET, "--markov-rank", "5000"),
        "--markov-rank must be between 1 and 4096; got 5000",
    ),
    "a rank of a head that has none": ("dflash", (*BUDGET, "--rank", "4"), "belongs to --head uno"),
    "a draft adapter's layers": ("uno", (*BUDGET, "--layers", "2"), "belongs to --head standalone, dflash, dspark"),
    "a draft adapter's inner size": (
        "uno",
        (*BUDGET, "--intermediate-size", "9"),
        "belongs to --head eagle3, eagle, mtp, dflash, dspark, standalone; got --head uno",
    ),
    "a compiled draft adapter": ("uno", (*BUDGET, "--compile"), "--compile belongs to --head eagle3"),
    "a draft adapter's rank": ("uno", (*BUDGET, "--rank", "257"), "--rank must be between 1 and 256; got 257"),
    "no random tokens": ("uno", (*BUDGET, "--mask-token", "1"), "--mask-token must be between 2 and 320"),
    "random tokens that are none": ("uno", (*BUDGET, "--mask-token", "321"), "are below it; got 321"),
    "no anchors": ("dspark", (*BUDGET, "--anchors", "0"), "--anchors must be at least 1"),
    "a negative mask token": ("dspark", (*BUDGET, "--mask-token", "-1"), "--mask-token must be a token's number"),
    "a mask token that is none": (
        "dspark",
        (*BUDGET, "--mask-token", "320"),
        "a token of the target, 0 to 319; got 320",
    ),
    "windows as short as blocks": ("dflash", (*BUDGET, "--block-size", "24"), "--length must be between 25 (the draft"),
    "shallow target": ("eagle3", BUDGET, "at least 7 layers; the target has 2"),
    "heads that do not divide": ("standalone", (*BUDGET, "--hidden-size", "20"), "must be a multiple of 8"),
    "inner size": ("eagle", (*BUDGET, "--intermediate-size", "0"), "--intermediate-size must be at least 1"),
    "query heads that do not divide": (
        "dspark",
        (*BUDGET, "--heads", "3"),
        "--heads must be a multiple of --kv-heads; got 3",
    ),
    "heads of another kind": ("eagle", (*BUDGET, "--kv-heads", "4"), "--kv-heads belongs to --head dflash, dspark"),
    "no heads": ("dflash", (*BUDGET, "--kv-heads", "0"), "--kv-heads must be at least 1"),
    "nothing to resume": ("eagle", (*BUDGET, "--resume"), "no checkpoint"),
    "not a number": ("eagle", ("--max-steps", "many"), "invalid int value"),
}


@pytest.mark.parametrize(("head", "more", "message"), OPTIONS.values(), ids=OPTIONS)
def test_an_option_that_cannot_be_is_refused(inputs, capsys, head, more, message):
    assert message in refused(capsys, train_args(inputs, head, *more))


PLACES = {
    "no such data": ({"data": "*.md"}, "no file matches"),
    "not text": ({"data": "latin.txt"}, "not UTF-8"),
    "too little text": ({"data": "tiny.txt"}, "at least 3 windows of 24 are needed"),
    "no such target": ({"target": "none"}, "no model"),
    "a target that is a file": ({"target": "file"}, "is a file"),
    "no tokenizer": ({"target": "bare"}, "has no tokenizer.json"),
    "a tokenizer of another model": ({"target": "alien"}, "the model has 50 tokens"),
    "a directory that is a file": ({"out": "file"}, "cannot be written"),
    "a directory within a file": ({"out": "file/out"}, "cannot be written"),
    "a directory that holds a run": ({"out": "head"}, "holds a checkpoint"),
}


@pytest.mark.parametrize(("places", "message"), PLACES.values(), ids=PLACES)
def test_a_file_that_cannot_be_used_is_refused(inputs, capsys, places, message):
    assert message in refused(capsys, train_args(inputs, "eagle", *BUDGET, **places))


def test_a_draft_vocabulary_larger_than_the_targets_is_refused(inputs, capsys):
    args = train_args(inputs, "eagle3", *BUDGET, "--draft-vocab", "999", target="deep")
    assert "at most the target's vocabulary, 320" in refused(capsys, args)


def test_held_out_text_is_named_by_its_own_option(inputs, capsys):
    args = train_args(inputs, "eagle", *BUDGET, "--eval-data", str(inputs / "tiny.txt"))
    assert "--eval-data has " in refused(capsys, args)


def test_a_draft_vocabulary_of_a_block_head_is_no_larger_than_the_targets(inputs, capsys):
    args = train_args(inputs, "dspark", *BUDGET, "--draft-vocab", "999")
    assert "at most the target's vocabulary, 320" in refused(capsys, args)


def test_text_that_uses_every_token_leaves_none_for_a_mask(inputs, capsys, monkeypatch):
    monkeypatch.setattr("specserve_eagle.training.run.token_stream", lambda *_: torch.arange(320).repeat(2))
    assert "uses all 320 tokens" in refused(capsys, train_args(inputs, "dspark", *BUDGET))
    assert main(train_args(inputs, "dspark", *BUDGET, "--mask-token", "7", "--block-size", "3", out="named")) == 0
    assert "token 7 stands for" in capsys.readouterr().err


RESUMED = {
    "another head": ("mtp", (), {}, "begun with --head eagle; got mtp"),
    "another size": ("eagle", ("--intermediate-size", "40"), {}, "begun with --intermediate-size 48; got 40"),
    "another target": ("eagle", (), {"target": "deep"}, "begun with --target"),
}


@pytest.mark.parametrize(("head", "more", "places", "message"), RESUMED.values(), ids=RESUMED)
def test_options_that_shape_the_head_may_not_change_on_resumption(inputs, capsys, head, more, places, message):
    args = train_args(inputs, head, *BUDGET, "--resume", *more, out="head", **places)
    assert message in refused(capsys, args)


RESUMED_BLOCKS = {
    "another kind": ("dflash", (), "begun with --head dspark; got dflash"),
    "another block": ("dspark", ("--block-size", "5"), "begun with --block-size 4; got 5"),
    "another rank": ("dspark", ("--markov-rank", "9"), "begun with --markov-rank 8; got 9"),
    "another number of layers": ("dspark", ("--layers", "1"), "begun with --layers 2; got 1"),
    "another mask token": ("dspark", ("--mask-token", "1"), "begun with --mask-token None; got 1"),
    "another Markov head": ("dspark", ("--markov", "rnn"), "begun with --markov vanilla; got rnn"),
    "another number of heads": ("dspark", ("--heads", "8"), "begun with --heads 4; got 8"),
    "another number of KV heads": ("dspark", ("--kv-heads", "1"), "begun with --kv-heads 2; got 1"),
    "another draft vocabulary": ("dspark", ("--draft-vocab", "9"), "begun with --draft-vocab None; got 9"),
}


@pytest.mark.parametrize(("head", "more", "message"), RESUMED_BLOCKS.values(), ids=RESUMED_BLOCKS)
def test_options_that_shape_a_block_head_may_not_change_on_resumption(inputs, capsys, head, more, message):
    sizes = ("--block-size", "4", *(("--markov-rank", "8") if head == "dspark" else ()))
    if not (inputs / "block").exists():
        assert main(train_args(inputs, "dspark", *BUDGET, "--block-size", "4", "--markov-rank", "8", out="block")) == 0
    args = train_args(inputs, head, *BUDGET, "--resume", *sizes, *more, out="block")
    assert message in refused(capsys, args)


def test_a_block_is_measured_up_to_its_length(inputs, capsys):
    assert main(train_args(inputs, "dspark", *BUDGET, "--block-size", "4", "--markov-rank", "8", out="short")) == 0
    assert "4 tokens" in capsys.readouterr().out
    message = refused(capsys, eval_args(inputs, "--steps", "5", head="short"))
    assert "--steps must be at most 4, the draft tokens of the head's block; got 5" in message
    assert "--length must be between 6" in refused(capsys, eval_args(inputs, "--length", "5", head="short"))
    assert main(eval_args(inputs, "--steps", "4", head="short")) == 0


def test_a_run_goes_on_where_it_ended(inputs, capsys):
    assert main(train_args(inputs, "eagle", "--max-steps", "3", out="again")) == 0
    assert main(train_args(inputs, "eagle", "--max-steps", "5", "--resume", out="again")) == 0
    assert "mean acceptance length" in capsys.readouterr().out


def test_without_a_gpu_cuda_is_refused(inputs, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for args in (train_args(inputs, "eagle", *BUDGET), eval_args(inputs)):
        assert "no CUDA device" in refused(capsys, [*args, "--device", "cuda"])


EVALUATIONS = {
    "no head": ({"head": "none"}, (), "--head: no model"),
    "a model of another family": ({"head": "qwen"}, (), "teacher-forced evaluation knows"),
    "another target": ({"target": "alien"}, (), "the model has 50 tokens"),
    "too little text": ({"data": "tiny.txt"}, (), "at least 1 windows of 24"),
    "steps": ({}, ("--steps", "0"), "--steps must be between 1 and 16"),
    "temperature": ({}, ("--temperature", "-1"), "--temperature must be between 0 and 10"),
    "length": ({}, ("--length", "4"), "--length must be between 5"),
    "windows": ({}, ("--windows", "0"), "--windows must be at least 1"),
}


@pytest.mark.parametrize(("places", "more", "message"), EVALUATIONS.values(), ids=EVALUATIONS)
def test_an_evaluation_that_cannot_be_is_refused(inputs, capsys, places, more, message):
    assert message in refused(capsys, eval_args(inputs, *more, **places))


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_an_evaluation_prints_acceptance_by_position(inputs, capsys, temperature):
    capsys.readouterr()
    assert main(eval_args(inputs, "--temperature", temperature, "--steps", "4")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("teacher-forced, ")
    assert [line.split()[0] for line in lines[2:6]] == ["1", "2", "3", "4"]
    assert lines[-1].startswith("mean acceptance length 1.")
