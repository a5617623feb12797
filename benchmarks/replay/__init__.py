"""Replay of n-gram drafters: a real text is taken as the output, so no model runs and none is needed.

`archives` fetches source releases, `corpus` says which, `texts` makes prompts and outputs of them, `traces`
makes tokens; `harness` replays them to a drafter; `stats` counts; `tables` prints. The drafters are `arctic`, `trie`
and `ngram`. `benchmarks.cases.replay` is the benchmark.
"""
