"""What runs inside the engines' processes, each under the Python of its own environment.

`wire` is the protocol; every other module is a program that loads one engine.
"""
