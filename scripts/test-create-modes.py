#!/usr/bin/env python3
"""The table "How programs write" of docs/manifests.md, row by row, in both create modes.

    test-create-modes.py [--symbi PATH] [--tier namespace|docker|gvisor] [--image NAME]

The document says what is tried and what must come of it. Exit: 0 where every row is true, 1
otherwise. Needs Linux, Python 3.8, the built binaries, and on the namespace tier the programs.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
from scratch_project import HERE, Project, Table, arguments, shell_tool

DOCUMENT = os.path.join(HERE, "..", "docs", "manifests.md")
ROWS_MIN = 20
FILES = {"IN": "data/in.txt", "OUT": "out/made.bin"}
CONTENT = "a line\nanother\n"
# What a program's absence is: a row that a tier's image cannot try.
ABSENT = 127


def rows():
    """(name, command, outcome by mode) of each row."""
    with open(DOCUMENT, encoding="utf-8") as file:
        part = file.read().split("### How programs write", 1)[1].split("\n## ", 1)[0]
    found = []
    for line in part.splitlines():
        row = re.match(r"\| (.+?) \| `(.+)` \| (\S.*?) \| (\S.*?) \|$", line)
        if row and row.group(1) != "program":
            found.append((row.group(1), row.group(2), {"file": row.group(3), "fresh": row.group(4)}))
    return found


def with_files(command):
    for word, path in FILES.items():
        command = re.sub(r"\b%s\b" % word, path, command)
    return command


def tool_name(number, mode):
    return "row_%d_%s" % (number, mode)


def tools(table):
    made = {}
    for number, (_, command, _) in enumerate(table):
        for mode in ("file", "fresh"):
            name = tool_name(number, mode)
            made[name] = shell_tool(name, with_files(command), fixed=FILES,
                                    extra='create_mode = "%s"' % mode)
    return made


def outcome(project, ended):
    """What came of a call, in the document's words."""
    body = ended.json()
    other = 'create_mode = \\"' in ended.stdout or 'create_mode = "' in str(body.get("reason"))
    if ended.code == 0 and os.path.getsize(project.file(FILES["OUT"])) > 0:
        return "works"
    if ended.code == 1 and not project.exists(FILES["OUT"]):
        return "fails, hint" if other else "fails"
    return "neither"


def main():
    found = arguments(__doc__.splitlines()[0], ("--firecracker-binary", "--kernel", "--rootfs"))
    document, table = rows(), Table()
    table.check("the document has at least %d rows" % ROWS_MIN, len(document) >= ROWS_MIN)
    with Project(found.symbi, found.tier, tools(document)) as project:
        project.write(FILES["IN"], CONTENT)
        for number, (name, _, expected) in enumerate(document):
            for mode in ("file", "fresh"):
                ended = project.call(tool_name(number, mode))
                absent = ended.json().get("exit_code") == ABSENT
                seen = outcome(project, ended)
                if absent and found.tier.name != "namespace":
                    print("%-6s %s: not in this tier's image" % ("-", name))
                else:
                    table.check("%s, %s: %s" % (name, mode, expected[mode]),
                                seen == expected[mode], "%s\n%s" % (seen, ended))
                if project.exists(FILES["OUT"]):
                    os.unlink(project.file(FILES["OUT"]))
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
