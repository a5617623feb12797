"""`make test-cluster`: two replicas on Ray Serve, on this machine, beside one plain server.

Makes the environment, then runs the tests in it. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environment import InstallError, make

HERE = Path(__file__).parent
TIME_LIMIT = 900.0
"""Seconds for all tests."""


def main() -> int:
    try:
        python = make()
    except InstallError as error:
        print(f"== Ray could not be installed: {error}")
        return 1
    command = [str(python), "-m", "pytest", "-c", str(HERE / "pytest.ini"), "-v", str(HERE), *sys.argv[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    try:
        return subprocess.run(command, cwd=HERE, env=environment, timeout=TIME_LIMIT, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"== the tests did not end within {TIME_LIMIT:.0f} s")
        return 1


if __name__ == "__main__":
    sys.exit(main())
