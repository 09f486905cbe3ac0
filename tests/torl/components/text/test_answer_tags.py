r"""The formats that ORZ and ZeroTIR reward, against cases worked out by hand from their code."""

import pytest

from torl.recipes.orz import has_answer_format as has_orz_format
from torl.recipes.zerotir import has_answer_format as has_zerotir_format


@pytest.mark.parametrize(
    ("text", "orz", "zerotir"),
    [
        ("hm</think> <answer>\\boxed{5}</answer>", True, True),
        ("hm</think>\n<answer>It is \\boxed{5}.</answer>\n\n", True, True),
        ("hm <answer>\\boxed{5}</answer>", True, False),  # the thought does not end
        ("hm</think> \\boxed{5}", False, False),
        ("hm</think> <answer>5</answer>", False, False),
        ("hm \\boxed{5}</think> <answer>5</answer>", False, False),  # the box is elsewhere
        ("hm</think> <answer>\\boxed{5}", False, False),
        ("hm</think> <answer>\\boxed{5}</answer>. So it ends", True, True),
        ("hm</think> <answer>\\boxed{5}</answer> and more than five words", True, True),
        ("hm</think> <answer>\\boxed{5}</answer> and more than these five words", True, False),
        ("hm</think> <answer>\\boxed{5}</answer><answer>\\boxed{5}</answer>", True, False),
        ("hm</think> <answer>5</answer>, that is <answer>\\boxed{5}</answer>", True, False),
        ("hm</think></think> <answer>\\boxed{5}</answer>", True, False),
        ("hm</think> <answer>\\boxed{4} <answer>\\boxed{5}</answer>", True, False),
        ("hm</think></answer>\\boxed{5}<answer>", False, False),
        ("<answer>\\boxed{5}</answer></think>", True, False),
    ],
)
def test_formats_of_a_response(text: str, orz: bool, zerotir: bool) -> None:
    assert (has_orz_format(text), has_zerotir_format(text)) == (orz, zerotir)
