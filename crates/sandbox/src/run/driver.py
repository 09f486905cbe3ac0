"""Runs one snippet inside the guest and reports its outcome. Imported once, before the snapshot is taken.

Everything that the driver needs after the snippet has run is bound here, because the snippet may have replaced it in
`builtins` or in the modules. The host provides the seed (8 bytes, little-endian), flags (one byte) and the source. The
report is sent to the host as bytes:

    kind (one byte), then for each of exception type, last line, traceback: length (4 bytes, little-endian), UTF-8

followed in the same form by the `repr` of the value of the last statement, if it was requested and exists.

A snippet that damages its own interpreter so much that no report is written has ended in an error.
"""

import __future__
import ast
import atexit
import builtins
import gc
import io
import linecache
import os
import random
import sys
import time
import traceback
import types
import warnings

import numpy

FILE_NAME = "main.py"
DIRECTORY = "/work"
CODE_DESCRIPTOR = 1000
REPORT_DESCRIPTOR = 1001
PROGRESS_DESCRIPTOR = 1002
ALARM_DESCRIPTOR = 1003
NO_ALARM = bytes(16)
VALUE_WANTED = 1 << 0
IN_SESSION = 1 << 1
OK, ERROR, MEMORY = b"\0", b"\1", b"\2"
INTERRUPTS_ALLOWED = b"\0"
TEXT_LIMIT = 1 << 20
_PARSER_ERROR = "Parser stack overflowed"
SHOWN_FRAMES = 1000
HIDDEN_FRAMES = ("/usr/local/lib/", "<frozen ", "<torl ")

_NO_TEXT = (0).to_bytes(4, "little")
# Prepared in advance: writing it takes no memory.
_BARE_MEMORY_REPORT = (
    MEMORY
    + b"".join(len(text).to_bytes(4, "little") + text for text in (b"MemoryError", b"MemoryError"))
    + _NO_TEXT
)

_write = os.write
_read = os.read
_chdir = os.chdir
_getcwd = os.getcwd
_monotonic_ns = time.monotonic_ns
_normpath = os.path.normpath
_compile = builtins.compile
_exec = builtins.exec
_repr = builtins.repr
_type = builtins.type
_str = builtins.str
_int = builtins.int
_len = builtins.len
_getattr = builtins.getattr
_range = builtins.range
_enumerate = builtins.enumerate
_isinstance = builtins.isinstance
_issubclass = builtins.issubclass
_BaseException = builtins.BaseException
_MemoryError = builtins.MemoryError
_OSError = builtins.OSError
_SyntaxError = builtins.SyntaxError
_SystemExit = builtins.SystemExit
_Expression = ast.Expr
_Interactive = ast.Interactive
_ONLY_AST = ast.PyCF_ONLY_AST
_NO_WARNINGS = [("ignore", None, Warning, None, 0)]
_Constant = ast.Constant
_Module = ast.Module
_COROUTINE = 0x80
_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names} - {0x10})
_default_excepthook = sys.__excepthook__
_run_exit_functions = atexit._run_exitfuncs
_TracebackException = traceback.TracebackException
_StackSummary = traceback.StackSummary
_seed_random = random.seed
_seed_numpy = numpy.random.seed
_seed = None

# Compiler flags that parts of a session have in addition, and the function that runs a part with a top-level `await`.
more_flags = 0
run_coroutine = None

# Functions that wait at the end of a script; the threads' module registers here.
at_end = []
_stdin = None

# The `__main__` of the session in this interpreter, and the number of its blocks that have run.
_session = None
_blocks = 0


class _SysForTracebacks(types.ModuleType):
    """`sys` as in an ordinary interpreter: `site` is not imported here, and the error for a missing module would
    include advice about that.
    """

    flags = types.SimpleNamespace(no_site=0)

    def __getattr__(self, name):
        return getattr(sys, name)


traceback.sys = _SysForTracebacks("sys")
# Searches directories for extension modules of other builds, which do not exist, and raises if it finds none.
traceback._find_incompatible_extension_module = lambda name: None


def set_up():
    """Set up the interpreter for a script that is started in the run's directory."""
    _open_standard_streams()
    os.chdir = chdir
    chdir(DIRECTORY)
    os.environ["HOME"] = DIRECTORY
    sys.path.insert(0, DIRECTORY)


def _open_standard_streams():
    """Unbuffered, as under `python -u`: output written before a limit ended the run is never lost."""

    def stream(descriptor, errors):
        return io.TextIOWrapper(
            io.FileIO(descriptor, "w", closefd=False),
            encoding="utf-8",
            errors=errors,
            newline="\n",
            write_through=True,
        )

    sys.stdout = sys.__stdout__ = stream(1, "strict")
    sys.stderr = sys.__stderr__ = stream(2, "backslashreplace")
    _open_standard_input()


def _open_standard_input():
    """Return standard input as text, without the part that an earlier stream has read ahead."""
    global _stdin
    _stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8", errors="strict")
    sys.stdin = sys.__stdin__ = _stdin


def chdir(path):
    """`os.chdir`. The original joins paths as text: from /work/sub it would go to "/work/sub/.."."""
    _chdir(path)
    # There are no symbolic links, so this is the same directory.
    _chdir("/" + _normpath(_getcwd()).lstrip("/"))


def run():
    """Run the snippet of the host in a fresh `__main__`."""
    try:
        report = _run()
    except _MemoryError:
        report = _BARE_MEMORY_REPORT
    except _BaseException:
        report = ERROR
    _write(REPORT_DESCRIPTOR, report)


def rehearse(source, value_wanted=False):
    """Do all the work of a run except the report, so that the snapshot has done it before."""
    main = sys.modules["__main__"]
    try:
        return _run_source(source, None, value_wanted)
    finally:
        sys.modules["__main__"] = main
        # It caches the names in the directory until that changes: in a run it is another directory.
        finder = sys.path_importer_cache.get(DIRECTORY)
        if finder is not None:
            finder.invalidate_caches()


def _run():
    header = _read(CODE_DESCRIPTOR, 9)
    seed, flags = _int.from_bytes(header[:8], "little"), header[8]
    run = _run_in_session if flags & IN_SESSION else _run_source
    return run(_read_code(), seed, flags & VALUE_WANTED)


def seed_generators(seed):
    """Seed all random generators, unless the snapshot already has this seed."""
    global _seed
    if seed != _seed:
        _seed_random(seed)
        _seed_numpy(seed & 0xFFFFFFFF)
        _seed = seed


def _run_source(source, seed, value_wanted):
    main = _start(seed)
    report = _guard(_execute_for_value if value_wanted else _execute, source, main, FILE_NAME)
    _guard(_finish, main)
    return report


def _start(seed):
    """Create a fresh `__main__`, and reset everything else to the start of a program."""
    seed_generators(seed)
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    main.__file__ = FILE_NAME
    sys.modules["__main__"] = main
    sys.argv = [FILE_NAME]
    # A snippet that builds cycles in a loop must not run out of memory because no collection runs.
    gc.enable()
    return main


def _run_in_session(source, seed, value_wanted):
    """Run one more block of a continuing program: the first block starts it, and none ends it."""
    global _session, _blocks
    if _session is None:
        _session = _start(seed)
    # Input that the last part left unread is dropped. A replacement of standard input by a part stays.
    elif _getattr(sys, "stdin", None) is _stdin:
        try:
            _open_standard_input()
        except _OSError:
            pass  # the program has closed its descriptor, as the stream from before will tell it
    _blocks += 1
    name = FILE_NAME if _blocks == 1 else f"main_{_blocks}.py"
    report = _guard(execute_part, source, _session, name, value_wanted)
    _guard(_flush)
    return report


def _read_code():
    pieces = []
    while piece := _read(CODE_DESCRIPTOR, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def _execute(source, main, name):
    _show_lines_of(source, name)
    code = _compile(source, name, "exec", more_flags, dont_inherit=True)
    _execution_of(code)(code, main.__dict__)


def _execution_of(code):
    """Return the function that runs the statements of a part, given its code as a whole."""
    return run_coroutine if code.co_flags & _COROUTINE else _exec


def _show_lines_of(source, name):
    # Of bytes: those of text would end at form feeds and separators, too, where CPython counts no line.
    lines = [line.decode("utf-8", "replace") for line in source.splitlines(True)]
    linecache.cache[name] = (_len(source), None, lines, name)


def _execute_for_value(source, main, name):
    """Run the source and return the text of its last statement's value, if that is an expression other than None."""
    _show_lines_of(source, name)
    tree = _compile(source, name, "exec", _ONLY_AST | more_flags, dont_inherit=True)
    execute = _execution_of(_compile(tree, name, "exec", more_flags, dont_inherit=True)) if more_flags else _exec
    last = None
    if tree.body and _isinstance(tree.body[-1], _Expression):
        last = _compile(_Interactive([tree.body.pop()]), name, "single", more_flags, dont_inherit=True)
    execute(_compile(tree, name, "exec", more_flags, dont_inherit=True), main.__dict__)
    if last is None:
        return None
    shown = Shown()
    displayhook, sys.displayhook = sys.displayhook, shown
    try:
        execute(last, main.__dict__)
    finally:
        sys.displayhook = displayhook
    return shown.text


class Shown:
    """A display hook that stores the text of a value, unless it is None."""

    text = None

    def __call__(self, value):
        if value is not None:
            self.text = _repr(value)


def execute_part(source, main, name, value_wanted):
    """Run the source statement by statement, and report the progress to the host: if the run is stopped, that part can
    be repeated. Until here no interrupt arrives: the session is prepared for the part.
    """
    _write(PROGRESS_DESCRIPTOR, INTERRUPTS_ALLOWED)
    if _read(ALARM_DESCRIPTOR, 16) != NO_ALARM:
        _monotonic_ns()  # an alarm of an earlier part: from here on the host looks at it
    _show_lines_of(source, name)
    tree = _compile(source, name, "exec", _ONLY_AST | more_flags, dont_inherit=True)
    # Errors in any statement are reported before the first runs. And annotations belong to a module as a whole.
    whole = _compile(tree, name, "exec", more_flags, dont_inherit=True)
    ends = _ends(source, tree.body)
    if not ends or not {"__annotate__", "__conditional_annotations__"}.isdisjoint(whole.co_names):
        return (_execute_for_value if value_wanted else _execute)(source, main, name)
    flags = whole.co_flags & _FUTURE | more_flags
    execute = _execution_of(whole)
    last = None
    if value_wanted and _isinstance(tree.body[-1], _Expression):
        last = _compile_quietly(_Interactive([tree.body.pop()]), name, "single", flags)
    for number, statement in _enumerate(tree.body):
        # A text alone is the docstring if it is first, and otherwise has no effect.
        alone = _isinstance(statement, _Expression) and _isinstance(statement.value, _Constant)
        if number == 0 or not alone:
            execute(_compile_quietly(_Module([statement], []), name, "exec", flags), main.__dict__)
        _write(PROGRESS_DESCRIPTOR, ends[number].to_bytes(4, "little"))
    if last is None:
        return None
    shown = Shown()  # duplicated: another function would add a frame to the program's recursion
    displayhook, sys.displayhook = sys.displayhook, shown
    try:
        execute(last, main.__dict__)
    finally:
        sys.displayhook = displayhook
    return shown.text


def _compile_quietly(tree, name, mode, flags):
    """Compile a part of the source that has been compiled as a whole, without repeating its warnings."""
    filters = getattr(warnings, "filters", None)
    warnings.filters = _NO_WARNINGS  # not `catch_warnings`, which resets the record of issued warnings
    try:
        return _compile(tree, name, mode, flags, dont_inherit=True)
    finally:
        if filters is None:
            del warnings.filters
        else:
            warnings.filters = filters


def _ends(source, statements):
    """Return the end of each statement in bytes; None if the source is not simply UTF-8."""
    if source.startswith(b"\xef\xbb\xbf") or b"coding" in source[:200]:
        return None
    starts = [0]
    for line in source.splitlines(True):
        starts.append(starts[-1] + _len(line))
    return [starts[statement.end_lineno - 1] + statement.end_col_offset for statement in statements]


def _finish(main):
    """Finish a script as CPython does: timers, exit functions, then the deletion of its globals."""
    for wait in at_end:
        wait()
    _run_exit_functions()
    main.__dict__.clear()
    _flush()


def _flush():
    for name in ("stdout", "stderr"):
        stream = _getattr(sys, name, None)
        # As CPython does at exit: a program may have removed or closed them.
        if stream is not None and not _getattr(stream, "closed", False):
            stream.flush()


def _guard(function, *arguments):
    """Call `function` and turn any exception into a report."""
    try:
        value = function(*arguments)
    except _SystemExit as exit:
        return report_exit(exit.code)
    except _BaseException as error:
        return _report_exception(error)
    return OK + _NO_TEXT * 3 + (b"" if value is None else _text(value))


def report_exit(code):
    if code is None or (_isinstance(code, _int) and code == 0):
        return OK + _NO_TEXT * 3
    if not _isinstance(code, _int):
        _print_error(_str(code) + "\n")
    return report_error("SystemExit", _first_line("SystemExit: " + _str(code)), "")


def report_error(kind, line, text):
    """Print the text of an exception of this type, and return its report."""
    _print_error(text)
    return ERROR + _text(kind) + _text(line) + _text(text)


def _report_exception(error):
    kind = _type(error)
    report = MEMORY if _issubclass(kind, _MemoryError) and not _is_from_parser(error) else ERROR
    try:
        if report is MEMORY:
            _leave_out_the_middle(error.__traceback__)
        rendered = described(kind, error)
        text = "".join(rendered.format())
        line = _line_of(rendered)
    except _BaseException:
        line = kind.__name__
        text = line + "\n"
    if sys.excepthook is _default_excepthook:
        _print_error(text)
    else:
        _call_excepthook(kind, error)
    return report + _text(kind.__name__) + _text(line) + _text(text)


def _is_from_parser(error):
    """Whether an error is about nested expressions, and not about memory."""
    return _len(error.args) == 1 and _str(error.args[0]).startswith(_PARSER_ERROR)


def _leave_out_the_middle(traceback):
    """Keep both ends of a long traceback: a recursion that took all memory has a million frames, and no memory to show
    them.
    """
    first = traceback
    for _ in _range(SHOWN_FRAMES):
        if first is None:
            return
        first = first.tb_next
    last, ahead = first, first
    for _ in _range(SHOWN_FRAMES):
        if ahead is None:
            return
        ahead = ahead.tb_next
    while ahead is not None:
        last, ahead = last.tb_next, ahead.tb_next
    if last is not first:
        first.tb_next = last


def _line_of(described):
    """Return the line with the type and the message, without a syntax error's location before it and notes and groups
    after it.
    """
    for text in described.format_exception_only():
        if text.startswith(described.exc_type_str):
            return _first_line(text)
    return described.exc_type_str


def _first_line(text):
    return text.partition("\n")[0]


def described(kind, error):
    """Return the description of an exception."""
    rendered = _TracebackException(kind, error, error.__traceback__, compact=True)
    for one, its_error in chain(rendered, error):
        # The library's frames have no source to show, and the first one belongs to the driver.
        one.stack = _StackSummary.from_list(
            [frame for frame in one.stack if not frame.filename.startswith(HIDDEN_FRAMES)]
        )
        if _isinstance(its_error, _SyntaxError) and one.text is None and one.lineno is not None:
            # A tree was compiled, which does not have its text.
            one.text = linecache.getline(one.filename, _int(one.lineno)) or None
    return rendered


def chain(rendered, error):
    """Yield the descriptions of an exception, of its causes and contexts, and of the members of groups, each with its
    exception.
    """
    waiting = [(rendered, error)]
    seen = set()
    while waiting:
        one, error = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one, error
        waiting += [(one.__cause__, error.__cause__), (one.__context__, error.__context__)]
        waiting += zip(one.exceptions or (), getattr(error, "exceptions", ()))


def _call_excepthook(kind, error):
    try:
        sys.excepthook(kind, error, error.__traceback__)
    except _BaseException as broken:
        _print_error("Error in sys.excepthook: " + _type(broken).__name__ + "\n")


def _print_error(text):
    try:
        sys.stderr.write(text)
    except _BaseException:
        pass


def _text(text):
    encoded = text.encode("utf-8", "replace")[:TEXT_LIMIT]
    return _len(encoded).to_bytes(4, "little") + encoded
