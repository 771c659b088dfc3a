#!/usr/bin/env bash
# The quickstart with three seeds, one after the other, and the table of all three. Options go to run.sh.
#   bash recipes/quickstart/seeds.sh [--out DIR] [run.sh's options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=outputs/seeds
if [ "${1:-}" = --out ]; then
    out=$2
    shift 2
fi
for seed in 0 1 2; do
    echo "=== seed $seed"
    resume=''
    if [ -e "$out/seed-$seed/done" ]; then resume=--resume; fi
    bash recipes/quickstart/run.sh --out "$out/seed-$seed" --seed "$seed" $resume "$@"
done
source recipes/_install.sh
install_project babyai
python -m recipes.quickstart.seeds "$out"/seed-*
