"""Runs programs on the CPython that runs this file, each in a fresh namespace, and reports what they did.

It reads lines of JSON `[[program, ...], seconds]` and answers each with one line, a list of `[stdout, kind, line]` or
null for each: the output, and the type and the last line of an uncaught exception, or null and null. Null instead
of the triple: the program ended its process or ran too long. Programs of one line share a forked process; a program
that must share nothing is sent on a separate line.

Standard library only, because it runs on interpreters that have nothing else.
"""

import contextlib
import importlib
import io
import json
import os
import resource
import signal
import sys
import traceback
import types
import warnings

MEMORY_BYTES = 6 << 30
STDOUT_CHARACTERS = 1 << 20


class Limited(io.StringIO):
    """Standard output that ends a program that prints indefinitely."""

    def write(self, text):
        text.encode()  # a lone surrogate raises here as it does in a stream of UTF-8
        if self.tell() > STDOUT_CHARACTERS:
            raise OSError("too much output")
        return super().write(text)


def observe(code):
    main = types.ModuleType("__main__")
    main.__file__ = "main.py"
    sys.modules["__main__"] = main
    sys.argv = ["main.py"]
    sys.stdout, sys.stderr = Limited(), io.StringIO()
    kind = line = None
    try:
        exec(compile(code.encode("utf-8", "surrogatepass"), "main.py", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as exit:
        if exit.code is not None and exit.code != 0:
            kind, line = "SystemExit", f"SystemExit: {exit.code}"
    except BaseException as error:
        kind = type(error).__name__
        text = "".join(traceback.TracebackException.from_exception(error, compact=True).format())
        line = text.rstrip("\n").rpartition("\n")[2]
    with contextlib.suppress(BaseException):
        main.__dict__.clear()  # as at the end of a script: objects that are closed then may print
    return [sys.stdout.getvalue(), kind, line]


def run_from(codes, seconds):
    """Runs programs in one forked process as far as it lives; gives the results it had."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8", errors="surrogatepass") as out:
            for code in codes:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                result = observe(code)
                signal.setitimer(signal.ITIMER_REAL, 0)
                out.write(json.dumps(result) + "\n")
                out.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="surrogatepass") as answers:
        results = [json.loads(line) for line in answers]
    os.waitpid(child, 0)
    return results


def main(modules):
    warnings.simplefilter("ignore")
    for module in modules:
        importlib.import_module(module)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Output of a program, or of a process it starts, to descriptor 1 is not an answer.
    questions, answers = sys.stdin, os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print(json.dumps(sys.version.split()[0]), file=answers, flush=True)
    for line in questions:
        codes, seconds = json.loads(line)
        results = []
        while len(results) < len(codes):
            results += run_from(codes[len(results) :], seconds)
            if len(results) < len(codes):
                results.append(None)
        print(json.dumps(results), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
