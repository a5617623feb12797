"""What `specserve doctor` finds: whether this machine and this installation can serve well.

One module per subject, each a function from a case to rows. Whatever a check raises becomes a row. Knows nothing about
flags and printing. Torch is imported where it is needed, so that a machine without it gets its rows, too.
"""
