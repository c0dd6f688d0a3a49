#!/usr/bin/env bash
# The ggml plugin in an unmodified llama.cpp, where ./dev engine has built that: operations, logits of a real model beside
# stock's, the share of multiplies, and two RPC servers that hold a layer split between them.
source "$NYBL_SOURCE_DIR/tests/script.sh"
binaries=$NYBL_BUILD_DIR/examples/ggml-backend
plugin=$binaries/libggml-nybl.so
model=${NYBL_MODEL:-}
threads=2

if [[ ! -e $plugin ]]; then
    skip "engine plugin" "llama.cpp is not built in the cache (./dev engine does that)"
    finish
fi

# The program prints case lines itself.
for storage in packed original; do
    NYBL_GGML_STORAGE=$storage "$NYBL_BUILD_DIR/tests/engine/nybl-engine-ops" "$plugin" >"$scratch/ops" ||
        failures=$((failures + 1))
    sed "s/^\(ok\|not ok\) plugin/& $storage/" "$scratch/ops"
done

storage_is_told() {
    NYBL_GGML_STORAGE=mapped NYBL_GGML_PLUGIN=$plugin "$binaries/nybl-engine" bench "$scratch/no-model" 1 1 1 1 2>"$scratch/said"
    prints 'NYBL_GGML_STORAGE is "mapped", neither original nor packed' cat "$scratch/said" || because "said: $(cat "$scratch/said")"
}
check "engine plugin, a storage that does not exist is told" storage_is_told

# The bench beside ggml: its output is compared with ours before anything is timed.
beside_ggml() {
    local bench=$NYBL_BUILD_DIR/benchmarks/nybl-bench
    prints "ggml x" "$bench" --quick --peer "ggml=${NYBL_ENGINE_DIR:?}/avx2/bin/libggml-cpu.so" --isa avx2 --threads 1 \
        --op decode,prefill --format Q4_1 || because "no ratio to ggml in the bench's table" || return 1
    ! "$bench" --peer nothing || because "a peer that does not exist was accepted"
}
check "engine, ggml in the bench" beside_ggml

if [[ ! -e $model ]]; then
    skip "engine plugin, a real model" "no model file"
    finish
fi

logits() { "$binaries/nybl-engine" logits "$model" "$NYBL_SOURCE_DIR/docs/numerics.md" "$scratch/$1" 1 "$threads" "${@:2}"; }

# compared BASE OTHER KLD SAME_TOP: the KL divergence is at most KLD, the same token on top in at least that share of rows.
compared() {
    local output
    output=$("$binaries/nybl-engine" compare "$scratch/$1" "$scratch/$2") || return 1
    printf '%s\n' "$output"
    awk -v kld="$3" -v same="$4" '/^kld / { if ($2 > kld) exit 1 } /^same_top / { if ($2 < same) exit 1 }' <<<"$output" ||
        because "logits of $2 too far from those of $1"
}

with_plugin() {
    local output
    output=$(NYBL_GGML_PLUGIN=$plugin NYBL_GGML_STORAGE=$1 logits "nybl-$1") || return 1
    printf '%s\n' "$output"
    awk '$1 == "share" && $2 >= 0.99 { found = 1 } END { exit !found }' <<<"$output" ||
        because "less than 99 % of the multiplies ran in the plugin" || return 1
    # What stock's own builds differ by is 0.0035 and 95 % (docs/engine.md); the text is short, so with room.
    compared stock "nybl-$1" 0.008 0.9
}

# Layers on two servers give what the plugin gives in one process, which is further from stock than this.
over_rpc() {
    "$NYBL_SOURCE_DIR/examples/ggml-backend/two_servers.sh" "${NYBL_ENGINE_DIR:?}/native/bin/ggml-rpc-server" "$plugin" \
        "$binaries/nybl-engine" logits "$model" "$NYBL_SOURCE_DIR/docs/numerics.md" "$scratch/rpc" 1 "$threads" ||
        because "no logits over RPC" || return 1
    compared nybl-packed rpc 0.0005 0.98
}

check "engine stock logits" logits stock
check "engine plugin, packed weights" with_plugin packed
check "engine plugin, weights in place" with_plugin original
check "engine plugin behind two RPC servers" over_rpc
finish
