"""The plugin uno: the target drafts for itself, through an adapter that only drafts are computed with.

One pass computes a request's last token with the weights that serve it, and random tokens behind it through the
adapter, which has learned to say at each of them what comes there. The method is UNO's, of 2026.
"""
