"""Replay of n-gram drafters: a real text is taken as the output, so no model runs and none is needed.

`archives` fetches source releases, `material` says which, `texts` makes prompts and outputs of them, `streams`
makes tokens; `harness` replays them to a drafter; `tally` counts; `tables` prints. The drafters are `arctic`, `trie`
and `ours`. `benchmarks.cases.replay` is the benchmark.
"""
