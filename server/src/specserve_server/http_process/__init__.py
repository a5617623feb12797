"""Further processes that listen on the server's port and ask the same engine: how they begin, serve and end.

The first process starts them, answers what a server has once (its health, its counts, its stored responses), and tells
them to end. Everything else they do as it does.
"""
