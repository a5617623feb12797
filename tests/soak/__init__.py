"""The soak test: a real server with all plugins under mixed clients for a long time, every answer compared with its
reference, and nothing left at the end. `make soak MINUTES=30 SEED=1`; docs/testing.md.

A run starts a reference server that drafts nothing, asks it every case once (`references`), then starts the server
under test and lets clients (`clients`) and operators (`operators`) loose on it. A `ledger` counts what came back;
`leaks` compares the idle server's state at the end with that after the warm-up.
"""
