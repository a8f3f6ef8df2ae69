#!/usr/bin/env python3
"""Checks that every example in a README is a file that CI runs.

`<!-- examples/agent.ts -->` before a block of code says which file it is; --write copies the file's text
into the README.
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
    print(f"shows other code than CI runs, run clients/readmes.py --write: {stale}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
