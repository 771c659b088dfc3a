# Sourced by recipes and by tests/run.sh, so that both install the project in the same way.
#
#   install_project EXTRAS      e.g. install_project babyai,server
#
# Installs the project, editable, into the active virtual environment, or else into `.venv` in the project's folder, and
# activates that. The second time it does nothing, until setup.py or the constraints change. Without a GPU it keeps to
# constraints-cpu.txt. PYTHON names the interpreter to use (3.10 to 3.12); otherwise the first fitting one is taken.

install_project() {
    local extras=$1 root venv constraints stamp
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    venv=${VIRTUAL_ENV:-$root/.venv}
    constraints=$root/constraints-cpu.txt
    command -v nvidia-smi >/dev/null && constraints=/dev/null
    stamp=$(echo "$root $extras" | cat - "$root/setup.py" "$constraints" | cksum)
    stamp=$venv/.openmanus-rl-${stamp%% *}
    if [ ! -e "$stamp" ]; then
        if [ -z "${VIRTUAL_ENV:-}" ]; then
            local python
            python=$(_find_python) || return 1
            "$python" -m venv "$venv" || return 1
        fi
        echo "installing openmanus-rl[$extras] into $venv (log: $venv/install.log)" >&2
        if ! "$venv/bin/python" -m pip install -q -c "$constraints" -e "$root[$extras]" >"$venv/install.log" 2>&1; then
            tail -n 30 "$venv/install.log" >&2
            echo "the installation failed; the whole log is $venv/install.log" >&2
            return 1
        fi
        touch "$stamp"
    fi
    export VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH
}

_find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10 python}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "openmanus-rl needs Python 3.10, 3.11 or 3.12; tried: ${PYTHON:-python3 python3.12 python3.11 python3.10 python}." \
        "Install one, or name it: PYTHON=/path/to/python3.11" >&2
    return 1
}
