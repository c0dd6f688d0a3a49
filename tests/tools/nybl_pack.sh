#!/usr/bin/env bash
# The program nybl-pack as a user calls it: $1 is the program.
source "$NYBL_SOURCE_DIR/tests/script.sh"
program=$1

python3 "$NYBL_SOURCE_DIR/tests/tools/small_model.py" "$scratch/model.gguf"

packs() {
    "$program" "$scratch/model.gguf" "$scratch/out.nybl" >"$scratch/said" 2>"$scratch/progress" || return 1
    prints '1 tensors packed, 1 kept' cat "$scratch/said" || because "said: $(cat "$scratch/said")" || return 1
    prints '100 %' cat "$scratch/progress" || because "no progress shown: $(cat "$scratch/progress")"
}

lists() {
    prints 'a.weight  *Q4_0  *packed .*4 x 32' "$program" --list "$scratch/out.nybl" &&
        prints 'norm  *F32  *original ' "$program" --list "$scratch/out.nybl"
}

keeps() {
    "$program" --quiet --original a.weight "$scratch/model.gguf" "$scratch/kept.nybl" >/dev/null &&
        prints 'a.weight  *Q4_0  *original ' "$program" --list "$scratch/kept.nybl"
}

verifies() { prints 'all checksums right' "$program" --verify "$scratch/out.nybl"; }

# refused STATUS TEXT ARGUMENTS...: that exit status, and that text on stderr.
refused() {
    local wanted=$1 text=$2 said status
    shift 2
    said=$("$program" "$@" 2>&1 >/dev/null)
    status=$?
    [[ $status == "$wanted" && $said == *"$text"* ]] || because "status $status: $said"
}

cp "$scratch/model.gguf" "$scratch/cut.gguf" && truncate -s -20 "$scratch/cut.gguf"
check "nybl-pack packs and shows progress" packs
check "nybl-pack lists a packed file" lists
check "nybl-pack verifies a packed file" verifies
check "nybl-pack refuses a model that is cut short" refused 1 "cut.gguf: " "$scratch/cut.gguf" "$scratch/no"
check "nybl-pack refuses the model as its own output" refused 2 "the model itself" "$scratch/model.gguf" "$scratch/model.gguf"
check "nybl-pack says how it is called" refused 2 "expected 2 file name(s)" "$scratch/model.gguf"
check "nybl-pack refuses a name for --original that the model does not have" \
    refused 2 "no tensor 'a.wieght'" --original a.wieght "$scratch/model.gguf" "$scratch/no"
check "nybl-pack names the option that it does not know" refused 2 "nybl-pack: --orignal" --orignal a.weight
check "nybl-pack names the option that lacks its value" refused 2 "nybl-pack: --original wants" --original
check "nybl-pack keeps a tensor that is named with --original" keeps
check "nybl-pack says its version" prints '^nybl [0-9]' "$program" --version
check "nybl-pack refuses another file" refused 1 "not a file of packed weights" --list "$scratch/model.gguf"
check "nothing is left of refused runs" test ! -e "$scratch/no"
finish
