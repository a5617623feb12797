"""Plugins' parts, made safe to call: a fault leaves out the part's result, or ends one request."""
