#!/usr/bin/env bash
# llama.cpp's own distribution with the plugin: two RPC servers on this machine, each offering the plugin's device, and a
# client that spreads a model's layers over them.
#   two_servers.sh ggml-rpc-server libggml-nybl.so COMMAND...
# COMMAND gets the servers as its last argument, "127.0.0.1:P,127.0.0.1:Q": what llama.cpp's programs take after --rpc.
set -uo pipefail
server=$1 plugin=$2
shift 2
pids=() servers=()
trap 'kill "${pids[@]}"; wait "${pids[@]}" 2>/dev/null' EXIT
for port in $((20000 + $$ % 20000)) $((20001 + $$ % 20000)); do
    GGML_BACKEND_PATH=$plugin "$server" --host 127.0.0.1 --port "$port" --device NYBL --threads 1 >&2 &
    pids+=($!)
    servers+=("127.0.0.1:$port")
done
for address in "${servers[@]}"; do
    for _ in {1..100}; do
        (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null && break
        sleep 0.1
    done
done
"$@" "$(IFS=,; printf '%s' "${servers[*]}")"
