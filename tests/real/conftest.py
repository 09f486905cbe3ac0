"""Tests of pre-trained models, for those whose packages are installed: `make test-real`."""

from installed_models import INSTALLED

collect_ignore_glob = [] if INSTALLED else ["test_*.py"]
