"""A turn as text: where its blocks stand."""

from torl._core import Scanner, StopCondition, Vocabulary
from torl.base.types import StopReason
from torl.components.text.vocabulary import read_turn

BYTES = Vocabulary([bytes([number]) for number in range(256)])


def test_blocks_are_counted_in_characters_however_many_bytes_come_before() -> None:
    text = "Zwölf² ist ½ von 288:\n```python\nprint('→', 12**2)\n```\n```python\nprint('½')\n```\n"
    token_ids = list(text.encode())
    scan = Scanner(BYTES, StopCondition.never()).feed(token_ids)
    turn = read_turn(BYTES, token_ids, scan, 5, StopReason.STOP, 0)
    assert turn.text == text
    assert (turn.start, turn.stop) == (5, 5 + len(token_ids))
    assert [block.code for block in turn.blocks] == ["print('→', 12**2)\n", "print('½')\n"]
    assert [text[block.start : block.stop] for block in turn.blocks] == [block.code for block in turn.blocks]
