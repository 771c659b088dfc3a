"""A Java virtual machine of one's own, behind py4j: small, silent, and the same every time.

Invariant: two machines that are asked the same answer the same. The order of a set in Java follows hashes that differ
from run to run unless told otherwise; here all objects have the same one, so sets keep the order of insertion.
`_JAVA_OPTIONS` in the environment goes above these options, e.g. for more memory.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym_rl.errors import ConfigurationError, EnvironmentFailed

OPTIONS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",  # one thread instead of one a core
    "-XX:TieredStopAtLevel=1",  # starts in half the time; compiles less, beside a training that wants the cores
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    "-XX:+ExitOnOutOfMemoryError",  # rather than go on half broken
)


class Jvm:
    """Runs one class of a jar that a Python package ships; what it prints is dropped.

    Args:
        package: the Python package.
        jar: name of the file in the package's folder.
        interface: dotted name of the Java class, which is made without arguments.
        extra: of this distribution, which installs the package.
    """

    def __init__(self, package: str, jar: str, interface: str, extra: str):
        self._package, self._jar, self._name, self._extra = package, jar, interface, extra
        self._gateway: Any = None
        self._process: Any = None
        self._interface: Any = None

    def interface(self) -> Any:
        """The Java object, whose methods are called as Python's; a new one where its machine has not started or died.

        Raises:
            ConfigurationError: the package or Java is not installed.
            EnvironmentFailed: Java did not start.
        """
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start(_folder_of(self._package, self._extra))
        return self._interface

    def close(self) -> None:
        """End the machine. May be called twice."""
        if self._process is None:
            return
        self._gateway.close()
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()  # py4j has a thread that reads and closes its stdout
        self._process = None

    def _start(self, folder: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        try:
            port, self._process = launch_gateway(
                classpath=str(folder / self._jar),
                javaopts=list(OPTIONS),
                die_on_exit=True,
                cwd=str(folder),
                return_proc=True,
            )
        except FileNotFoundError as error:
            raise ConfigurationError(f"{self._package!r} needs Java, and there is no `java` on the PATH") from error
        except ValueError as error:  # instead of its port it said nothing
            raise EnvironmentFailed(f"Java did not start; `java {' '.join(OPTIONS)} -version` says why") from error
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(auto_field=True, port=port))
        self._interface = _attribute(self._gateway.jvm, self._name)()


@contextmanager
def refused_as_configuration(what: str) -> Iterator[None]:
    """What a Java method throws, because it can't make what it is asked for, becomes a `ConfigurationError`."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise ConfigurationError(f"{what}: {error.java_exception.getMessage()}") from error


def _folder_of(package: str, extra: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ConfigurationError(f'this environment needs {package!r}: pip install "openmanus-rl[{extra}]"')
    return Path(found.origin).parent


def _attribute(value: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        value = getattr(value, name)
    return value
