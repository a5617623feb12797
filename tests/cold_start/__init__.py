"""Fresh processes whose first requests come at once.

What is built at first use (type tables, caches, statics of extensions) is built then by several threads: a fault shows
in the first second of a process, and never again. So each trial is a process of its own.
"""
