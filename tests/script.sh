# shellcheck shell=bash
# Helpers for script tests: case lines that tests/run.py counts, and a scratch folder that goes at the end.
set -uo pipefail
: "${NYBL_SOURCE_DIR:?}" "${NYBL_BUILD_DIR:?}"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# check NAME COMMAND...: one test case, passed if the command succeeds. Its output goes to the log, indented.
check() {
    local name=$1
    shift
    if ("$@") >"$scratch/output" 2>&1; then
        printf 'ok %s\n' "$name"
    else
        printf 'not ok %s: %s\n' "$name" "$(tail -n 1 "$scratch/output")"
        failures=$((failures + 1))
    fi
    sed 's/^/    /' "$scratch/output"
}

skip() { printf 'skip %s: %s\n' "$1" "$2"; }

# The one line that says why, then failure: for the end of a check.
because() {
    printf '%s\n' "$*"
    return 1
}

finish() { exit $((failures > 0)); }

# prints PATTERN COMMAND...: a line of the command's output matches. Not by a pipe: grep -q ends at the first match, and
# pipefail would take the writer's broken pipe for a failure.
prints() {
    local pattern=$1
    shift
    grep -q "$pattern" <<<"$("$@")"
}
