#!/usr/bin/env bash
# The load bench on a small model: its own check compares the products; memory is what mapping promises. $1: the program.
source "$NYBL_SOURCE_DIR/tests/script.sh"

runs() { TMPDIR=$scratch "$1" --mb 60 >"$scratch/table"; }

# A mapped model is resident once: within 5 % of the packed size beside the handful of MB that any process of its kind has.
resident_once() {
    awk '/^mapped/ { rows++; if ($(NF - 2) > 1.10 || $(NF - 2) < 0.95) wrong = $0 }
         END { if (rows != 2 || wrong != "") { print "not about 1.0 of the packed file: " wrong; exit 1 } }' "$scratch/table"
}

# Weights that are packed at start are memory of the process, counted while they live; mapped ones are the file's.
anonymous_where_packed() {
    awk '/^GGUF packed/ { rows++; if ($(NF - 1) < 55) wrong = $0 } /^mapped/ { rows++; if ($(NF - 1) > 6) wrong = $0 }
         END { if (rows != 4 || wrong != "") { print "anonymous memory: " wrong; exit 1 } }' "$scratch/table"
}

check "load bench: mapped products equal those of packing at start" runs "$1"
check "load bench: a mapped model is resident once" resident_once
check "load bench: packed weights are anonymous memory, mapped ones are not" anonymous_where_packed
check "load bench: leaves no file behind" test "$(ls "$scratch" | grep -c nybl-load)" = 0
finish
