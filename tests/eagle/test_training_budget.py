"""Minutes count from the start, the first checkpoint comes early, and a log has a line at a steady interval."""

from __future__ import annotations

import io
import time

import pytest
from training_cases import TEXT, make_trainer, options, write_target

from specserve_eagle.training import loop
from specserve_eagle.training.bar import Bar
from specserve_eagle.training.loop import Budget, Progress
from specserve_eagle.training.report import Report, first_step
from specserve_eagle.training.run import final_windows, train
from specserve_eagle.training.target import Target
from specserve_eagle.training.teacher import LessonMemory


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), num_hidden_layers=2)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only where a test says so."""
    now = [1000.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    return now


def timed_trainer(target_dir, folder, clock, step_seconds):
    """A trainer whose steps take that long by the clock, and when it wrote checkpoints."""
    trainer, windows = make_trainer("eagle", Target.load(target_dir, "cpu"), folder)
    saves: list[tuple[int, float]] = []
    loss_of = trainer.loss_of

    def slow_loss(ids, step):
        clock[0] += step_seconds
        return loss_of(ids, step)

    trainer.loss_of = slow_loss
    trainer.save = lambda progress: saves.append((progress.step, clock[0]))
    return trainer, windows, saves


def test_preparing_counts_against_the_minutes(target_dir, tmp_path, clock):
    began = clock[0]
    trainer, windows, _ = timed_trainer(target_dir, tmp_path, clock, 10)
    clock[0] += 60  # preparing
    trainer.run(windows, Budget(minutes=2), began)
    assert trainer.progress.step == 5
    assert clock[0] - began == 110


def test_no_step_begins_that_would_not_fit(target_dir, tmp_path, clock):
    began = clock[0]
    trainer, windows, _ = timed_trainer(target_dir, tmp_path, clock, 9)
    trainer.run(windows, Budget(minutes=1, steps_after=0), began)
    assert clock[0] - began == 54


def test_time_is_kept_for_what_follows_training(target_dir, tmp_path, clock):
    began = clock[0]
    trainer, windows, _ = timed_trainer(target_dir, tmp_path, clock, 2)
    trainer.run(windows, Budget(minutes=2, steps_after=5), began)
    assert 100 < clock[0] - began <= 110


@pytest.mark.parametrize("seconds", range(100, 112))
def test_steps_that_the_target_reads_nothing_for_do_not_shorten_what_is_kept(target_dir, tmp_path, clock, seconds):
    target, began = Target.load(target_dir, "cpu"), clock[0]
    trainer, windows = make_trainer("eagle", target, tmp_path, unroll=1)
    target.memory, windows.reuse, windows.recent = LessonMemory(8), 8, 4
    features, loss_of = target.features, trainer.loss_of

    def slow_features(ids, layers):
        clock[0] += 8
        return features(ids, layers)

    def slow_loss(ids, step):
        clock[0] += 1
        return loss_of(ids, step)

    target.features, trainer.loss_of = slow_features, slow_loss
    progress = trainer.run(windows, Budget(minutes=seconds / 60, steps_after=1), began)
    assert clock[0] - began + 9 <= seconds
    assert progress.whole_seconds == pytest.approx(9)
    assert progress.step_seconds < 6


def test_the_first_checkpoint_is_written_after_the_first_step(target_dir, tmp_path, clock):
    trainer, windows, saves = timed_trainer(target_dir, tmp_path, clock, 100)
    trainer.run(windows, Budget(max_steps=5))
    assert [step for step, _ in saves] == [1, 4, 5]
    assert trainer.state_file.exists()


def test_the_measurement_fits_into_what_is_left(target_dir, tmp_path):
    given = options("eagle", target_dir, tmp_path, minutes=2.0, batch=4)
    assert final_windows(given, passed=100, step_seconds=10) == 8
    assert final_windows(given, passed=120, step_seconds=10) == 4
    assert final_windows(given, passed=0, step_seconds=0.1) == 64


def test_a_block_head_is_measured_at_more_places_than_it_is_trained_at(target_dir, tmp_path):
    given = options("dspark", target_dir, tmp_path, minutes=2.0, batch=4, length=512, anchors=128)
    assert final_windows(given, passed=40, step_seconds=10) == 8
    assert final_windows(given, passed=100, step_seconds=10) == 4


def test_a_log_has_a_line_at_a_steady_interval_while_one_thing_runs():
    out = io.StringIO()
    with Report("eagle3", time.monotonic(), 9.0, out, interval=0.02) as report:
        report.stage("loading the target")
        report.part(25, 100)
        time.sleep(0.2)
    lines = out.getvalue().splitlines()
    assert lines[0] == "eagle3 [0:00] loading the target"
    assert len(lines) > 3
    assert set(lines[1:]) == {"eagle3 [0:00] loading the target: 25 %, about 0:00 left"}


def test_preparing_says_how_long_it_still_takes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    report = Report("eagle3", 0.0, 9.0, io.StringIO())
    report.stage("preparing text")
    now[0] = 30.0
    report.part(25, 100)
    assert report._status == "preparing text: 25 %, about 1:30 left"


def test_every_line_is_written_at_once():
    class File(io.StringIO):
        flushed = 0

        def flush(self):
            self.flushed += 1

    out = File()
    Report("mtp", time.monotonic(), None, out).stage("training")
    assert out.flushed == 1


def test_the_first_step_says_how_many_there_will_be():
    assert first_step(Progress(step=1, seconds=60.0, last_seconds=40.0), 9.0) == (
        "the first step took 40.00 s: about 13 in 9 minutes. Few: give more --minutes, or a smaller --length, --batch "
        "or --unroll."
    )
    fast = Progress(step=1, seconds=60.0, last_seconds=0.5)
    assert first_step(fast, 60.0) == "the first step took 0.50 s: about 7081 in 60 minutes."
    assert first_step(fast, None) == "the first step took 0.50 s"


def test_a_resumed_run_counts_the_steps_of_before():
    late = Progress(step=9001, seconds=590.0, step_seconds=0.06, last_seconds=2.0)
    assert first_step(late, 10.0) == "the first step took 2.00 s: about 9006 in 10 minutes."


def test_steps_are_told_once_and_then_at_the_interval():
    out = io.StringIO()
    report = Report("mtp", time.monotonic(), 5.0, out)
    report.stage("training on 9 tokens")
    for step in range(1, 4):
        report.show(Progress(step=step, step_seconds=2.0, loss=3.5, greedy=[0.5]), 0.1 * step)
    assert [line.partition("] ")[2][:15] for line in out.getvalue().splitlines()] == [
        "training on 9 t",
        "the first step ",
    ]
    assert report._status.startswith("step 3, 2.00 s each, 30 % of the budget, loss 3.500, acceptance length ")


def test_what_is_left_of_a_resumed_run_is_that_of_the_whole():
    out = io.StringIO()
    report = Report("mtp", time.monotonic(), 10.0, out)
    report.stage("training on 9 tokens")
    report.show(Progress(step=90, seconds=300.0, step_seconds=2.0, last_seconds=2.0), 0.5)
    assert "about 240 in 10 minutes" in out.getvalue()
    assert report._status.endswith("about 5:00 left")


def test_a_bar_of_a_resumed_run_shows_what_is_left_of_the_whole(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    bar = Bar("mtp")
    time.sleep(0.02)
    bar.show(Progress(step=5000, seconds=1500.0, loss=3.0, greedy=[0.5]), 0.5)
    bar._bar.refresh()
    bar.close()
    assert ", 25:00 left, step 5000 loss 3.000" in out.getvalue()


def test_a_steps_own_time_is_kept_beside_the_average():
    progress = Progress(step_seconds=1.0)
    progress.time(10.0, 3.0, is_new=True)
    assert (progress.last_seconds, progress.step_seconds) == (3.0, pytest.approx(1.4))


def test_a_run_into_a_file_tells_its_stages_in_order(target_dir, tmp_path, capsys):
    (tmp_path / "text.py").write_text(TEXT * 20)
    train(options("eagle", target_dir, tmp_path / "out", data=(str(tmp_path / "*.py"),), minutes=1.0))
    told = capsys.readouterr().err
    stages = [
        "preparing text",
        "loading the target",
        "training on",
        "the first step took",
        "4 steps are done",
        "measuring",
    ]
    assert [told.find(stage) for stage in stages] == sorted(told.find(stage) for stage in stages)
    assert all(stage in told for stage in stages)
