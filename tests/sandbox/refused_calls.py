"""A system that refuses some system calls, as a container's runtime may, for programs that tests start."""

import platform

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "seccomp": {"x86_64": 317, "aarch64": 277},
    "userfaultfd": {"x86_64": 323, "aarch64": 282},
    "landlock_create_ruleset": {"x86_64": 444, "aarch64": 444},
}
KNOWN = platform.machine() in _ARCHITECTURES

_INSTALL = """
import ctypes, struct

def install(architecture, numbers):
    def instruction(code, value, then=0, otherwise=0):
        return struct.pack("HBBI", code, then, otherwise, value)

    load, equals, returns = 0x20, 0x15, 0x06
    count = len(numbers)
    program = instruction(load, 4) + instruction(equals, architecture, 0, count + 2) + instruction(load, 0)
    for place, number in enumerate(numbers):
        program += instruction(equals, number, count - 1 - place, place == count - 1)
    program += instruction(returns, 0x00050000 | 1) + instruction(returns, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, header, 0, 0) == 0, ctypes.get_errno()

"""


def refusing(*calls: str) -> str:
    """The beginning of a program in which, and in whose children, these system calls fail with EPERM."""
    machine = platform.machine()
    return f"{_INSTALL}install({_ARCHITECTURES[machine]}, {[_NUMBERS[call][machine] for call in calls]})\n"
