#!/usr/bin/env bash
# SFT, GRPO, and rounds of best trajectories -> SFT -> GRPO on BabyAI; no GPU and no model hub needed. See README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/iterate/run.sh [options]

  --out DIR      where everything goes               (default outputs/iterate)
  --seed N       of tasks, weights and sampling      (default 0)
  --steps N      GRPO steps, each time               (default 30)
  --rounds N     of best trajectories, SFT and GRPO  (default 1)
  --samples N    episodes of each task in a round    (default 4)
  --dry-run      print every command, and run nothing

The same command again goes on where an earlier run in DIR was stopped.
TEXT
}

out=outputs/iterate settings=() dry_run=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --seed | --steps | --rounds | --samples) settings+=(--set "${1#--}=$2"); shift 2 ;;
        --dry-run) dry_run=--dry-run; shift ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done

source recipes/_install.sh
install_project babyai
# OpenMP threads that wait must sleep: spinning takes the cores from the other processes of the training.
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore
openmanus-rl train --plan recipes/iterate/plan.yaml --out "$out" "${settings[@]}" $dry_run
