#!/usr/bin/env bash
# The same BabyAI tasks and SFT starts, trained with one estimator after the other. See README.md beside this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/estimators/run.sh [options]

  --from DIR          finished runs of recipes/quickstart/seeds.sh  (default outputs/seeds)
  --out DIR           where everything goes                        (default outputs/estimators)
  --seeds "0 1 2"     which of those runs                          (default 0 1 2)
  --estimators "A B"  names of algorithm.adv_estimator             (default trajectory_grpo trajectory_rloo gigpo
                                                                    turn_grpo trajectory_gae)
  --steps N           training steps of each                       (default 30)

What is finished is not run again: give the same command to go on.
TEXT
}

from=outputs/seeds out=outputs/estimators seeds='0 1 2' steps=30
estimators='trajectory_grpo trajectory_rloo gigpo turn_grpo trajectory_gae'
while [ $# -gt 0 ]; do
    case $1 in
        --from) from=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --seeds) seeds=$2; shift 2 ;;
        --estimators) estimators=$2; shift 2 ;;
        --steps) steps=$2; shift 2 ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done
for seed in $seeds; do
    if [ ! -e "$from/seed-$seed/sft/config.json" ]; then
        echo "$from/seed-$seed holds no finished quickstart; run: bash recipes/quickstart/seeds.sh --out $from" >&2
        exit 2
    fi
done

source recipes/_install.sh
install_project babyai
mkdir -p "$out"
out=$(cd "$out" && pwd) from=$(cd "$from" && pwd)
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore

train() { # train ESTIMATOR SEED: with the quickstart's GRPO settings
    local estimator=$1 seed=$2 run=$out/$1/seed-$2 start=$from/seed-$2
    local own=()
    case $estimator in
        # A task has to be solved within its turns: nothing is worth anything behind that limit.
        *_gae) own=(critic.enable=true critic.model.path="$start/sft" critic.optim.lr=5.0e-4 critic.ppo_mini_batch_size=4
            algorithm.lam=0.95 agentgym.truncations.truncated=as_is) ;;
        # A turn earns its share of the outcome by how soon that follows.
        gigpo | turn_*) own=(algorithm.gamma=0.95) ;;
    esac
    openmanus-rl follow --metrics "$run/metrics" --log "$run/log" --steps "$steps" -- \
        python -m verl.trainer.main_ppo --config-dir "$PWD/recipes/quickstart" --config-name grpo \
        data.train_files="$start/data/train.parquet" data.val_files="$start/data/validation.parquet" data.seed="$seed" \
        actor_rollout_ref.model.path="$start/sft" actor_rollout_ref.rollout.seed="$seed" \
        actor_rollout_ref.actor.fsdp_config.seed="$seed" actor_rollout_ref.actor.data_loader_seed="$seed" \
        agentgym.turn_tokens=6 algorithm.adv_estimator="$estimator" "${own[@]}" \
        trainer.total_training_steps="$steps" trainer.save_freq="$steps" trainer.test_freq=-1 \
        trainer.val_before_train=false trainer.default_local_dir="$run/checkpoints"
    openmanus-rl eval --tasks "$start/data/test.parquet" --seed "$seed" --max-tokens 6 --concurrency 64 \
        --policy "checkpoint:$run/checkpoints/global_step_$steps/actor/huggingface" --out "$run/evaluation.json"
}

for seed in $seeds; do
    for estimator in $estimators; do
        if [ ! -e "$out/$estimator/seed-$seed/evaluation.json" ]; then
            echo "== $estimator, seed $seed ($(date +%T))"
            train "$estimator" "$seed"
        fi
    done
done
python -m recipes.estimators.compare --from "$from" --out "$out" --seeds $seeds --estimators $estimators
