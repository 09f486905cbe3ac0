"""Pictures at `plt.show()`: a session that ran `SAVE_SHOWN` first saves the open figures as PNG files, and closes them.

This is how a notebook displays figures. Without it, `plt.show()` has no effect, as on a machine without a screen.
"""

import re

DIRECTORY = ".figures"
"""Directory of the pictures, in the working directory of a run."""

SAVE_SHOWN = f"""
def _save_shown_figures():
    import _torl_driver, _torl_imports, os
    directory = os.path.join(_torl_driver.DIRECTORY, {DIRECTORY!r})

    def show(*args, **kwargs):
        import matplotlib.pyplot as plt
        os.makedirs(directory, exist_ok=True)
        for number in plt.get_fignums():
            figure = plt.figure(number)
            path = os.path.join(directory, f"{{len(os.listdir(directory)) + 1}}.png")
            figure.savefig(path, bbox_inches="tight", metadata={{"Title": repr(figure)}})
        plt.close("all")

    def execute_pyplot(module, execute):
        execute()
        module.show = show

    _torl_imports.Finder.modules["matplotlib.pyplot"] = execute_pyplot
    _torl_driver._blocks = 0  # tracebacks number the parts of the program only

_save_shown_figures()
del _save_shown_figures
"""

_TITLE = re.compile(rb"tEXtTitle\0(<Figure [^>]*>)")


def is_picture(path: str) -> bool:
    """Whether a file of an outcome is the picture of a figure that was shown."""
    return path.startswith(f"{DIRECTORY}/") and path.endswith(".png")


def figure_text(picture: bytes) -> str:
    """Return the text of the figure in a picture, such as "<Figure size 640x480 with 1 Axes>"."""
    found = _TITLE.search(picture)
    return found[1].decode() if found else "<Figure>"
