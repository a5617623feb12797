"""Replay of n-gram drafters: recorded texts serve as outputs, so no model runs.

`archives` downloads source releases, `corpus` lists them, `texts` makes prompts and outputs of them, `traces`
tokenizes; `specserve_bench.replay` replays traces to a drafter, `tables` prints the statistics. The drafters are
`arctic`, `trie` and `ngram`. `benchmarks.cases.replay` is the benchmark.
"""
