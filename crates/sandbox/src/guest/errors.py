"""Linux's numbers of errors, which the interpreter's own exceptions have here: `errno`, and the choice of subclasses.

Evaluated before any module that copies the numbers.
"""

import errno
import gc

# As on x86-64.
LINUX = {
    "EPERM": 1, "ENOENT": 2, "ESRCH": 3, "EINTR": 4, "EIO": 5, "ENXIO": 6, "E2BIG": 7, "ENOEXEC": 8, "EBADF": 9,
    "ECHILD": 10, "EAGAIN": 11, "EWOULDBLOCK": 11, "ENOMEM": 12, "EACCES": 13, "EFAULT": 14, "EBUSY": 16, "EEXIST": 17,
    "EXDEV": 18, "ENODEV": 19, "ENOTDIR": 20, "EISDIR": 21, "EINVAL": 22, "ENFILE": 23, "EMFILE": 24, "ENOTTY": 25,
    "ETXTBSY": 26, "EFBIG": 27, "ENOSPC": 28, "ESPIPE": 29, "EROFS": 30, "EMLINK": 31, "EPIPE": 32, "EDOM": 33,
    "ERANGE": 34, "EDEADLK": 35, "ENAMETOOLONG": 36, "ENOLCK": 37, "ENOSYS": 38, "ENOTEMPTY": 39, "ELOOP": 40,
    "ENOMSG": 42, "EIDRM": 43, "ENOLINK": 67, "EPROTO": 71, "EMULTIHOP": 72, "EBADMSG": 74, "EOVERFLOW": 75,
    "EILSEQ": 84, "ENOTSOCK": 88, "EDESTADDRREQ": 89, "EMSGSIZE": 90, "EPROTOTYPE": 91, "ENOPROTOOPT": 92,
    "EPROTONOSUPPORT": 93, "ENOTSUP": 95, "EOPNOTSUPP": 95, "EAFNOSUPPORT": 97, "EADDRINUSE": 98, "EADDRNOTAVAIL": 99,
    "ENETDOWN": 100, "ENETUNREACH": 101, "ENETRESET": 102, "ECONNABORTED": 103, "ECONNRESET": 104, "ENOBUFS": 105,
    "EISCONN": 106, "ENOTCONN": 107, "ESHUTDOWN": 108, "ETIMEDOUT": 110, "ECONNREFUSED": 111, "EHOSTUNREACH": 113,
    "EALREADY": 114, "EINPROGRESS": 115, "ESTALE": 116, "EDQUOT": 122, "ECANCELED": 125, "EOWNERDEAD": 130, "ENOTRECOVERABLE": 131,
}  # fmt: skip


def renumber():
    before = {name: number for name, number in vars(errno).items() if name.startswith("E")}
    # The interpreter's own table of the subclasses of OSError, among the objects that the collector ignores so far.
    gc.unfreeze()
    [subclasses] = [
        table
        for table in gc.get_objects()
        if type(table) is dict and table.get(before["ENOENT"]) is FileNotFoundError
    ]
    # The last name, of an error that Linux does not have, keeps its number.
    chosen = {LINUX.get(name, number): subclasses[number] for name, number in before.items() if number in subclasses}
    subclasses.clear()
    subclasses.update(chosen)
    errno.errorcode.clear()
    for name in before:
        if name not in LINUX:
            delattr(errno, name)
    for name, number in LINUX.items():
        setattr(errno, name, number)
        errno.errorcode.setdefault(number, name)


renumber()
