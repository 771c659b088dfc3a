#!/usr/bin/env bash
# Installs the project with all that its tests need, then lints, checks types and runs every test, the slow ones too.
# Arguments go to pytest: bash tests/run.sh -k tokens
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source recipes/_install.sh
install_project test
ruff check .
ruff format --check .
mypy
# Two processes, a file in one of them: while a training waits, other tests run.
python -m pytest -n 2 --dist loadfile "$@"
