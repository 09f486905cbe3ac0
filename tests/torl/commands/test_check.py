"""`torl check`: what it says of this machine, and of one that lacks something."""

from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import constants

from torl.base.errors import ConfigError
from torl.commands import check
from torl.run.placement.machine import Machine


@pytest.fixture(autouse=True)
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def lines() -> dict[str, check.Line]:
    return {line.subject: line for line in check.check()}


def test_this_machine_trains_models_and_each_note_has_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 0
    printed = capsys.readouterr().out
    assert "FAIL" not in printed
    assert f"torch {metadata.version('torch')}" in printed
    assert "offline (HF_HUB_OFFLINE): the cache only" in printed
    assert lines()["sandbox"].text.startswith("works, started and tested in")


def test_missing_and_other_versions_of_packages_fail_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["numpy>=2", "numpy<1 ; extra == 'cpu'", 'nonesuch>=3 ; extra == "cpu"', "torl[runs] ; extra == 'cpu'"]
    monkeypatch.setattr(metadata, "requires", lambda name: required)
    found = lines()["packages"]
    assert found.fails
    assert f"numpy is {metadata.version('numpy')}, and torl requires numpy<1; nonesuch is not installed" in found.text
    assert found.remedy == "pip install 'torl[cpu]'"
    assert check.main([]) == 1


def test_torl_that_is_imported_without_being_installed_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_none(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", of_none)
    found = lines()
    assert found["packages"].remedy == "pip install 'torl[cpu]'"
    assert "imported but not installed" in found["packages"].text
    assert "imported but not installed" in found["extras"].text
    assert not any(line.fails for line in found.values())


def test_an_unprepared_sandbox_is_not_prepared_by_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = lines()["sandbox"]
    assert (found.remedy, found.fails) == ("now: torl sandbox check", False)
    assert not list(tmp_path.rglob("*.bin"))


def test_devices_that_cannot_be_used_are_a_failure_and_the_rest_is_still_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Machine:
        raise ConfigError("nvidia-smi: no driver")

    monkeypatch.setattr(check, "this_machine", broken)
    found = lines()
    assert found["devices"].fails
    assert "CUDA_VISIBLE_DEVICES=''" in found["devices"].remedy
    assert "sandbox" in found


def test_a_machine_with_gpus_needs_the_build_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "this_machine", lambda: Machine.with_gpus(8, 80 << 30))
    found = lines()
    assert found["devices"].text.endswith("8 GPUs (GPU; 80 GiB free; driver None)")
    assert found["engine"].fails
    assert found["engine"].remedy == "pip install 'torl[gpu]'"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "mirror.example"], ids=["no server", "no scheme"])
def test_a_hub_that_does_not_answer_is_a_note(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    found = lines()["hub"]
    assert f"{address} cannot be reached" in found.text
    assert not found.fails
