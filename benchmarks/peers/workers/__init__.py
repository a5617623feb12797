"""What runs inside the contenders' processes, each under the Python of its own environment.

`wire` is the protocol; each other module is a program that loads one engine. None imports another's engine.
"""
