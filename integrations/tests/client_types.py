"""Type checks of the modules and bundles. This is not a client."""
import re
from pathlib import Path

from driver import cache_dir, node, npm_install

NAME, VERSION = "types", "5.9.2"
NODE_TYPES = "22.20.5"
HERE = Path(__file__).resolve().parent.parent
compiler = types = None


def prepare():
    global compiler, types
    compiler = npm_install("typescript", VERSION, "tsc")
    # The package has no program, so its path is given relative to `.bin`.
    (cache_dir() / f"node-{NODE_TYPES}" / "node_modules" / ".bin").mkdir(parents=True, exist_ok=True)
    types = npm_install("@types/node", NODE_TYPES, "../@types/node/package.json").parent.parent


def checked(files, *more):
    def run(lab):
        """Checks the types strictly, and that no file uses `any`."""
        lab.path = [node(20)]
        words = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext",
                 "--moduleResolution", "bundler", "--skipLibCheck",
                 "--typeRoots", types.resolve(), "--types", "node", *more]
        found = [path for pattern in files for path in sorted(HERE.glob(pattern))]
        loose = [path.name for path in found if re.search(r"(: |as |<)any\b", path.read_text())]
        assert not loose, f"`any` in {', '.join(loose)}"
        ran = lab.run([compiler, *words, *found])
        assert ran.code == 0, repr(ran)
    return run


SCENARIOS = {
    "modules": checked(["src/*.ts", "tests/*.ts"], "--noUnusedLocals"),
    "bundles": checked(["*/ctrlz.ts", "opencode/snapshot.ts"]),
}
