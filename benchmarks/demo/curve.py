"""The picture on the first page: a run's accuracy, code ratio and pass ratio over its steps, as SVG.

pip install matplotlib
python -m benchmarks.demo.curve runs/demo docs/demo_curve.svg
"""

import argparse
from pathlib import Path
from typing import Any

from torl.run.display.series import evaluation_sets, values_of
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics

CURVES = {names.ACCURACY: "#3b82f6", names.CODE_RATIO: "#f59e0b", names.PASS_RATIO: "#10b981"}
GREY = "#888888"  # reads on white and on black


def main() -> None:
    """Draw the curves of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of a run")
    parser.add_argument("output", type=Path, help="SVG file")
    arguments = parser.parse_args()
    rows = read_metrics(arguments.run)
    figure, ((axes,),) = start_figure(1, (7.2, 2.8))
    for metric, color in CURVES.items():
        steps, values = values_of(rows, metric)
        axes.plot(steps, values, color=color, label=metric.label)
    for set_name in evaluation_sets(rows):
        steps, values = values_of(rows, names.evaluation_name(set_name, names.GREEDY_ACCURACY))
        axes.plot(
            steps, values, "o--", color="#ef4444", markersize=4, label=f"{names.GREEDY_ACCURACY.label}, {set_name}"
        )
    finish_figure(figure, arguments.output)


def start_figure(count: int, size: tuple[float, float], rows: int = 1) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its axes, shape (rows, count). Equal data gives equal files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "torl"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, count, figsize=size, layout="constrained", squeeze=False)
    return figure, axes


def finish_figure(figure: Any, output: Path) -> None:
    """Draw the legend to the right of the last axes, and write the SVG file."""
    for axes in figure.axes:
        axes.set(xlabel="step", ylim=(0, 1))
        axes.tick_params(colors=GREY)
        axes.xaxis.label.set_color(GREY)
        for side, spine in axes.spines.items():
            spine.set(color=GREY, visible=side in ("left", "bottom"))
    figure.axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=GREY)
    figure.savefig(output, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    main()
