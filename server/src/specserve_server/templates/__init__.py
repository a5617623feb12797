"""The chat template of a model: found in its files, compiled and rendered. Knows no engine."""
