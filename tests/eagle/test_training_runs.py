"""Training runs: the loss falls, a checkpoint goes on exactly, Ctrl-C keeps what was trained, figures are honest."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from training_cases import KINDS, TEXT, make_head, make_trainer, options, stream, write_target

from specserve.errors import ConfigError
from specserve_eagle.card import read_card
from specserve_eagle.training.evaluate import Acceptance, Sampling, accepted_by_step, teacher_forced
from specserve_eagle.training.loop import Budget, rate_scale
from specserve_eagle.training.run import stopped_by_interrupt, train
from specserve_eagle.training.target import Target
from specserve_eagle.training.text import Windows, split_windows


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def target(target_dir):
    return Target.load(target_dir, "cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls_and_agreement_rises(target_dir, tmp_path, kind):
    decided = Target.load(target_dir, "cpu")
    decided.model.lm_head.weight.mul_(5)
    trainer, _ = make_trainer(kind, decided, tmp_path)
    windows = stream(24).view(1, 24) if kind == "uno" else stream(96).view(4, 24)
    before = trainer.loss_of(windows, 0)
    for _ in range(160 if kind == "uno" else 60):  # each of its steps has other random tokens
        trainer.step(windows, 1.0)
    after = trainer.loss_of(windows, 0)
    assert after.loss < 0.75 * before.loss
    assert after.greedy[-1] > before.greedy[-1] + 0.2


@pytest.mark.parametrize("kind", ["dflash", "dspark", "uno"])
def test_a_batch_that_comes_again_is_drafted_from_elsewhere(target, tmp_path, kind):
    """Whatever else the same, each step has its own loss, and the same again where it is resumed."""
    trainer, _ = make_trainer(kind, target, tmp_path, anchors=3)
    windows, losses, loss_of = stream(96).view(4, 24), [], trainer.loss_of

    def remembered(*given):
        found = loss_of(*given)
        losses.append(float(found.loss.detach()))
        return found

    trainer.loss_of = remembered
    for step in (0, 1, 2, 1):
        trainer.progress.step = step
        trainer.step(windows, 0.0)
    assert losses[3] == pytest.approx(losses[1], rel=1e-5)
    assert min(abs(losses[a] / losses[b] - 1) for a, b in ((0, 1), (0, 2), (1, 2))) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_ends_with_the_parameters_of_an_uninterrupted_one(target, tmp_path, kind):
    def stop_at_three(progress, spent):
        if progress.step == 3:
            interrupted.stop()

    whole, windows = make_trainer(kind, target, tmp_path)
    whole.run(windows, Budget(max_steps=7))
    expected = {name: tensor.clone() for name, tensor in whole.module.state_dict().items()}
    interrupted, windows = make_trainer(kind, target, tmp_path, stop_at_three)
    assert interrupted.run(windows, Budget(max_steps=7)).step == 3
    resumed, windows = make_trainer(kind, target, tmp_path)
    resumed.resume()
    assert resumed.run(windows, Budget(max_steps=7)).step == 7
    state = resumed.module.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], state[name])] == []
    assert resumed.progress.loss == whole.progress.loss


def test_a_run_goes_on_with_another_number_of_unrolled_steps(target, tmp_path):
    trainer, windows = make_trainer("mtp", target, tmp_path)
    trainer.run(windows, Budget(max_steps=2))
    resumed, windows = make_trainer("mtp", target, tmp_path, unroll=len(trainer.progress.greedy) + 1)
    resumed.resume()
    progress = resumed.run(windows, Budget(max_steps=4))
    assert progress.step == 4
    assert len(progress.greedy) == len(trainer.progress.greedy) + 1


def test_ctrl_c_ends_after_the_step_with_a_checkpoint(target, tmp_path):
    trainer, windows = make_trainer("eagle", target, tmp_path, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_interrupt(trainer):
        assert trainer.run(windows, Budget(minutes=1)).step == 1
    assert signal.getsignal(signal.SIGINT) is before
    again, _ = make_trainer("eagle", target, tmp_path)
    again.resume()
    assert again.progress.step == 1


def test_a_damaged_checkpoint_is_refused(target, tmp_path):
    trainer, windows = make_trainer("eagle", target, tmp_path)
    trainer.run(windows, Budget(max_steps=1))
    trainer.state_file.write_bytes(trainer.state_file.read_bytes()[:999])
    with pytest.raises(ConfigError, match="is damaged"):
        trainer.resume()


def test_a_checkpoint_of_another_head_is_refused(target, tmp_path):
    trainer, windows = make_trainer("eagle", target, tmp_path)
    trainer.run(windows, Budget(max_steps=1))
    other, _ = make_trainer("mtp", target, tmp_path)
    with pytest.raises(ConfigError, match="not of this head"):
        other.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_training_writes_a_draft_model_and_reports_what_it_would_accept(target_dir, tmp_path, kind):
    (tmp_path / "text.py").write_text(TEXT * 20)
    out = tmp_path / "out"
    acceptance = train(options(kind, target_dir, out, data=(str(tmp_path / "*.py"),)))
    files = ("adapter_model", "adapter_config") if kind == "uno" else ("model", "config")
    assert (out / f"{files[0]}.safetensors").exists()
    assert (out / f"{files[1]}.json").exists()
    assert acceptance.num_drafts > 0
    assert acceptance.survival == sorted(acceptance.survival, reverse=True)
    card = read_card(out)
    assert card is not None
    assert card.rates == pytest.approx(acceptance.rates, abs=1e-3)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_survival_is_counted_over_whole_chains(target, temperature):
    head, windows, sampling = make_head("eagle", target), stream(72).view(3, 24), Sampling(3, temperature)
    with torch.no_grad():
        by_step = list(accepted_by_step(head, target, windows, sampling))
    chains = torch.stack(by_step).cumprod(0).flatten(1).mean(1)
    figure = teacher_forced(head, target, windows, sampling, batch=2)
    torch.testing.assert_close(torch.tensor(figure.survival), chains, atol=1e-6, rtol=1e-5)
    assert figure.num_drafts == 3 * (24 - 4)


@torch.no_grad()
def test_a_target_agrees_with_itself(target):
    model = make_head("standalone", target, hidden_size=32, layers=8, intermediate_size=48, untied=True)
    own = target.model
    model.embed_tokens.weight.copy_(own.embedding)
    model.lm_head.weight.copy_(own.lm_head.weight)
    model.norm.weight.copy_(own.final_norm)
    for mine, theirs in zip(model.layers, own.layers, strict=True):
        mine.input_layernorm.weight.copy_(theirs.input_norm)
        mine.post_attention_layernorm.weight.copy_(theirs.mlp_norm)
        parts = {"self_attn": theirs.qkv_proj, "mlp": theirs.mlp.gate_up_proj}
        for block, joined in parts.items():
            for name, rows in joined.parts.items():
                getattr(getattr(mine, block), name).weight.copy_(joined.weight[rows])
        mine.self_attn.o_proj.weight.copy_(theirs.o_proj.weight)
        mine.mlp.down_proj.weight.copy_(theirs.mlp.down_proj.weight)
    for temperature in (0.0, 0.8):
        figure = teacher_forced(model, target, stream(72).view(3, 24), Sampling(3, temperature))
        assert figure.mean_length == pytest.approx(4.0, abs=1e-3)


def test_rates_are_conditional_and_the_mean_length_counts_the_bonus_token():
    figure = Acceptance("teacher-forced", [0.5, 0.25, 0.0], 8)
    assert figure.rates == [0.5, 0.5, 0.0]
    assert figure.mean_length == 1.75


def test_held_out_windows_are_not_trained_on():
    tokens = torch.arange(410)
    train_stream, held_out = split_windows(tokens, 10)
    assert held_out[:, 0].tolist() == [190, 390]
    assert sorted(train_stream.tolist() + held_out.flatten().tolist()) == tokens.tolist()


def test_an_epoch_has_every_window_once_in_an_order_of_its_own():
    batches = Windows(torch.arange(100), length=10, batch=3, seed=0).batches()
    first, second = ([next(batches) for _ in range(3)] for _ in range(2))
    starts = torch.cat(first)[:, 0].sort().values
    assert starts.diff().unique().tolist() == [10]
    assert torch.cat(first).tolist() != torch.cat(second).tolist()


def test_a_budget_is_spent_by_whichever_comes_first():
    budget = Budget(max_steps=10, minutes=1.0)
    assert budget.spent(5, 6.0) == 0.5
    assert budget.spent(1, 60.0) == 1.0
    assert rate_scale(1000, 0.5) == 1.0
    assert rate_scale(1000, 0.9) == pytest.approx(0.5)
