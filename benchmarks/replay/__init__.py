"""Replay of n-gram drafters: a real text is taken as the output, so no model runs and none is needed.

`archives` fetches source releases, `material` says which, `texts` makes prompts and outputs of them, `streams`
makes tokens; `harness` replays them to a drafter; `tally` counts; `bench` is the benchmark and its tables. The
drafters are `arctic`, `trie` and `ours`.
"""

from benchmarks.replay.bench import arguments, run

__all__ = ["arguments", "run"]
