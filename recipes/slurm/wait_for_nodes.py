"""Wait until a Ray cluster has so many nodes; say which are missing where they don't come."""

from __future__ import annotations

import argparse
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=300.0, help="after which it is given up; default: 300")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    found: list[str] = []
    while time.monotonic() < end:
        found = nodes()
        if len(found) >= options.nodes:
            print(f"{len(found)} nodes: {', '.join(found)}")
            return
        time.sleep(1)
    joined = f"{len(found)} of {options.nodes} nodes joined in {options.seconds:g} s"
    sys.exit(f"only {joined}: {', '.join(found) or 'none'}")


def nodes() -> list[str]:
    """Addresses of the nodes of the cluster at RAY_ADDRESS that are alive; none while it does not answer."""
    import ray

    try:
        ray.init(logging_level="ERROR", log_to_driver=False)
        return [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    except (ConnectionError, RuntimeError, ValueError):
        return []
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
