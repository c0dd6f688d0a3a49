#!/usr/bin/env bash
# What is agreed about the source text itself: formatting, file sizes, an opening comment, a README that shows real code.
source "$NYBL_SOURCE_DIR/tests/script.sh"
cd "$NYBL_SOURCE_DIR" || exit 1

# An archive of the sources has no index: then every file of the folders that hold ours.
sources() {
    git ls-files -- "$@" 2>/dev/null || find capi src include tests benchmarks examples tools -type f
}
mapfile -t code < <(sources | grep -E '\.(cpp|hpp|c|h)$')

formatted() { clang-format-14 --dry-run -Werror "${code[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort | uniq -c; }

all_formatted() {
    local bad
    bad=$(formatted)
    [[ -z $bad ]] || because "not as .clang-format says (./dev format mends it): $(awk '{print $2}' <<<"$bad" | tr '\n' ' ')"
}

short_files() {
    local long
    long=$(wc -l "${code[@]}" tests/*.py tools/*.sh dev | awk '$1 > 500 && $2 != "total" { print $2 " (" $1 ")" }')
    [[ -z $long ]] || because "over 500 lines: $long"
}

opening_comments() {
    local file bad=()
    for file in "${code[@]}"; do
        [[ $(head -c 2 "$file") =~ ^(//|/\*)$ ]] || bad+=("$file")
    done
    ((${#bad[@]} == 0)) || because "no opening comment: ${bad[*]}"
}

# The C block of the README is the example that is built and run.
readme_example() {
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$scratch/readme.c"
    diff "$scratch/readme.c" examples/matmul.c || because "README.md shows other code than examples/matmul.c"
}

one_way() {
    local upward
    upward=$(grep -nE '#include "(cpu|gpu|dispatch|capi)/' -r src/base src/quant
        grep -nE '#include "(dispatch|capi)/' -r src/cpu
        grep -nE '#include "capi/' -r src/dispatch)
    [[ -z $upward ]] || because "an include against the order capi, dispatch, cpu, quant, base: $upward"
}

links_resolve() {
    local file link broken=()
    for file in *.md docs/*.md; do
        while read -r link; do
            [[ -e $(dirname "$file")/${link%%#*} ]] || broken+=("$file: $link")
        done < <(grep -oE '\]\([^)#:]+(#[^)]*)?\)' "$file" | sed 's/^](//; s/)$//')
    done
    ((${#broken[@]} == 0)) || because "broken links: ${broken[*]}"
}

# docs/reliability.md lists the cases; a test is named by the case it is about, before a colon.
cases_have_tests() {
    local number missing=()
    for number in {1..24}; do
        grep -rqE "(TEST_CASE\(|check )\s*\"C$number: " tests || missing+=("C$number")
    done
    ((${#missing[@]} == 0)) || because "no test is named by: ${missing[*]}"
}

# Instruction sets are chosen from CPUID at run time: what the compiler may use decides nothing, so that a compiler without such
# macros builds the same library. But for the object that is named after one, and what it shares with the ordinary one: there the
# macro says for which of the two a file is compiled, and both give the same bytes.
no_macro_dispatch() {
    local found
    found=$(grep -nE '__(AVX|FMA|F16C|SSE|BMI|AMX)[A-Z0-9_]*__|__ARM_(NEON|FEATURE)' -r src capi include |
        grep -vE '^src/quant/(lanes\.h|block_kernels_avx2\.cpp):')
    [[ -z $found ]] || because "dispatch by compiler macro: $found"
}

# The one place that reads the environment refuses where a program runs with more rights than its user.
one_environment() {
    local found
    found=$(grep -nE '\b(secure_)?getenv\(' -r src capi | grep -v '^src/base/environment\.h:')
    [[ -z $found ]] || because "an environment variable that base/environment.h does not read: $found"
}

# What needs an OpenCL device is not for a fuzzer.
functions_are_fuzzed() {
    local name missing=()
    for name in $(grep -ohE '^NYBL_API .*\bnybl_[a-z0-9_]+\(' include/nybl/nybl.h include/nybl/nybl_pack.h | grep -oE 'nybl_[a-z0-9_]+\($' | tr -d '('); do
        grep -qE "\b$name\b" tests/fuzz/*.cpp tests/fuzz/*.h || missing+=("$name")
    done
    ((${#missing[@]} == 0)) || because "no fuzzer calls: ${missing[*]}"
}

# What the mutants change, and the tests that must notice, by name.
mutants_are_there() { python3 tests/placed/mutate.py --check || because "mutants or tests that are no longer there"; }

check "the environment is read in one place" one_environment
check "every public function is fuzzed" functions_are_fuzzed
check "mutants and the tests that must notice them are there" mutants_are_there
check "the sources are formatted" all_formatted
check "no file is over 500 lines" short_files
check "every source opens with a comment" opening_comments
check "the README shows the example that is tested" readme_example
check "links between documents resolve" links_resolve
check "dependencies run one way" one_way
check "no instruction set is chosen by compiler macros" no_macro_dispatch
check "every case from the field, C1 to C24, is named by a test" cases_have_tests
finish
