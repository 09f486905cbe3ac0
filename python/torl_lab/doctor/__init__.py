"""The doctor: names the diseases of a run from its records, with evidence and the setting to change."""
