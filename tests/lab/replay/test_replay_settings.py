"""The settings of two runs are compared by their present names."""

from pathlib import Path

from torl_lab.replay.differences import settings_differences

BEFORE = "[selection]\ndrop_zero_variance_groups = true\n"
NOW = '[selection.groups.zero_variance]\nname = "zero_variance"\n'


def test_run_of_an_earlier_version_has_thesettings_differences_of_a_present_one(tmp_path: Path) -> None:
    runs = {"before": BEFORE, "now": NOW, "other": ""}
    for name, text in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text)
    assert list(settings_differences(tmp_path / "before", tmp_path / "now")) == []
    (difference,) = settings_differences(tmp_path / "before", tmp_path / "other")
    assert "selection.groups.zero_variance.name" in repr(difference)
