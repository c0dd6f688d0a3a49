#!/usr/bin/env bash
# The Python package: built as a wheel around the library of this build, installed in a clean environment, used there.
source "$NYBL_SOURCE_DIR/tests/script.sh"
python=${NYBL_PYTHON:-python3}
[[ -x $(command -v "$python") ]] || python=python3
builder=$NYBL_BUILD_DIR/wheel-builder # kept: the build back end does not change with our sources
venv=$scratch/venv

give_up() {
    skip "Python" "$1"
    finish
}

# pip with the environment's index; nothing of this project comes from there.
pip() { "$builder/bin/pip" --python "$1/bin/python" install --quiet --disable-pip-version-check "${@:2}"; }

"$python" -c 'import ensurepip, venv' 2>/dev/null || give_up "python3 has no venv"
if ! [[ -f $builder/ready ]]; then
    { "$python" -m venv --clear "$builder" && pip "$builder" 'scikit-build-core>=0.10' mypy numpy && touch "$builder/ready"; } \
        >"$scratch/pip" 2>&1 || give_up "pip cannot install scikit-build-core: $(tail -n 1 "$scratch/pip" | tr ':' ' ')"
fi
"$python" -m venv --without-pip "$venv" && pip "$venv" numpy >"$scratch/pip" 2>&1 || give_up "pip cannot install numpy"

build_wheel() {
    "$builder/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        -C "cmake.define.NYBL_LIBRARY=$NYBL_BUILD_DIR/libnybl.so" -C "build-dir=$scratch/wheel-build" -w "$scratch/wheel" \
        "$NYBL_SOURCE_DIR" &&
        prints 'nybl/libnybl.so' "$python" -m zipfile -l "$scratch"/wheel/nybl-*.whl &&
        prints 'nybl/py.typed' "$python" -m zipfile -l "$scratch"/wheel/nybl-*.whl
}

install_wheel() { pip "$venv" --no-index --no-deps "$scratch"/wheel/nybl-*.whl; }

in_venv() { (cd "$scratch" && env -u PYTHONPATH -u NYBL_LIBRARY "$venv/bin/python" -I "$@"); }

typed() { (cd "$scratch" && MYPY_CACHE_DIR=$scratch/mypy "$builder/bin/mypy" --strict "$NYBL_SOURCE_DIR/python/nybl"); }

example() { prints 'no expert gives zeros: True' in_venv "$NYBL_SOURCE_DIR/examples/quantized.py"; }

check "Python, the wheel is built" build_wheel
check "Python, the wheel is installed in a clean environment" install_wheel
check "Python, the types hold" typed
check "example quantized.py" example
arguments=()
if [[ -x $NYBL_BUILD_DIR/tools/nybl-pack ]]; then
    "$python" "$NYBL_SOURCE_DIR/tests/tools/small_model.py" "$scratch/model.gguf" &&
        "$NYBL_BUILD_DIR/tools/nybl-pack" --quiet "$scratch/model.gguf" "$scratch/model.nybl" >/dev/null &&
        arguments=("$scratch/model.nybl" "$scratch/model.gguf")
fi
in_venv "$NYBL_SOURCE_DIR/tests/package/wheel_test.py" "${arguments[@]}" || failures=$((failures + 1))
finish
