#!/usr/bin/env bash
# compare_ggml.py where there is a Python environment with ggml (./dev makes one), else a skip.
python=${NYBL_PYTHON:-}
if [[ -z $python ]] || ! "$python" -c 'import ggml, gguf, numpy' 2>/dev/null; then
    echo "skip against ggml: no Python environment with ggml-python and gguf (NYBL_PYTHON; ./dev test makes one)"
    exit 0
fi
exec "$python" "$(dirname "$0")/compare_ggml.py"
