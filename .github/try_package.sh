#!/usr/bin/env bash
# Install a built wheel or source archive into an empty environment and use it there, without the network and outside of the checkout.
#   .github/try_package.sh dist/spectool-0.1.0-py3-none-any.whl [python]
set -euo pipefail
package=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
"${2:-python3}" -m venv "$folder/empty"
"$folder/empty/bin/pip" install --quiet "$package"
cd "$folder"
export PATH=$folder/empty/bin:$PATH HF_HUB_OFFLINE=1
spectool demo
model=$(python -c 'from spectool.runtime.demo_models import demo_path; print(demo_path("target"))')
spectool build-dict --tokenizer "$model" --pack pl -o pl.dict
spectool generate --model "$model" --dict pl.dict --prompt "Most w Jaworowcu" --max-tokens 16
