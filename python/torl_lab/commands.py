"""The commands of the laboratory, which `torl` finds by the entry points "torl.commands"."""

from torl.commands.command import Command, Files

CONVERT = Command("torl_lab.exchange.command:main", "read or write trajectories in the formats of other libraries")
DATA = Command("torl_lab.curation.command:main", "download, clean, filter and select problems", Files.BOTH)
DIFF = Command("torl_lab.replay.differences:main", "name the first difference of two runs")
DOCTOR = Command("torl_lab.doctor.command:main", "name what goes wrong in a run, with evidence and settings to change")
EVALUATE = Command(
    "torl_lab.evaluation.command:main", "measure models on problem sets, with tables as in the papers", Files.BOTH
)
REPLAY = Command("torl_lab.replay.step:main", "make a step of a run again and compare it with its record")
REPORT = Command("torl_lab.report.command:main", "write the page of a run, or of several runs")
SWEEP = Command(
    "torl_lab.sweep.command:main", "train every combination of settings and seeds, with one table", Files.OWN
)
VERIFY = Command("torl_lab.audit.run:main", "audit a run from its own files")
VIEW = Command("torl_lab.view.command:main", "look at runs in the browser")
