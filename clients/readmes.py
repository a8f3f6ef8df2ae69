#!/usr/bin/env python3
"""Checks that the examples in the READMEs match the files that CI runs.

`<!-- examples/agent.ts -->` before a code block names the file. `--write` copies the file into the README.
"""

import re
import sys
from pathlib import Path

MARKED = re.compile(r"(<!-- (\S+) -->\n```\w+\n)(.*?)(\n```)", re.DOTALL)
CLIENTS = Path(__file__).resolve().parent


def main() -> int:
    stale = []
    for readme in sorted(CLIENTS.glob("*/README.md")):
        text = readme.read_text()
        example = lambda found: (readme.parent / found[2]).read_text().rstrip("\n")
        wanted = MARKED.sub(lambda found: found[1] + example(found) + found[4], text)
        if wanted != text:
            stale.append(str(readme.relative_to(CLIENTS)))
            if "--write" in sys.argv:
                readme.write_text(wanted)
    if not stale or "--write" in sys.argv:
        return 0
    print(f"out of date, run clients/readmes.py --write: {stale}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
