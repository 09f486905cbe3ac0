"""CPython's test files that run in the sandbox, other files that they need, and why tests of them fail."""

import re

FILES = """
test_int test_long test_float test_complex test_math test_cmath test_fractions test_statistics test_random test_pow
test_numeric_tower test_strtod test_hash test_bool test_index test_str test_bytes test_string test_format test_fstring
test_string_literals test_textwrap test_difflib test_pprint test_unicodedata test_codecs test_html test_shlex test_re
test_json test_csv test_base64 test_binascii test_zlib test_struct test_array test_hashlib test_hmac test_memoryview
test_copy test_marshal test_list test_tuple test_dict test_set test_range test_slice test_sort test_heapq test_bisect
test_deque test_defaultdict test_ordered_dict test_collections test_userdict test_userlist test_userstring
test_functools test_operator test_iter test_enumerate test_listcomps test_dictcomps test_setcomps test_genexps
test_generators test_unpack test_unpack_ex test_augassign test_decorators test_scope test_named_expressions
test_positional_only_arg test_keywordonlyarg test_grammar test_syntax test_patma test_compile test_ast test_eof
test_exceptions test_exception_group test_except_star test_raise test_with test_contextlib test_class test_descr
test_super test_property test_metaclass test_isinstance test_subclassinit test_abc test_typing test_types test_enum
test_dataclasses test_builtin test_call test_extcall test_compare test_richcmp test_contains test_opcodes
test_dynamicclassattribute test_datetime test_calendar test_time test_strptime test_graphlib test_weakref test_weakset
test_reprlib test_memoryio test_glob test_fnmatch test_posixpath test_configparser test_tomllib test_uuid
test_ipaddress test_colorsys test_urlparse test_symtable test_coroutines test_gc test_warnings test_sys test_optparse
test_argparse test_cmd test_code test_codeop test_linecache test_keyword test_numbers test_secrets test_decimal
test_pickle test_itertools test_io test_zipfile test_tokenize test_buffer test_inspect test_traceback test_sqlite3
test_asyncgen test_tempfile test_pathlib test_gzip test_bz2 test_lzma test_fileio
"""
# Directories and files next to a test file that it reads.
_DATETIME = ("datetimetester.py",)
DATA = {
    "test_math": ("mathdata", "test_iter.py"),
    "test_difflib": ("test_difflib_expect.html",),
    "test_fractions": ("mathdata",),
    "test_random": ("randv2_32.pck", "randv2_64.pck", "randv3.pck"),
    "test_complex": ("mathdata", "test_grammar.py", "typinganndata"),
    "test_cmath": ("mathdata", "test_math.py", "test_capi"),
    "test_decimal": ("decimaltestdata", "pickletester.py"),
    "test_datetime": _DATETIME,
    "test_json": ("json_tests",),
    "test_pickle": ("pickletester.py", "picklecommon.py"),
    "test_list": ("list_tests.py", "pickletester.py"),
    "test_userlist": ("list_tests.py",),
    "test_tuple": ("seq_tests.py",),
    "test_str": ("string_tests.py", "test_c_locale_coercion.py"),
    "test_userstring": ("string_tests.py",),
    "test_bytes": ("string_tests.py", "list_tests.py", "seq_tests.py", "test_capi"),
    "test_dict": ("mapping_tests.py",),
    "test_userdict": ("mapping_tests.py",),
    "test_ordered_dict": ("mapping_tests.py",),
    "test_collections": ("mapping_tests.py", "test_deque.py"),
    "test_strtod": ("test_float.py",),
    "test_float": ("mathdata", "formatfloat_testcases.txt", "test_grammar.py"),
    "test_typing": ("typinganndata", "mod_generics_cache.py", "_typed_dict_helper.py", "ann_module.py"),
    "test_inspect": ("test_inspect", "inspect_fodder.py", "inspect_fodder2.py"),
    "test_grammar": ("typinganndata", "ann_module.py", "ann_module2.py", "ann_module3.py"),
    "test_re": ("re_tests.py",),
    "test_hashlib": ("hashlibdata", "hashdigest.py"),
    "test_exceptions": ("testcodec.py",),
    "test_deque": ("seq_tests.py", "test_iter.py"),
    "test_array": ("string_tests.py",),
    "test_long": ("mathdata", "test_int.py"),
    "test_urlparse": ("urllib_testdata.txt",),
    "test_xml_etree": ("xmltestdata",),
    "test_zipfile": ("archivetestdata", "zipdir.zip"),
    "test_configparser": ("configdata", "cfgparser.1", "cfgparser.2", "cfgparser.3", "mapping_tests.py"),
    "test_io": ("memoryio_tests.py",),
    "test_tokenize": ("tokenizedata",),
    "test_warnings": ("test_warnings",),
    "test_time": ("test_strptime.py",),
    "test_extcall": ("test_unpack_ex.py",),
}  # fmt: skip
# The first that is found in the last line of a failure.
REASONS = [
    ("a file beside the test that it was not given", r"FileNotFoundError|No module named 'test"),
    ("needs a process", r"subprocess|fork|spawn|popen|has no attribute '(pipe|waitpid|kill|getpid)"),
    ("needs a thread", r"can't start new thread|thread"),
    ("needs a socket", r"socket"),
    ("a module that the guest or the newer version has not", r"ModuleNotFoundError|No module named"),
    ("an error of the system", r"Errno|errno"),
    ("sizes have 32 bits", r"OverflowError|too large|C ssize_t|maxsize|2147483647|4294967296|Python int"),
    ("no links, owners or permissions", r"chmod|symlink|permission|umask|has no attribute '(link|chown|mkfifo|getuid)"),
    ("memory", r"MemoryError|memory"),
    ("time", r"^timeout"),
    ("the run ended", r"^(crash|error|output_limit)"),
]


def reason(line: str) -> str:
    """The group of a failure whose last line is `line`; the type of error if it is in none."""
    for why, pattern in REASONS:
        if re.search(pattern, line):
            return why
    return f"other: {line.partition(':')[0][:60]}"
