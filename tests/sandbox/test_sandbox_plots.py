"""matplotlib draws into files of the run; parts that are not included are ordinary missing modules."""

import struct
import zlib
from collections.abc import Iterator

import pytest

from sandboxes import KEPT
from torl_sandbox import OutcomeStatus, SandboxPool


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=20, wall_seconds=120, **KEPT) as pool:
        yield pool


def png_rows(content: bytes) -> tuple[int, int, int]:
    """Width, height and the number of different rows of a PNG without interlacing, read with zlib alone."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, color = struct.unpack(">IIBB", content[16:26])
    assert (depth, color) == (8, 6)
    position, data = 8, b""
    while position < len(content):
        (length,) = struct.unpack(">I", content[position : position + 4])
        kind, body = content[position + 4 : position + 8], content[position + 8 : position + 8 + length]
        (check,) = struct.unpack(">I", content[position + 8 + length : position + 12 + length])
        assert check == zlib.crc32(kind + body)
        data += body if kind == b"IDAT" else b""
        position += 12 + length
    pixels = zlib.decompress(data)
    assert len(pixels) == height * (4 * width + 1)
    return width, height, len({pixels[start : start + 4 * width + 1] for start in range(0, len(pixels), 4 * width + 1)})


FIGURES = {
    "a line with a legend and formulas": (
        "x = np.linspace(0, 6, 50)\nplt.plot(x, np.sin(x), label=r'$\\sin x^2$')\nplt.legend()\nplt.title('Titel ü')\n"
    ),
    "bars, points, histogram and an image": (
        "figure, ((a, b), (c, d)) = plt.subplots(2, 2)\na.bar(['x', 'y'], [1, 2])\nb.scatter([1, 2], [3, 4], c=[0, 1])\n"
        "c.hist(np.random.rand(50))\nfigure.colorbar(d.imshow(np.eye(5)), ax=d)\nplt.tight_layout()\n"
    ),
    "a surface": (
        "axes = plt.figure().add_subplot(projection='3d')\nx, y = np.meshgrid(range(5), range(5))\n"
        "axes.plot_surface(x, y, x * y)\n"
    ),
    "a style, a pie and a logarithmic axis": (
        "plt.style.use('ggplot')\nfigure, (a, b) = plt.subplots(1, 2)\na.pie([1, 2], labels=['a', 'b'])\nb.semilogy([1, 10, 100])\n"
    ),
    "a table's own plot": "import pandas\npandas.DataFrame({'a': [1, 2], 'b': [3, 5]}).plot()\n",
    "an expression": "import sympy\nsympy.plot(sympy.sin(sympy.Symbol('x')), show=False).save('figure.png')\nplt.close('all')\nraise SystemExit\n",
    "a seaborn plot": "import seaborn\nseaborn.scatterplot(x=[1, 2, 3], y=[1, 4, 9])\n",
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_saved_figure_is_a_file_of_the_outcome(pool: SandboxPool, name: str) -> None:
    code = f"import matplotlib.pyplot as plt, numpy as np\n{FIGURES[name]}plt.show()\nplt.savefig('figure.png')"
    outcome = pool.run(code, return_files=True)
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, ""), outcome
    assert list(outcome.files) == ["figure.png"]
    width, height, rows = png_rows(outcome.files["figure.png"])
    assert min(width, height) >= 300
    assert rows > 50


def test_equal_figures_are_equal_to_the_byte(pool: SandboxPool) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.savefig('a.png')"
    files = [pool.run(code, return_files=True).files for _ in range(2)]
    assert files[0] == files[1]


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_other_kinds_of_figures(pool: SandboxPool, kind: str, start: bytes) -> None:
    code = f"import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('$x$')\nplt.savefig('a.{kind}')"
    outcome = pool.run(code, return_files=True)
    assert outcome.ok, outcome
    assert outcome.files[f"a.{kind}"].startswith(start)


def test_showing_does_nothing_and_warns_of_nothing(pool: SandboxPool) -> None:
    outcome = pool.run(
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nimport sympy\nsympy.plot(sympy.abc.x)"
    )
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.OK, "", "")


def test_a_figure_of_a_session_is_drawn_in_parts(pool: SandboxPool) -> None:
    session = pool.session()
    assert session.run("import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 2])").ok
    session.run("axes.set_title('later')")
    outcome = session.run("figure.savefig('a.png')", return_files=True)
    assert png_rows(outcome.files["a.png"])[2] > 50
    assert session.run("figure.savefig('b.png')", return_files=True).files["b.png"] == outcome.files["a.png"]


def test_fonts_and_data_are_found(pool: SandboxPool) -> None:
    code = (
        "import matplotlib.style, matplotlib.font_manager as fonts, matplotlib.cbook as cbook, os\n"
        "print(os.path.basename(fonts.findfont('serif')), len(fonts.fontManager.ttflist) > 20, matplotlib.get_backend())\n"
        "print(os.path.getsize(cbook.get_sample_data('goog.npz', asfileobj=False)), 'ggplot' in matplotlib.style.available)\n"
        "print(os.listdir('.'), sorted(name for name in os.environ if name.startswith('MPL')))"
    )
    assert pool.run(code).stdout == "DejaVuSerif.ttf True agg\n22845 True\n[] []\n"


@pytest.mark.parametrize("name", ["gmpy2", "numba", "requests", "torch", "tensorflow", "cvxpy", "plotly", "pytest"])
def test_missing_plot_backend_is_a_missing_module(pool: SandboxPool, name: str) -> None:
    outcome = pool.run(f"import {name}")
    assert outcome.exception_line == f"ModuleNotFoundError: No module named '{name}'"
