#!/usr/bin/env python3
"""Several servers on this machine behind one router: starts them, starts a server again that ends, ends all together.

    serve_many.py ROUTER COUNT [--port N] [--kv-events] [--router-args "..."] [-- flags of specserve serve]

ROUTER is the command of smg or vllm-router, such as build/routers/vllm-router/bin/vllm-router. Standard library only.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

READY = "specserve: ready on "
EVENTS = ("--kv-events", "tcp://127.0.0.1:*")
COMMANDS = {"smg": ["launch"], "vllm-router": []}
"""By the router's name, what its command line begins with."""


class Server:
    def __init__(self, flags: list[str]) -> None:
        self.flags, self.port = flags, "0"
        self.start()

    def start(self) -> None:
        """Again on the port of the first start: the router knows it. Ends the program where it does not start."""
        command = [sys.executable, "-m", "specserve", "serve", *self.flags, "--port", self.port]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> str:
        """Its URL, once it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                url = line.removeprefix(READY).strip()
                self.port = url.rpartition(":")[2]
                return url
        sys.exit("serve_many: a server did not start; its reason is above")


def main() -> None:
    arguments, flags = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, flags = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("router", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--port", default="8000", help="of the router")
    parser.add_argument("--kv-events", action="store_true", help="route by what the servers have cached: vllm-router")
    parser.add_argument("--router-args", default="", help="more flags of the router, in one argument")
    args = parser.parse_args(arguments)
    if args.router.name not in COMMANDS or (args.kv_events and args.router.name != "vllm-router"):
        parser.error("ROUTER must be smg or vllm-router; of these, vllm-router reads KV events over HTTP")
    signal.signal(signal.SIGTERM, end)
    servers = [Server([*flags, *(EVENTS if args.kv_events else ())]) for _ in range(args.count)]
    processes: list[subprocess.Popen[str]] = []
    try:
        urls = [server.wait() for server in servers]
        policy = "kv_aware" if args.kv_events else "cache_aware"
        command = [args.router, *COMMANDS[args.router.name], "--worker-urls", *urls, "--policy", policy]
        command += ["--host", "127.0.0.1", "--port", args.port, *shlex.split(args.router_args)]
        processes.append(subprocess.Popen([str(part) for part in command], text=True))
        print(f"serve_many: {', '.join(urls)} behind http://127.0.0.1:{args.port}", flush=True)
        while processes[0].poll() is None:
            time.sleep(0.5)
            for server in servers:
                if server.process.poll() is not None:
                    print(f"serve_many: the server on port {server.port} has ended; it starts again", flush=True)
                    server.start()
                    threading.Thread(target=server.wait, daemon=True).start()
        sys.exit(f"serve_many: the router has ended with code {processes[0].returncode}")
    except KeyboardInterrupt:
        pass
    finally:  # the router first, which finishes its requests; then the servers
        for group in (processes, [server.process for server in servers]):
            for process in group:
                process.terminate()
            for process in group:
                process.wait()


def end(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
