"""rldoctor on the numbers of a run, after each step: warnings and worse. Reads and writes JSON."""

import json
import sys

from rl_doctor import Severity, diagnose, run_from_records

rows = json.load(sys.stdin)["rows"]
named: dict[str, int] = {}
for count in range(2, len(rows) + 1):
    run = run_from_records(rows[:count])
    for finding in diagnose(run).problems:
        if finding.severity >= Severity.WARNING:
            named.setdefault(finding.detector, count)
print(json.dumps(named))
