"""Parts of the fuzzer's own that stand in the engine: good and evil drafters, planners, processors."""
