#!/usr/bin/env bash
# The papers' experiments on this machine, from an empty folder to a page: models, artifacts, a run, a report.
#
#     benchmarks/on_a_mac.sh [FOLDER]           the papers' models: 40 GB to fetch, 20 GB on disk, a night
#     benchmarks/on_a_mac.sh --quick [FOLDER]   small models instead, which takes minutes and shows whether it works
#
# What exists already is not made again, so the script can be stopped at any time and started again. Within the run,
# plain decoding and all configurations take turns in a random order for each prompt. Before each prompt the machine
# rests for PAUSE seconds (20 by default). Close other programs, and keep the machine on mains power.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=no
if [ "${1:-}" = --quick ]; then quick=yes; shift; fi
folder=${1:-.scratch/on-a-mac}
pause=${PAUSE:-20}
text_pl=wiki-pl text_uk=wiki-uk options=() suffix=
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
  text_pl=sample:pl text_uk=sample:uk pause=0
  suffix=", small models instead of the large ones"
  options=(--prompts pl:question --prompts uk:question --count 2 --tokens 16 --num-draft-tokens 2)
else
  fetch bielik-11b speakleash/Bielik-11B-v3.0-Instruct 8
  fetch bielik-1.5b speakleash/Bielik-1.5B-v3.0-Instruct 4
  fetch qwen2.5-1.5b Qwen/Qwen2.5-1.5B-Instruct 4
  fetch llama-3.2-1b meta-llama/Llama-3.2-1B-Instruct 4
  fetch gemma-3-4b google/gemma-3-4b-it 8
fi

spectool() { "$bin/spectool" "$@"; }
for draft in bielik-1.5b qwen2.5-1.5b llama-3.2-1b; do
  have $draft.align spectool align --draft "$folder/$draft" --target "$folder/bielik-11b" --corpus $text_pl \
    -o "$folder/$draft.align"
done
have bielik-11b.dict spectool build-dict --tokenizer "$folder/bielik-11b" --corpus $text_pl -o "$folder/bielik-11b.dict"
have gemma-3-4b.dict spectool build-dict --tokenizer "$folder/gemma-3-4b" --corpus $text_uk -o "$folder/gemma-3-4b.dict"

# The experiment as it is run: with the paths in FOLDER, and a name by which the page does not pass for the large models'.
experiment=$folder/mac.toml
sed -E "s#^(path|draft_model|alignment|dictionary) = \"#&$folder/#; s#^name = \"On a Mac#&$suffix#" \
  benchmarks/experiments/mac.toml >"$experiment"
spectool bench "$experiment" --pause "$pause" ${options[@]+"${options[@]}"} -o "$folder/mac.bench"
spectool report "$folder/mac.bench" -o "$folder/page"
echo "the page: $folder/page/report.html"
