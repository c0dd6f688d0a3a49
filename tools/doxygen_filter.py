#!/usr/bin/env python3
"""Doxygen's input filter for the public headers: ordinary comments become documentation, so that the headers stay free of
markup. A declaration that shares the comment of the one above it gets a reference to that one."""
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
if not sys.argv[1].endswith((".h", ".hpp")):
    print(text, end="")
    sys.exit()

out, previous = [], ""
for number, line in enumerate(text.split("\n")):
    declared = re.match(r"NYBL_API .*?(nybl_\w+)\(", line)
    if number == 0:
        line = re.sub(r"^/\* (\S+?):", r"/** \\file \1\n\\brief", line)
        line = re.sub(r"^// (\S+?):", r"/// \\file \1\n/// \\brief", line)
    elif not re.match(r"/\* ----", line):
        line = re.sub(r"^(\s*)/\*(?!\*)", r"\1/**", line)  # on a line of its own: of what follows
        line = re.sub(r"(\S.*?)/\*(?!\*)", r"\1/**<", line)  # behind code: of what precedes
        line = re.sub(r"^(\s*)//(?!/)", r"\1///", line)
    if declared and previous:
        line = f"/** \\copydoc {previous} */ {line}"
    out.append(line)
    # The comment above holds for the next declaration too where no blank line parts them.
    declared = declared or re.match(r"typedef .*?\(\*(nybl_\w+)\)", line)
    if declared:
        previous = declared[1]
    elif not line.strip() or "*/" in line:
        previous = ""
print("\n".join(out), end="")
