#!/usr/bin/env bash
# Collect, annotate, filter, augment, SFT: what is each step worth? On BabyAI, on a CPU. See README.md beside this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/flywheel/run.sh [options]

  --out DIR        where everything goes                      (default outputs/flywheel)
  --seeds "0 1 2"  of tasks, weights, sampling, augmentation  (default 0 1 2)
  --episodes N     of each training task                      (default 4)
  --updates N      of every SFT                               (default 60)
  --dry-run        print every command, and run nothing

The same command again goes on where an earlier run in DIR was stopped.
TEXT
}

out=outputs/flywheel seeds='0 1 2' settings=() dry_run=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --seeds) seeds=$2; shift 2 ;;
        --episodes | --updates) settings+=(--set "${1#--}=$2"); shift 2 ;;
        --dry-run) dry_run=--dry-run; shift ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done

source recipes/_install.sh
install_project babyai,data
# OpenMP threads that wait must sleep: spinning takes the cores from the other processes of the training.
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore
for seed in $seeds; do
    echo "=== seed $seed"
    openmanus-rl train --plan recipes/flywheel/plan.yaml --out "$out/seed-$seed" --set seed="$seed" "${settings[@]}" $dry_run
done
[ -n "$dry_run" ] || python -m recipes.flywheel.compare --out "$out" --seeds $seeds
