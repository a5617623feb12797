"""Replay of n-gram drafters: recorded texts serve as outputs, so no model runs.

`archives` downloads source releases, `corpus` lists them, `texts` makes prompts and outputs of them, `traces`
tokenizes; `harness` replays traces to a drafter; `stats` holds the statistics, `tables` prints them. The drafters are
`arctic`, `trie` and `ngram`. `benchmarks.cases.replay` is the benchmark.
"""
