"""Starts a stage's command so that it never outlives its driver, and nobody else works in the plan's folder meanwhile.

    python launched.py LOCK DRIVER COMMAND...

DRIVER is the driver's process id. It asks the kernel to end it when the driver dies (Linux only), takes the lock, and
becomes the command, which keeps both: whoever waits for the lock waits until the command is gone. It imports the
standard library alone, so that it costs little.
"""

import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    lock, driver, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(driver):  # it died before the kernel was asked
        sys.exit("the driver is gone")
    held = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.set_inheritable(held, True)
    # What stands beside this interpreter comes first, whether its environment is active or not.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        sys.exit(f"there is no program {command[0]!r}")


if __name__ == "__main__":
    main()
