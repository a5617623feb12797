"""Causal language models that transformers computes, served with the engine's cache, kernels and drafts."""
