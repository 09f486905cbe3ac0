"""If the system does not let a worker keep its guest, every run has a new one, and the pool logs it once."""

import subprocess
import sys

import pytest

from refused_calls import KNOWN, refusing

REPORT = """
import logging, sys

from torl_sandbox import SandboxPool
logging.basicConfig(stream=sys.stdout, format="LOG %(message)s")
for _ in range(2):
    with SandboxPool(2, result_cache_bytes=0) as pool:
        pool.self_test()
        print(pool.reuses_guest, [outcome.stdout for outcome in pool.run_batch(["x = 1\\nprint(x)", "print('x' in dir())"])])
        session = pool.session()
        session.run("x = 1")
        print(session.run("print(x)").stdout, end="")
"""


@pytest.mark.skipif(not KNOWN, reason="the number of the system call is not known here")
def test_without_userfaultfd_every_run_has_a_new_guest() -> None:
    program = refusing("userfaultfd") + REPORT
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    line, *others = done.stdout.splitlines()
    assert line.startswith("LOG the sandbox creates a guest for every run")
    assert "Operation not permitted" in line
    assert others == [r"False ['1\n', 'False\n']", "1"] * 2
