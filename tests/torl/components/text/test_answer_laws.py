"""The scan for boxes against a naive search from every possible start."""

from hypothesis import given
from hypothesis import strategies as st

from torl.components.text.answers import find_answer

_PIECES = st.sampled_from(["\\boxed{", "{", "}", "\\{", "\\}", "\\", "5", " ", "x\n", "\\boxed", "boxed{"])


def _slow(text: str) -> str | None:
    """Try every box, the last first: count braces by hand until its own is closed."""
    starts = [i for i in range(len(text)) if _opens_box(text, i)]
    for start in reversed(starts):
        after = start + len("\\boxed")
        while after < len(text) and text[after].isspace():
            after += 1
        if after == len(text) or text[after] != "{":
            continue
        depth, i = 1, after + 1
        while i < len(text):
            if text[i] == "\\" and not _opens_box(text, i) and not _opens_box(text, i + 1):
                i += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                return text[after + 1 : i].strip()
            i += 1
    return None


def _opens_box(text: str, start: int) -> bool:
    return text.startswith("\\boxed", start) and text[start + len("\\boxed") :].lstrip().startswith("{")


@given(st.lists(_PIECES, max_size=24).map("".join))
def test_equals_the_slow_search(text: str) -> None:
    answer = find_answer(text)
    assert (None if answer is None else answer.text) == _slow(text)


@given(st.text(), st.text(alphabet="0123456789+-x^ "), st.text(alphabet="abc \n."))
def test_a_final_box_is_always_found(before: str, content: str, after: str) -> None:
    answer = find_answer(before + "\n\\boxed{" + content + "}" + after)
    assert answer is not None
    assert answer.text == content.strip()
