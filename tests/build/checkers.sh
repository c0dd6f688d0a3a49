#!/usr/bin/env bash
# What reads or runs the code for faults that tests do not show: clang-tidy, cppcheck, GCC's analyzer on the C API, and
# valgrind on the scalar path. usage: checkers.sh [NAME...]; ./dev check runs it. A checker that is not there is skipped.
source "$NYBL_SOURCE_DIR/tests/script.sh"
cd "$NYBL_SOURCE_DIR" || exit 1
jobs=${NYBL_JOBS:-$(nproc)}
wanted=("$@")
mapfile -t sources < <(git ls-files 'src/*.cpp' 'capi/*.cpp' 2>/dev/null || find src capi -name '*.cpp')

# checker NAME TOOL COMMAND...: one test case, where it is wanted and its tool is there.
checker() {
    local name=$1 tool=$2
    shift 2
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
    if command -v "$tool" >/dev/null; then
        check "$name" "$@"
    else
        skip "$name" "there is no $tool"
    fi
}

# A file at a time: version 14 crashes now and then on the second of several.
tidy() {
    printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$jobs" clang-tidy-14 --quiet -p "$NYBL_BUILD_DIR" ||
        because "clang-tidy has findings (./dev lint shows them)"
}

# Version 2.10 takes a pointer that a call in an if's initializer fills for NULL, and what placement new makes for
# uninitialised: those two kinds are left to clang-tidy and to GCC's analyzer.
cppcheck_sources() {
    cppcheck -q -j "$jobs" --std=c++20 --language=c++ --enable=warning --inline-suppr --error-exitcode=1 --suppress=unknownMacro \
        --suppress=nullPointer --suppress=legacyUninitvar -Iinclude -Isrc -Icapi "${sources[@]}" || because "cppcheck has findings"
}

# GCC 12's analyzer does not see what calls into other files write: two kinds, uninitialised values and NULL arguments, are
# left to valgrind and to the sanitizers.
analyze() {
    g++ -std=c++20 -O1 -fanalyzer -Werror -Wno-analyzer-use-of-uninitialized-value -Wno-analyzer-null-argument -Iinclude -Isrc -DNYBL_VERSION_MAJOR=0 -DNYBL_VERSION_MINOR=0 \
        -DNYBL_VERSION_PATCH=0 -DNYBL_VERSION_TEXT='""' -DNYBL_GPU_PATHS='""' -c "$1" -o /dev/null
}
export -f analyze
analyze_capi() {
    printf '%s\0' capi/*.cpp | xargs -0 -n 1 -P "$jobs" bash -c 'analyze "$0"' || because "GCC's analyzer has findings"
}

# Codecs, validation, products of the scalar kernels, and every refusal of arguments. valgrind computes in one
# floating-point mode, and has findings in what opens OpenCL libraries.
under_valgrind() {
    local program filter
    while IFS='|' read -r program filter; do
        NYBL_MAX_ISA=scalar NYBL_OPENCL_LIBRARY=none valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect \
            --undef-value-errors=yes "$NYBL_BUILD_DIR/tests/$program" "$filter" --warn UnmatchedTestSpec ||
            because "$program: valgrind has findings" || return
    done <<'END_OF_LIST'
nybl_test_unit|~"*every*"~[golden]~"*random*"~"*floating-point modes*"
nybl_test_capi|C24: wrong arguments*,m = 0*,empty codecs*,half-precision*,C18*,several weights*,validate names*
END_OF_LIST
}

checker clang-tidy clang-tidy-14 tidy
checker cppcheck cppcheck cppcheck_sources
checker analyzer g++ analyze_capi
checker valgrind valgrind under_valgrind
finish
