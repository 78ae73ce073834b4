#!/usr/bin/env bash
# Both papers' kinds of drafters on this machine, from an empty folder to a page for each target: models, artifacts, runs.
# Bielik 11B gets drafts of three families and a dictionary, Gemma 3 4B a dictionary.
#
#     benchmarks/on_a_mac.sh [FOLDER]           the papers' models: 40 GB to fetch, 20 GB on disk, a night
#     benchmarks/on_a_mac.sh --quick [FOLDER]   small models instead, which takes minutes and shows whether it works
#
# What exists already is not made again, so the script can be stopped at any time and started again; a run that was
# stopped is then measured anew. Within a run,
# plain decoding and all configurations take turns in a random order for each prompt. Close other programs, and keep the
# machine on mains power.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=no
if [ "${1:-}" = --quick ]; then quick=yes; shift; fi
folder=${1:-.scratch/on-a-mac}
text_pl=$folder/wiki/20231101.pl text_uk=$folder/wiki/20231101.uk
options=(--tokens 128 --num-draft-tokens 2 --num-draft-tokens 4 --num-draft-tokens auto)
pages_pl=(wiki pl)
make --quiet .venv/installed
bin=$PWD/.venv/bin
mkdir -p "$folder"

# have NAME COMMAND...: make FOLDER/NAME unless it is there
have() {
  local out=$folder/$1
  shift
  if [ ! -e "$out" ]; then
    echo "== $out"
    "$@"
  fi
}
fetch() { have "$1" "$bin/mlx_lm.convert" --hf-path "$2" --mlx-path "$folder/$1" -q --q-bits "$3"; }

if [ $quick = yes ]; then
  cache=${SPECTOOL_MODELS:-$("$bin/python" -c 'from platformdirs import user_cache_path as p; print(p("spectool-models"))')}
  "$bin/python" benchmarks/real_models.py smollm2-135m gemma3-270m qwen2.5-coder-0.5b
  link() { have "$1" ln -s "$cache/$2" "$folder/$1"; }
  link bielik-11b qwen2.5-coder-0.5b
  link bielik-1.5b smollm2-135m
  link qwen2.5-1.5b gemma3-270m
  link llama-3.2-1b smollm2-135m
  link gemma-3-4b gemma3-270m
  text_pl=sample:pl text_uk=sample:uk
  options=(--count 2 --tokens 16 --num-draft-tokens 2) pages_pl=(pl)
else
  fetch bielik-11b speakleash/Bielik-11B-v3.0-Instruct 8
  fetch bielik-1.5b speakleash/Bielik-1.5B-v3.0-Instruct 4
  fetch qwen2.5-1.5b Qwen/Qwen2.5-1.5B-Instruct 4
  fetch llama-3.2-1b meta-llama/Llama-3.2-1B-Instruct 4
  fetch gemma-3-4b google/gemma-3-4b-it 8
  "$bin/hf" download --repo-type dataset wikimedia/wikipedia --include '20231101.pl/*' --include '20231101.uk/*' \
    --local-dir "$folder/wiki"
fi

spectool() { "$bin/spectool" "$@"; }
for draft in bielik-1.5b qwen2.5-1.5b llama-3.2-1b; do
  have $draft.align spectool align --draft "$folder/$draft" --target "$folder/bielik-11b" --corpus "$text_pl" \
    -o "$folder/$draft.align"
done
have bielik-11b.dict spectool build-dict --tokenizer "$folder/bielik-11b" --corpus "$text_pl" -o "$folder/bielik-11b.dict"
have gemma-3-4b.dict spectool build-dict --tokenizer "$folder/gemma-3-4b" --corpus "$text_uk" -o "$folder/gemma-3-4b.dict"

# measure NAME MODEL OPTIONS...: run FOLDER/NAME.bench and show its page
measure() {
  local run=$folder/$1.bench unfinished=$folder/unfinished/$1.bench model=$folder/$2
  shift 2
  if [ ! -e "$run" ]; then
    rm -rf "$unfinished"
    spectool bench --model "$model" "$@" "${options[@]}" -o "$unfinished"
    mv "$unfinished" "$run"
  fi
  echo "the page: $run/report.md"
}
drafts=()
for draft in bielik-1.5b qwen2.5-1.5b llama-3.2-1b; do
  drafts+=(--drafter "name=$draft,draft-model=$folder/$draft,alignment=$folder/$draft.align")
done
for name in "${pages_pl[@]}"; do
  prompts=(pl --count 30)
  if [ "$name" = wiki ]; then prompts=("$text_pl" --window 256); fi
  measure "$name" bielik-11b --drafter "dict=$folder/bielik-11b.dict,history" "${drafts[@]}" --prompts "${prompts[@]}"
done
measure uk gemma-3-4b --drafter "dict=$folder/gemma-3-4b.dict,history" --prompts uk --count 30
