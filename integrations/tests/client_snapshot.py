"""Tests the replacement for OpenCode's `Snapshot` with snapshot_contract.ts on bun."""
import re
from pathlib import Path

from client_marvin import BUN
from driver import cache_dir, npm_install

NAME, VERSION = "snapshot", "1.18"
CONTRACT = Path(__file__).resolve().parent / "snapshot_contract.ts"
# The version with which OpenCode formats its patches.
DIFF = "8.0.2"
bun = package = None


def prepare():
    global bun, package
    installed = npm_install("bun", BUN, "bun")
    bun = next(installed.parent.parent.glob("@oven/bun-linux-*/bin/bun"), installed)
    # The package has no program, so its path is given relative to `.bin`.
    (cache_dir() / f"diff-{DIFF}" / "node_modules" / ".bin").mkdir(parents=True, exist_ok=True)
    package = npm_install("diff", DIFF, "../diff/package.json").parent


def scenario(name):
    def run(lab):
        lab.variables = {"CTRLZ_BIN": str(lab.ctrlz_bin), "DIFF_PACKAGE": str(package)}
        lab.must([bun, CONTRACT, name])
    return run


NAMES = re.findall(r'^  async "([^"]+)"\(\)', CONTRACT.read_text(), re.M)
SCENARIOS = {name: scenario(name) for name in NAMES}
