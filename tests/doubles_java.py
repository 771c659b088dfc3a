"""Where environments that run Java can be tested."""

import importlib.util
import shutil

import pytest


def java_and(package: str) -> pytest.MarkDecorator:
    """Skips a module's tests, with the reason, where Java or the package is not installed."""
    missing = [f"the package {package!r}"] if importlib.util.find_spec(package) is None else []
    missing += ["`java`"] if shutil.which("java") is None else []
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")
