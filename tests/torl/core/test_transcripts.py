"""Real transcripts of a tool-using model: every block and every marker is found, token by token."""

import json
import re

import pytest

from places import ROOT
from tokenizers_for_tests import byte_level_bpe, metaspace_bpe, metaspace_unigram
from torl._core import Scanner, StopCondition
from torl.components.text.vocabulary import build_vocabulary

TRANSCRIPTS = ROOT.parent / "shared" / "data" / "tora_gsm8k_transcripts.jsonl"
# Independent of the scanner: one expression over the whole text.
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARKER = "```output"

pytestmark = pytest.mark.skipif(not TRANSCRIPTS.exists(), reason=f"the transcripts are not at {TRANSCRIPTS}")


@pytest.fixture(scope="module")
def transcripts() -> list[str]:
    with TRANSCRIPTS.open(encoding="utf-8") as lines:
        return [json.loads(line)["transcript"] for line in lines]


@pytest.mark.parametrize("family", [byte_level_bpe, metaspace_bpe, metaspace_unigram])
def test_every_block_and_every_marker(family, transcripts) -> None:
    tokenizer = family()
    vocabulary = build_vocabulary(tokenizer)
    blocks_found = markers_found = 0
    for transcript in transcripts:
        # SentencePiece would glue its extra leading space to the first fence; in an episode a prompt is there.
        ids = tokenizer.encode("\n" + transcript, add_special_tokens=False)
        text = vocabulary.decode(ids).removeprefix(" ").removeprefix("\n")
        assert text == transcript
        end = StopCondition.marker(MARKER.encode())
        scanner = Scanner(vocabulary, end)
        codes, markers, offset = [], [], -len(vocabulary.decode_bytes(ids)) + len(transcript.encode())
        turn = offset
        for index in ids:
            scan = scanner.feed([index])
            assert scan.consumed == 1
            codes += [block.code for block in scan.blocks]
            if scan.marker is not None:
                markers.append(turn + scan.marker.start)
                turn += scan.marker.stop + len(scan.marker.overshoot)
                # The next turn continues after the marker's token, as the text does.
                scanner = Scanner(vocabulary, end, at_line_start=scan.marker.overshoot.endswith(b"\n"))
        data = transcript.encode()
        assert codes == BLOCK.findall(transcript)
        assert markers == [match.start() for match in re.finditer(MARKER.encode(), data)]
        blocks_found += len(codes)
        markers_found += len(markers)
    assert (len(transcripts), blocks_found, markers_found) == (1319, 1319, 1318)


def test_whole_turns_without_a_marker(transcripts) -> None:
    """After the last allowed call the marker is text; blocks are still found, in one call per transcript."""
    tokenizer = byte_level_bpe()
    vocabulary = build_vocabulary(tokenizer)
    for transcript in transcripts:
        scan = Scanner(vocabulary, StopCondition.never()).feed(tokenizer.encode(transcript, add_special_tokens=False))
        assert scan.marker is None
        assert [block.code for block in scan.blocks] == BLOCK.findall(transcript)
