"""Test kit for the core and for plugin authors: a toy model, engines made in one line, scripted drafters, an
independent reference, and the assertion `assert_lossless`.

Start with `specserve.testing.engines` and `specserve.testing.drafters`; the pytest fixtures come with the
package (`toy_model`).
"""
