#!/usr/bin/env bash
# The quickstart's GRPO again, from the same start, with three episodes in ten hit by a fault. See README.md beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/chaos/run.sh [options]

  --from DIR       a finished run of recipes/quickstart/run.sh  (default outputs/quickstart)
  --out DIR        where everything goes                        (default outputs/chaos)
  --seed N         the seed of that run                         (default 0)
  --steps N        GRPO steps                                   (default 60)
  --isolation HOW  thread, or process: crashes really kill      (default thread)
TEXT
}

from=outputs/quickstart out=outputs/chaos seed=0 steps=60 isolation=thread
while [ $# -gt 0 ]; do
    case $1 in
        --from) from=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --seed) seed=$2; shift 2 ;;
        --steps) steps=$2; shift 2 ;;
        --isolation) isolation=$2; shift 2 ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done
if [ ! -e "$from/sft/config.json" ]; then
    echo "$from holds no finished quickstart: there is no $from/sft. Run: bash recipes/quickstart/run.sh --out $from" >&2
    exit 2
fi

source recipes/_install.sh
install_project babyai
mkdir -p "$out"
out=$(cd "$out" && pwd) from=$(cd "$from" && pwd)
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore

# 5 calls in 100 are hit; with some 7 calls an episode that is 3 episodes in 10.
faults=()
for fault in crash=0.01 error=0.01 hang=0.01 slow=0.01 nan_reward=0.005 connection_reset=0.005 \
    slow_median_seconds=0.3 seed="$seed"; do
    faults+=("agentgym.chaos.$fault")
done
openmanus-rl follow --metrics "$out/metrics" --log "$out/grpo.log" --steps "$steps" -- \
    python -m verl.trainer.main_ppo --config-dir "$PWD/recipes/quickstart" --config-name grpo "${faults[@]}" \
    data.train_files="$from/data/train.parquet" data.val_files="$from/data/validation.parquet" data.seed="$seed" \
    actor_rollout_ref.model.path="$from/sft" actor_rollout_ref.rollout.seed="$seed" \
    actor_rollout_ref.actor.fsdp_config.seed="$seed" actor_rollout_ref.actor.data_loader_seed="$seed" \
    agentgym.isolation="$isolation" agentgym.turn_tokens=6 agentgym.limits.step_seconds=2 agentgym.limits.reset_seconds=5 \
    trainer.total_training_steps="$steps" trainer.default_local_dir="$out/checkpoints"
openmanus-rl eval --tasks "$from/data/test.parquet" --policy "checkpoint:$out/checkpoints/global_step_$steps/actor/huggingface" \
    --seed "$seed" --max-tokens 6 --concurrency 64 --out "$out/sampled.json"
python -m recipes.chaos.compare --from "$from" --out "$out"
