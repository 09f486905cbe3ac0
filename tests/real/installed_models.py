"""The models in packages that are installed here."""

from importlib.metadata import PackageNotFoundError, distribution

from torl.components.hub.packages import PACKAGED_MODELS


def _is_installed(requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    try:
        return distribution(name).version == version
    except PackageNotFoundError:
        return False


INSTALLED = [name for name, model in PACKAGED_MODELS.items() if all(map(_is_installed, model.requirements))]
