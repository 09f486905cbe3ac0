# ruff: noqa: E501  (each program is on one line)
"""Every third-party package that the sandbox's interpreter can import: version, cost of its import, and whether it works.

Prints lists of packages. The cost, in ms, is CPU time of `import NAME` in a fresh run, less that of an empty one, the median
of several runs. "Works" is a short program in the manner of the package's own
documentation, whose output is known.

    python -m benchmarks.sandbox.packages
"""

import argparse
import statistics

from torl_sandbox import SandboxPool

ROUNDS = 5

# The name to import, the distribution, a program, and what it prints.
PACKAGES: dict[str, tuple[str, str, str]] = {
    "attr": ("attrs", "@attr.s\nclass P:\n    x = attr.ib(default=1)\nprint(P())", "P(x=1)"),
    "bs4": ("beautifulsoup4", "print(bs4.BeautifulSoup('<p>a<b>c</b></p>', 'html.parser').b.text)", "c"),
    "charset_normalizer": (
        "charset-normalizer", "print(charset_normalizer.from_bytes('häuser'.encode()).best().encoding)", "utf_8",
    ),
    "cloudpickle": ("cloudpickle", "print(cloudpickle.loads(cloudpickle.dumps(lambda x: x + 1))(2))", "3"),
    "contourpy": ("contourpy", "print(len(contourpy.contour_generator(z=[[0, 1], [1, 0]]).lines(0.5)))", "2"),
    "cycler": ("cycler", "print(len(cycler.cycler(color='rgb')))", "3"),
    "dateutil": ("python-dateutil", "import dateutil.parser\nprint(dateutil.parser.parse('2024-02-29 10:00'))", "2024-02-29 10:00:00"),
    "defusedxml": ("defusedxml", "import defusedxml.ElementTree as t\nprint(t.fromstring('<a b=\"1\"/>').attrib)", "{'b': '1'}"),
    "et_xmlfile": ("et-xmlfile", "print(callable(et_xmlfile.xmlfile))", "True"),
    "fontTools": ("fonttools", "import fontTools.misc.roundTools as r\nprint(r.otRound(1.5))", "2"),
    "formulaic": (
        "formulaic", "import pandas\nprint(formulaic.model_matrix('x', pandas.DataFrame({'x': [1, 2]})).shape)", "(2, 2)",
    ),
    "html5lib": ("html5lib", "print(html5lib.parse('<p>a')[1][0].text)", "a"),
    "interface_meta": ("interface-meta", "print(interface_meta.InterfaceMeta.__name__)", "InterfaceMeta"),
    "jinja2": ("jinja2", "print(jinja2.Template('{{ x }}!').render(x=1))", "1!"),
    "joblib": ("joblib", "print(joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-i) for i in range(3)))", "[0, 1, 2]"),
    "kiwisolver": (
        "kiwisolver",
        "x, s = kiwisolver.Variable('x'), kiwisolver.Solver()\ns.addConstraint(x == 3)\ns.updateVariables()\nprint(x.value())",
        "3.0",
    ),
    "lxml": ("lxml", "import lxml.etree\nprint(lxml.etree.fromstring('<a><b/></a>')[0].tag)", "b"),
    "markupsafe": ("markupsafe", "print(markupsafe.escape('<'))", "&lt;"),
    "matplotlib.pyplot": (
        "matplotlib", "from matplotlib import pyplot\npyplot.plot([1, 2])\npyplot.savefig('a.png')\nprint(open('a.png', 'rb').read(4))",
        "b'\\x89PNG'",
    ),
    "more_itertools": ("more-itertools", "print(list(more_itertools.chunked(range(3), 2)))", "[[0, 1], [2]]"),
    "mpmath": ("mpmath", "print(mpmath.zeta(2))", "1.64493406684823"),
    "narwhals": ("narwhals", "import pandas\nprint(narwhals.from_native(pandas.DataFrame({'a': [1]})).shape)", "(1, 1)"),
    "networkx": ("networkx", "print(networkx.shortest_path(networkx.path_graph(3), 0, 2))", "[0, 1, 2]"),
    "numpy": ("numpy", "print(numpy.linalg.det(numpy.eye(2)))", "1.0"),
    "openpyxl": (
        "openpyxl",
        "book = openpyxl.Workbook()\nbook.active['A1'] = 3\nbook.save('a.xlsx')\nprint(openpyxl.load_workbook('a.xlsx').active['A1'].value)",
        "3",
    ),
    "packaging": ("packaging", "import packaging.version as v\nprint(v.Version('1.10') > v.Version('1.9'))", "True"),
    "pandas": ("pandas", "print(pandas.DataFrame({'a': [1, 2]}).a.mean())", "1.5"),
    "patsy": ("patsy", "print(patsy.dmatrix('x', {'x': [1.0, 2.0]}).shape)", "(2, 2)"),
    "PIL.Image": ("pillow", "from PIL import Image\nprint(Image.new('RGB', (4, 2)).resize((2, 2)).size)", "(2, 2)"),
    "pyparsing": ("pyparsing", "print(pyparsing.Word(pyparsing.nums).parse_string('12'))", "['12']"),
    "pypdf": ("pypdf", "w = pypdf.PdfWriter()\nw.add_blank_page(10, 10)\nw.write('a.pdf')\nprint(len(pypdf.PdfReader('a.pdf').pages))", "1"),
    "regex": ("regex", "print(regex.findall(r'\\p{Lu}', 'aBÄ'))", "['B', 'Ä']"),
    "reportlab": (
        "reportlab",
        "from reportlab.pdfgen import canvas\nc = canvas.Canvas('a.pdf')\nc.drawString(9, 9, 'x')\nc.save()\nprint(open('a.pdf', 'rb').read(4))",
        "b'%PDF'",
    ),
    "scipy": ("scipy", "import scipy.optimize\nprint(round(scipy.optimize.brentq(lambda x: x * x - 2, 0, 2), 6))", "1.414214"),
    "seaborn": ("seaborn", "print(type(seaborn.lineplot(x=[1, 2], y=[2, 1])).__name__)", "Axes"),
    "six": ("six", "print(six.PY3)", "True"),
    "sklearn.linear_model": (
        "scikit-learn",
        "from sklearn.linear_model import LinearRegression as L\nprint(round(float(L().fit([[0], [1]], [1, 3]).predict([[2]])[0]), 6))",
        "5.0",
    ),
    "soupsieve": ("soupsieve", "import bs4\nprint(soupsieve.select('p', bs4.BeautifulSoup('<p>a', 'html.parser'))[0].text)", "a"),
    "statsmodels.api": (
        "statsmodels",
        "import statsmodels.api as sm\nprint(sm.OLS([1, 3, 5], sm.add_constant([0, 1, 2])).fit().params.round(6).tolist())",
        "[1.0, 2.0]",
    ),
    "sympy": ("sympy", "print(sympy.factor(sympy.Symbol('x')**2 - 1))", "(x - 1)*(x + 1)"),
    "tabulate": ("tabulate", "print(tabulate.tabulate([[1, 2]], tablefmt='plain'))", "1  2"),
    "threadpoolctl": ("threadpoolctl", "print(type(threadpoolctl.threadpool_info()).__name__)", "list"),
    "tlz": ("toolz", "print(tlz.frequencies('aab'))", "{'a': 2, 'b': 1}"),
    "tomli_w": ("tomli-w", "print(tomli_w.dumps({'a': 1}))", "a = 1"),
    "toolz": ("toolz", "print(toolz.frequencies('aab'))", "{'a': 2, 'b': 1}"),
    "tqdm": ("tqdm", "print(sum(tqdm.tqdm(range(4))))", "6"),
    "typing_extensions": ("typing-extensions", "print(typing_extensions.get_origin(list[int]))", "<class 'list'>"),
    "tzdata": ("tzdata", "import zoneinfo\nprint(zoneinfo.ZoneInfo('Europe/Paris'))", "Europe/Paris"),
    "webencodings": ("webencodings", "print(webencodings.lookup('latin1').name)", "windows-1252"),
    "wrapt": ("wrapt", "print(wrapt.ObjectProxy([1]) == [1])", "True"),
    "xlrd": ("xlrd", "print(xlrd.xldate_as_tuple(45000.0, 0)[:3])", "(2023, 3, 15)"),
    "xlsxwriter": (
        "xlsxwriter", "b = xlsxwriter.Workbook('a.xlsx')\nb.add_worksheet().write('A1', 1)\nb.close()\nprint(open('a.xlsx', 'rb').read(2))",
        "b'PK'",
    ),
    "xmltodict": ("xmltodict", "print(xmltodict.parse('<a>1</a>'))", "{'a': '1'}"),
    "yaml": ("pyyaml", "print(yaml.safe_load('a: [1, 2]'))", "{'a': [1, 2]}"),
}  # fmt: skip


def import_milliseconds(pool: SandboxPool, name: str) -> float:
    """CPU time of importing a module in a fresh run."""
    costs = []
    for number in range(ROUNDS):
        empty = pool.run(f"pass  # {number}").cpu_seconds
        costs.append(pool.run(f"import {name}  # {number}").cpu_seconds - empty)
    return max(0.0, statistics.median(costs)) * 1e3


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lists: dict[str, list[str]] = {"In the snapshot": [], "On import": [], "Not working": []}
    with SandboxPool(1, cpu_seconds=60, wall_seconds=600, result_cache_bytes=0) as pool:
        for name, (distribution, program, printed) in PACKAGES.items():
            version = pool.run(f"import importlib.metadata as m\nprint(m.version({distribution!r}))").stdout.strip()
            notes = [] if name == distribution else [f"`{name}`"]
            there = pool.run(f"import sys\nprint({name!r} in sys.modules)").stdout == "True\n"
            outcome = pool.run(f"import {name}\n{program}")
            if not outcome.ok or outcome.stdout.strip() != printed:
                title = "Not working"
                notes.append(outcome.exception_line or outcome.stdout.strip())
            elif there:
                title = "In the snapshot"
            else:
                title, milliseconds = "On import", import_milliseconds(pool, name)
                notes.append(f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:.0f}")
            lists[title].append(f"{distribution} {version}" + (f" ({', '.join(notes)})" if notes else ""))
    for title, entries in lists.items():
        print(f"{title}: {', '.join(entries)}\n")


if __name__ == "__main__":
    main()
