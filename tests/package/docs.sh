#!/usr/bin/env bash
# The reference of the public headers: Doxygen has no complaint, and every function has its documentation.
source "$NYBL_SOURCE_DIR/tests/script.sh"

if ! command -v doxygen >/dev/null; then
    skip "the reference" "doxygen is not installed"
    finish
fi

reference() {
    cd "$NYBL_SOURCE_DIR" && (cat Doxyfile && echo "OUTPUT_DIRECTORY = $scratch/docs") | doxygen -
}

every_function() {
    python3 - "$scratch/docs/xml" <<'END'
import pathlib
import sys
import xml.etree.ElementTree as ET

bare, count = [], 0
for file in pathlib.Path(sys.argv[1]).glob("nybl*_8h.xml"):
    for function in ET.parse(file).getroot().iter("memberdef"):
        if function.get("kind") != "function":
            continue
        count += 1
        texts = [function.find(part) for part in ("briefdescription", "detaileddescription")]
        if not any("".join(text.itertext()).strip() for text in texts if text is not None):
            bare.append(function.findtext("name"))
assert count > 40, f"only {count} functions were seen"
assert not bare, f"without documentation: {' '.join(bare)}"
END
}

check "the reference is made without a warning" reference
check "the reference documents every function" every_function
finish
