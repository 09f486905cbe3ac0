"""The doctor: checks of runs by their records. A finding names its evidence and the settings to change."""
