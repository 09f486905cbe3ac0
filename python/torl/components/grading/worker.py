"""A grader process, which reads pairs of answers and sends verdicts.

Its input is untrusted text that can make math-verify compute indefinitely, so every pair has a CPU timer whose signal
kills the process, and memory is limited before math-verify is loaded, which the first comparison does.
"""

import logging
import os
import resource
import signal

from torl.base.runtime.processes.children import JsonParent
from torl.components.grading.equivalence import UndecidedError, equivalent

_MEMORY_BYTES = 2 << 30
_FILE_BYTES = 1 << 20

# One pair for each kind of comparison, to test the library and to warm up its parser, which would otherwise use the
# time of the first pairs.
_SELF_TEST = (
    ("5", "5", True),
    ("5", "6", False),
    ("\\frac{1}{2}", "0.5", True),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\pi/2)", True),
    ("(-\\infty, 2]", "(-\\infty, 3]", False),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", True),
    ("x^2 + 2x + 1", "(x+1)^2", True),
    ("1,2,3", "3,2,1", True),
    ("y = 2x", "y = 3x", False),
    ("\\text{Evelyn}", "Evelyn", True),
    ("2\\sqrt{3}", "\\sqrt{12}", True),
)


def main() -> None:
    """Serve until the parent closes its end or exits."""
    parent = JsonParent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    for reference, answer, expected in _SELF_TEST:
        if equivalent(reference, answer) is not expected:
            raise SystemExit(f"self-test: {answer!r} against {reference!r} was not graded {expected}")
    parent.send({"ready": True})
    for request in parent.requests():
        parent.send(_grade(request["reference"], request["answer"], request["cpu_seconds"], exact=request["exact"]))


def _grade(reference: str, answer: str, cpu_seconds: float, *, exact: bool) -> dict[str, bool | str]:
    # The default action of SIGPROF ends the process even inside one long C call, which no exception could.
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return {"correct": equivalent(reference, answer, exact=exact)}
    except UndecidedError as undecided:
        return {"correct": False, "error": str(undecided)[:500]}
    except MemoryError:
        os._exit(1)  # the heap can no longer be trusted
    except Exception as error:  # an answer must not be able to end the process, and several in a row the run
        return {"correct": False, "error": f"{type(error).__name__}: {error}"[:500]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
