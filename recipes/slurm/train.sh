#!/usr/bin/env bash
# A training over the nodes of a Slurm job: one Ray cluster for the job, and on it the command. See README.md beside this.
#SBATCH --job-name=openmanus-rl
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%j.log
#SBATCH --open-mode=append
set -euo pipefail

if [ $# -eq 0 ] || [ "$1" = --help ]; then
    cat <<'TEXT'
sbatch --nodes=N [--gpus-per-node=G] [--exclusive] [...] recipes/slurm/train.sh COMMAND [ARGUMENTS]

Starts a Ray cluster on the job's nodes, runs COMMAND on the first one with trainer.nnodes=N and
trainer.n_gpus_per_node=G behind its arguments, and ends the cluster with it. The exit code is the command's.
  --requeue --signal=B:USR1@300    (of sbatch) put the job back into the queue 5 minutes before its time is up; it
                                   goes on from its last checkpoint, so one must fit into its time
TEXT
    exit $(($# == 0 ? 2 : 0))
fi
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "this runs as a Slurm job: sbatch --nodes=2 recipes/slurm/train.sh ..." >&2
    exit 2
fi
if ! command -v ray >/dev/null; then
    echo "there is no command 'ray' on $(hostname): activate the project's environment before sbatch, on a file system" \
        "that all nodes share" >&2
    exit 2
fi

export SLURM_EXPORT_ENV=ALL # whatever `sbatch --export` kept out: the nodes need this script's variables
unset SLURM_GPUS            # of the whole job, which no step on one node may have
nodes=$SLURM_JOB_NUM_NODES
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resources=(--num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="${SLURM_GPUS_ON_NODE:-0}")
if [ "${SLURM_GPUS_ON_NODE:-0}" = 0 ]; then
    resources=(--num-cpus=24 --num-gpus=1) # logical ones, as verl_ext/config/hardware/cpu.yaml has them
fi
gpus=${resources[1]#*=}
if [ "${SLURM_GPUS_ON_NODE:-0}" -gt 0 ] && [ "$SLURM_CPUS_ON_NODE" -lt $((3 * gpus + 8)) ]; then
    # verl reserves 3 CPUs a GPU and some for its services, and would wait for them without a word
    echo "$gpus GPUs a node need at least $((3 * gpus + 8)) CPUs; Slurm gave $SLURM_CPUS_ON_NODE:" \
        "add --exclusive or --cpus-per-task=$((3 * gpus + 8)) to sbatch" >&2
    exit 2
fi

# Whoever reaches a Ray port may run commands: the token keeps it to this job. Its processes get it from here.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
on_first=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$first")
on_others=(srun --overlap --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --exclude="$first")
ip=$("${on_first[@]}" python -c 'import ray; print(ray.util.get_node_ip_address())')
export RAY_ADDRESS=$ip:$((20000 + SLURM_JOB_ID % 10000))

if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -n "${VERL_FILE_LOGGER_PATH:-}" ]; then
    # verl would begin the file anew, and what the earlier run had written would be gone
    export VERL_FILE_LOGGER_PATH=${VERL_FILE_LOGGER_PATH%.jsonl}.$SLURM_RESTART_COUNT.jsonl
fi

started=()
end_cluster() {
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
}
trap end_cluster EXIT

echo "Ray on $nodes nodes, head $first ($RAY_ADDRESS), each with ${resources[*]}"
"${on_first[@]}" \
    env -u RAY_ADDRESS ray start --block --head --node-ip-address="$ip" --port="${RAY_ADDRESS##*:}" \
    --include-dashboard=false --disable-usage-stats "${resources[@]}" &
started+=($!)
if [ "$nodes" -gt 1 ]; then
    "${on_others[@]}" \
        bash -c 'for _ in $(seq 30); do ray start --block "$@" && break; sleep 5; done' \
        ray-node --address="$RAY_ADDRESS" --disable-usage-stats "${resources[@]}" & # the head may need a while
    started+=($!)
fi
python -m recipes.slurm.wait_for_nodes --nodes "$nodes"

requeue() {
    echo "the job's time is nearly up: back into the queue"
    if scontrol requeue "$SLURM_JOB_ID"; then
        trap - EXIT
    else
        echo "Slurm puts it back only if it was submitted with --requeue; it goes on as long as it may" >&2
    fi
}
trap requeue USR1
"$@" trainer.nnodes="$nodes" trainer.n_gpus_per_node="$gpus" &
training=$!
started+=("$training")
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do # a signal ended the wait, and not the training
    code=0
    wait "$training" || code=$?
done
exit "$code"
