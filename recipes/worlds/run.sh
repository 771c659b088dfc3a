#!/usr/bin/env bash
# SFT and GRPO in one of three worlds, a run a seed, and success on held-out tasks before and after. See README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/worlds/run.sh --environment NAME [options]

  --environment NAME  textworld-express (needs Java), textcraft or bfcl
  --out DIR           where everything goes            (default outputs/worlds)
  --seeds "0 1 2"     of tasks, weights and sampling   (default 0 1 2)
  --set NAME=VALUE    another value of a variable of plan.yaml; any number
  --dry-run           print every command, and run nothing

The same command again goes on where an earlier run was stopped.
TEXT
}

environment='' out=outputs/worlds seeds='0 1 2' settings=() dry_run=''
while [ $# -gt 0 ]; do
    case $1 in
        --environment) environment=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --seeds) seeds=$2; shift 2 ;;
        --set) settings+=(--set "$2"); shift 2 ;;
        --dry-run) dry_run=--dry-run; shift ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done

case $environment in
    textworld-express)
        world=(tasks=textworld_express reply_tokens=8 prompt_tokens=192 response_tokens=640 environments=12
            sft_steps=90 skip=8 enough=0.3 reward=environment steps=26 turns=9 learning_rate=1.0e-3
            task_options='--games mapreader --max-turns 9 --train 160 --validation 48 --test 128 --parameters '\
'numLocations=3 maxDistanceApart=1 maxDistractorItemsPerLocation=0 includeDoors=0') ;;
    textcraft) world=() ;; # as plan.yaml has it
    bfcl)
        world=(tasks=bfcl reply_tokens=96 prompt_tokens=768 response_tokens=1536 environments=8
            sft_steps=40 skip=7 by=return reward=environment steps=4 turns=64
            task_options='--prompt "Meet each request with calls, then say: Done."') ;;
    *) echo "--environment is one of textworld-express, textcraft, bfcl; given: '$environment'" >&2; exit 2 ;;
esac

source recipes/_install.sh
install_project "$environment"
# The package pins numpy and the clients of ten vendors for what is not used here.
[ "$environment" != bfcl ] || python -m pip install -q --no-deps bfcl-eval==2026.3.23
# OpenMP threads that wait must sleep: spinning takes the cores from the other processes of the training.
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore

for seed in $seeds; do
    openmanus-rl train --plan recipes/worlds/plan.yaml --out "$out/$environment/seed-$seed" --set "seed=$seed" \
        "${world[@]/#/--set=}" "${settings[@]}" $dry_run
done
[ -n "$dry_run" ] || python -m recipes.worlds.compare --out "$out/$environment" --seeds $seeds
