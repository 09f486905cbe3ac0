"""Where the system does not let a worker keep its guest, every run has a new one, and the pool says so once."""

import platform
import subprocess
import sys

import pytest

USERFAULTFD = {"x86_64": 323, "aarch64": 282}
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# A filter as a container's runtime would set it: the system call fails with EPERM, in this process and its children.
REFUSED = """
import ctypes, logging, struct, sys

def instruction(code, value, then=0, otherwise=0):
    return struct.pack("HBBI", code, then, otherwise, value)

LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06
program = b"".join([
    instruction(LOAD, 4), instruction(EQUALS, {architecture}, 0, 3),
    instruction(LOAD, 0), instruction(EQUALS, {number}, 0, 1),
    instruction(RETURN, 0x00050000 | 1), instruction(RETURN, 0x7FFF0000),
])
buffer = ctypes.create_string_buffer(program)
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, header, 0, 0) == 0, ctypes.get_errno()

from torl.sandbox import SandboxPool
logging.basicConfig(stream=sys.stdout, format="LOG %(message)s")
for _ in range(2):
    with SandboxPool(2, shared_bytes=0) as pool:
        pool.self_test()
        print(pool.reuses_guest, [outcome.stdout for outcome in pool.run_batch(["x = 1\\nprint(x)", "print('x' in dir())"])])
        session = pool.session()
        session.run("x = 1")
        print(session.run("print(x)").stdout, end="")
"""


@pytest.mark.skipif(platform.machine() not in USERFAULTFD, reason="the number of the system call is not known here")
def test_without_userfaultfd_every_run_has_a_new_guest() -> None:
    machine = platform.machine()
    program = REFUSED.replace("{architecture}", hex(ARCHITECTURE[machine])).replace(
        "{number}", str(USERFAULTFD[machine])
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told, *others = done.stdout.splitlines()
    assert told.startswith("LOG the sandbox makes a new guest for every run")
    assert "Operation not permitted" in told
    assert others == [r"False ['1\n', 'False\n']", "1"] * 2
