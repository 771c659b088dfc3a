#!/usr/bin/env bash
# SFT warm start, then multi-turn GRPO, on BabyAI; no GPU and no model hub needed. See README.md beside this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/quickstart/run.sh [options]

  --out DIR      where everything goes              (default outputs/quickstart)
  --model PATH   Hugging Face folder to start from  (default: a new small policy)
  --seed N       of tasks, weights and sampling     (default 0)
  --levels "A B" BabyAI levels, dealt in turn       (default GoToObj OneRoomS8)
  --max-turns N  of one episode                     (default 8)
  --steps N      GRPO steps                         (default 60)
  --resume       go on where an earlier run in DIR ended
TEXT
}

out=outputs/quickstart model='' seed=0 levels='GoToObj OneRoomS8' max_turns=8 steps=60 resume=''
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --model) model=$2; shift 2 ;;
        --seed) seed=$2; shift 2 ;;
        --levels) levels=$2; shift 2 ;;
        --max-turns) max_turns=$2; shift 2 ;;
        --steps) steps=$2; shift 2 ;;
        --resume) resume=yes; shift ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done
if [ -n "$model" ] && [ ! -f "$model/config.json" ]; then
    echo "--model $model is no Hugging Face folder: it has no config.json" >&2
    exit 2
fi
if [ -e "$out/done" ] && [ -z "$resume" ]; then
    echo "$out holds an earlier run: give --resume to go on with it, or another --out" >&2
    exit 2
fi

source recipes/_install.sh
install_project babyai
mkdir -p "$out/done" "$out/logs"
out=$(cd "$out" && pwd)
train=512 validation=64 test=256 reply_tokens=6
policy=${model:-$out/policy}
# OpenMP threads that wait must sleep: spinning takes the cores from the other processes of the training.
export OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} TOKENIZERS_PARALLELISM=false PYTHONWARNINGS=ignore

stage() { # stage NAME TITLE COMMAND...: run a stage once
    local name=$1 title=$2
    shift 2
    if [ -e "$out/done/$name" ]; then
        echo "== $title: done before"
        return
    fi
    echo "== $title ($(date +%T))"
    "$@"
    touch "$out/done/$name"
}

tasks() {
    # shellcheck disable=SC2086
    python -m data_preprocess.babyai --levels $levels --max-turns "$max_turns" --seed "$seed" --out "$out/data" \
        --train $train --validation $validation --test $test
}

prepare() {
    rm -rf "$out/policy"
    python -m recipes.quickstart.prepare --out "$out" --seed "$seed" ${model:+--model "$model"}
}

sft() {
    openmanus-rl follow --metrics "$out/metrics/sft" --log "$out/logs/sft.log" --steps 90 -- \
        torchrun --standalone --nproc_per_node=1 -m verl.trainer.sft_trainer \
        --config-dir "$PWD/recipes/quickstart" --config-name sft \
        data.train_files="$out/data/sft.parquet" model.path="$policy" trainer.seed="$seed" \
        trainer.default_local_dir="$out/sft_checkpoints"
    python -m recipes.quickstart.select_sft --out "$out" --max-tokens $reply_tokens --seed "$seed"
}

grpo() {
    openmanus-rl follow --metrics "$out/metrics/grpo" --log "$out/logs/grpo.log" --steps "$steps" -- \
        python -m verl.trainer.main_ppo --config-dir "$PWD/recipes/quickstart" --config-name grpo \
        data.train_files="$out/data/train.parquet" data.val_files="$out/data/validation.parquet" data.seed="$seed" \
        actor_rollout_ref.model.path="$out/sft" actor_rollout_ref.rollout.seed="$seed" \
        actor_rollout_ref.actor.fsdp_config.seed="$seed" actor_rollout_ref.actor.data_loader_seed="$seed" \
        agentgym.turn_tokens=$reply_tokens trainer.total_training_steps="$steps" \
        trainer.default_local_dir="$out/grpo_checkpoints"
    rm -rf "$out/grpo"
    cp -r "$out/grpo_checkpoints/global_step_$steps/actor/huggingface" "$out/grpo"
}

evaluate() {
    local stage folder how
    mkdir -p "$out/evaluation"
    for how in sampled greedy; do
        for stage in start sft grpo; do
            folder=$out/$stage
            [ $stage = start ] && folder=$policy
            [ -e "$out/evaluation/$stage-$how.json" ] && continue
            echo "-- $stage, $how"
            openmanus-rl eval --tasks "$out/data/test.parquet" --policy "checkpoint:$folder" --seed "$seed" \
                --max-tokens $reply_tokens --concurrency 64 --temperature "$([ $how = greedy ] && echo 0 || echo 1)" \
                --out "$out/evaluation/$stage-$how.json" --save-trajectories "$out/evaluation/$stage-$how.jsonl" \
                >"$out/logs/evaluation.log"
        done
    done
}

report() {
    python -m recipes.quickstart.report --out "$out" --validation-episodes $validation \
        --setting "levels=$levels" --setting "turns an episode=$max_turns" --setting "seed=$seed" \
        --setting "start=${model:-a new Qwen2 policy}" --setting "GRPO=$steps steps of 8 tasks x 8 trajectories"
}

stage tasks "tasks" tasks
stage prepare "expert trajectories" prepare
stage sft "SFT warm start" sft
stage grpo "GRPO" grpo
stage evaluate "evaluation on held-out tasks" evaluate
report
