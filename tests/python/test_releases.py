"""Tested releases of other packages: an older release is refused, and a newer one gets a warning."""

import importlib.metadata
import warnings

import pytest

from geminid import _releases, errors


@pytest.fixture
def installed(monkeypatch):
    return lambda release: monkeypatch.setattr(importlib.metadata, "version", lambda package: release)


@pytest.mark.parametrize("release", ["4.56.2", "4.9", "3.99.1"])
def test_older_release_is_refused_with_what_to_install(installed, release):
    installed(release)
    with pytest.raises(errors.Refused, match=rf"^transformers is {release}; 4.57 to 5.24 were tried .*"
                                             r"pip install 'transformers>=4.57'$"):
        _releases.check("transformers", "4.57", "5.24")


@pytest.mark.parametrize("release", ["5.25.0", "5.100", "6.0.dev0"])
def test_newer_release_is_told_and_goes_on(installed, release):
    installed(release)
    with pytest.warns(UserWarning, match=rf"transformers is {release}; 4.57 to 5.24 were tried .*'transformers==5.24.\*'"):
        _releases.check("transformers", "4.57", "5.24")


@pytest.mark.parametrize("release", ["4.57.0", "4.57.6", "5.0.0rc1", "5.24.0", "5.24.9"])
def test_release_in_the_range_is_taken_without_a_word(installed, release):
    installed(release)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _releases.check("transformers", "4.57", "5.24")
