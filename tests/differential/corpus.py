"""Programs that are not generated: programs that models wrote, and hard cases found by hand."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from generation import Program

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "data" / "tora_gsm8k_transcripts.jsonl"
BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)


def corpus() -> Iterator[Program]:
    """Every program: those of the transcripts where they are there."""
    if TRANSCRIPTS.is_file():
        for line in TRANSCRIPTS.read_text(encoding="utf-8").splitlines():
            for code in BLOCK.findall(json.loads(line)["transcript"]):
                yield Program("transcripts", code)
