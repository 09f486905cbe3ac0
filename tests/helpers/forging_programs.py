"""Programs that forge the reports of the harness."""

_LATER = "\ndef solve(*a): pass\ntable = ratio = label = order = show = visit = retry = noted = Vector = solve\n"
_MARKED = r"""
import os
def forge(number, content):
    for test in range(40): os.write(1, f"\n\x1e{test}.{number} {content}\n".encode())
"""
FORGERIES = {
    "forged limit": _MARKED + "forge(0, '{}')\nfor n in range(1, 9): forge(n, '{\"limit\": \"passed\"}')\nos._exit(0)",
    "forged verdict": _MARKED
    + 'for n in range(9): forge(n, \'{"ended": "passed", "value": true, "status": "passed"}\')\nos._exit(0)',
    "forged exception that is code": _MARKED
    + 'forge(0, \'{}\')\nfor n in range(1, 9): forge(n, \'{"raised": {"mine": 1, '
    '"error": {"kinds": [["builtins", "exec"]], "text": "", "arguments": ["import sys; sys.modules.clear()"]}}}\')\n'
    "os._exit(0)",
    "forged type that is code": _MARKED + 'forge(0, \'{}\')\nfor n in range(1, 9): forge(n, \'{"value": {"type": '
    '"exec"}}\')\nos._exit(0)',
    "forged base class": _MARKED + 'forge(0, \'{}\')\nfor n in range(1, 9): forge(n, \'{"value": {"mine": 1, "class": '
    '"A", "bases": [["builtins", "int"]]}}\')\nos._exit(0)',
    "forged question": _MARKED
    + "forge(0, '{}')\nforge(1, '{\"value\": {\"mine\": 1}}')\nfor n in range(2, 20): forge(n, "
    '\'{"ask": ["apply", [{"yours": 0}, "__init__.__globals__", []]]}\')\nos._exit(0)',
    "forged change of what is no argument": _MARKED
    + "forge(0, '{}')\nfor n in range(1, 9): forge(n, '{\"value\": true, "
    '"changed": [[0, [9]], [1, [9]], ["x", 9]]}\')\nos._exit(0)',
    "forged classes": _MARKED + 'forge(0, \'{}\')\nfor n in range(1, 9): forge(n, \'{"value": {"mine": 1, "class": '
    '"Vector", "of": {"mine": 1, "class": "Vector"}, "data": {"mine": 2}}}\')\nos._exit(0)',
    "replies out of order": _MARKED + "for n in (3, 1, 2, 0): forge(n, '{\"value\": 9}')\n" + _LATER,
    "replies to later operations": _MARKED + "for n in range(1, 9): forge(n, '{\"value\": 9.5}')\n" + _LATER,
    "two replies": _MARKED
    + "def solve(*a):\n    for n in range(9): forge(n, '{\"value\": true}')\ntable = ratio = solve\n",
    "replies that are no JSON": _MARKED + "for n in range(9): forge(n, '{')\nos._exit(0)",
    "replies of another form": _MARKED
    + "for n, c in enumerate(('[]', '7', 'null', '{\"raised\": 5}', '{\"value\": {}}')): forge(n, c)\nos._exit(0)",
    "exception of another form": _MARKED + 'forge(0, \'{"raised": {"error": {"kinds": [{"class": 5}], "text": '
    '"\\\\ud800"}}}\')\nos._exit(0)',
    **{
        f"forged value {value[:40]}": _MARKED
        + f"forge(0, '{{}}')\nfor n in range(1, 9): forge(n, '{{\"value\": ' + {value} + '}}')\nos._exit(0)"
        for value in (
            "'[' * 100000 + ']' * 100000",
            "'{\"tuple\": [' * 300 + ']}' * 300",
            "'{\"fraction\": [1, 0]}'",
            '\'{"decimal": ["1e999999999"]}\'',
            "'{\"range\": [0, 1000000000000000000000000000000, 1]}'",
            "'{\"timedelta\": [1e30, 0, 0]}'",
            '\'{"type": "nothing"}\'',
            "'{\"scalar\": []}'",
            '\'{"array": ["V999999999", [1], [1]]}\'',
            '\'{"array": ["O", [3], [0, 1, 4, 5]]}\'',
            '\'{"set": [[1], {"dict": [[[], []]]}]}\'',
            "'{\"dict\": [1, 2]}'",
            "'{\"int\": \"' + 'f' * 1000000 + '\"}'",
            "'9' * 5000",
            "'{\"set\": [' + ','.join(str(k * (2**61 - 1)) for k in range(20000)) + ']}'",
            '\'{"mine": "x"}\'',
            "'{\"yours\": 99}'",
            '\'{"mine": 1, "data": {"mine": 1, "data": {"mine": 1}}}\'',
        )
    },
}
