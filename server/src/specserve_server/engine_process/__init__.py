"""The engine in a process of its own: what is sent, either side of the socket, and how the process begins and ends.

The server's process reads requests, tokenizes, and writes JSON and events; none of this takes the interpreter of the
thread that steps the engine. Either side notices the other's death by the end of the socket.
"""
