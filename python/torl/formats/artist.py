"""ARTIST's format: code between <python> tags runs, and comes back between <output> tags."""

from typing import ClassVar

from torl.formats.tagged import TaggedFormat


class ArtistFormat(TaggedFormat):
    """ARTIST's for mathematics (section 3.1): `<think>`, `<python>`, `<output>` and, in the end, `<answer>`.

    The code runs at `</python>`. The line breaks around the tags of the result are torl's: the paper says nothing of
    them. `rollout.stop = ["</answer>"]` ends a response with its answer.
    """

    name: ClassVar[str] = "artist"
    tags = ("<python>", "</python>")
    result_tags = ("<output>", "</output>")
