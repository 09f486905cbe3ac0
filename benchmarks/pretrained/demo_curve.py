"""The curves of `demo.py` as SVG: accuracy, code ratio and pass ratio over the steps of each line's runs.

Lines are means over the seeds. Accuracy while training is on the training problems; the points of the first panel are
the accuracy on held-out pairs before the first update and after the last.
"""

from collections import defaultdict
from pathlib import Path
from statistics import fmean

from benchmarks.demo.curve import GREY, finish_figure, start_figure
from benchmarks.pretrained.demo_table import LABELS, finished
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics

PANELS = (names.ACCURACY, names.CODE_RATIO, names.PASS_RATIO)
HELD_OUT = names.evaluation_name("heldout", names.ACCURACY)
COLORS = {
    "trained": "#3b82f6",
    "no_tool": "#f59e0b",
    "observations": "#10b981",
    "rewards": "#a855f7",
    "further": "#ef4444",
    "rejection": "#ec4899",
}


def draw(directory: Path, output: Path) -> None:
    """Draw the curves of the finished runs in a directory."""
    figure, (panels,) = start_figure(len(PANELS), (11, 3.2))
    for axes, metric in zip(panels, PANELS, strict=True):
        axes.set_title(metric.label, color=GREY, fontsize=10)
        axes.set_ylim(0, 1.02)
        for name, color in COLORS.items():
            steps, values = mean_series(directory, name, metric)
            if steps:
                axes.plot(steps, values, color=color)
    for name, color in COLORS.items():
        steps, values = mean_series(directory, name, HELD_OUT)
        if steps:
            panels[0].plot(steps, values, "o--", color=color, markersize=4)
            panels[-1].plot([], [], color=color, label=LABELS[name])
    panels[-1].plot([], [], "o--", color=GREY, markersize=4, label="on held-out pairs")
    finish_figure(figure, output)


def mean_series(directory: Path, name: str, metric: str) -> tuple[list[int], list[float]]:
    """Return the steps of a line and the means of a metric over the seeds that have it there."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for run in finished(directory, name).values():
        for step, value in zip(*values_of(read_metrics(run), metric), strict=True):
            found[step].append(value)
    return sorted(found), [fmean(found[step]) for step in sorted(found)]
