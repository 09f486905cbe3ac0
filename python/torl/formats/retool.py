"""ReTool's format: code between <code> tags runs, and comes back between <interpreter> tags."""

import re
from typing import ClassVar

from torl.formats.tagged import TaggedFormat

_FENCED = re.compile(r"```python(.*?)```", re.DOTALL)


class ReToolFormat(TaggedFormat):
    """ReTool's (section 2.3): the code runs at `</code>`, and what came of it, errors too, stands in `<interpreter>`.

    A fenced block within the tags is the code, as in ReTool's data (`retool_sft_preprocess.py` of verl's recipe). The
    line breaks around the tags of the result are torl's: the paper says nothing of them.
    """

    name: ClassVar[str] = "retool"
    tags = ("<code>", "</code>")
    result_tags = ("<interpreter>", "</interpreter>")

    def code_in(self, text: str) -> str:
        """The first fenced block, or all of it where there is none."""
        fenced = _FENCED.search(text)
        return (fenced[1] if fenced else text).strip()
