"""Test kit for the core and for plugin authors: a toy model, engines made in one line, scripted drafters, an
independent reference, and the assertion `assert_lossless`.

Start with `specserve_workbench.testing.engines` and `specserve_workbench.testing.drafters`; the pytest fixtures come
with the package (`toy_model`).
"""
