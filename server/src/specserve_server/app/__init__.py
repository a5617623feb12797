"""The running application: its routes and middlewares, where it listens, how it starts, logs and ends."""
