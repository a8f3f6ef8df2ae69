"""Marvin is not in any registry: its hook runs on bun in marvin_host.ts, which emits Marvin's events."""
import re
import shutil
import time
from pathlib import Path

from driver import npm_install, script
from scenarios import EDIT, bash, difference, shared, write

NAME, VERSION = "marvin", "host"
HERE = Path(__file__).resolve().parent
BUN = "1.4.4"


class Marvin:
    NAME = "marvin"
    mode = "--headless"
    shows_failures = True
    user_config = {".config/marvin/config.json": '{ "provider": "mine" }\n'}
    volatile = ("last-session", ".bun")

    def prepare(self):
        installed = npm_install("bun", BUN, "bun")
        found = [*installed.parent.parent.glob("@oven/bun-linux-*/bin/bun")]
        self.bun = next(iter(found), installed)

    def configure(self, lab):
        lab.variables = {"MODEL_URL": lab.model.url}
        (lab.home / ".config/marvin").mkdir(parents=True, exist_ok=True)

    def setup(self, lab):
        self.configure(lab)
        lab.ctrlz("install", self.NAME)

    def words(self, *more):
        return [self.bun, HERE / "marvin_host.ts", *more]

    def prompt(self, lab, text, go_on=False):
        return self.words(self.mode, *(["--continue"] if go_on else []), text)

    def undo_inside(self, lab):
        said = lab.must(self.words("--continue", "/undo"))
        assert "undid" in said, said


class Own:
    def __init__(self, client):
        self.client = client

    def turn(self, lab, *steps, words=()):
        ran = lab.run(self.client.words(*words, script(*steps, {"text": "done"})))
        assert ran.code == 0, repr(ran)
        return ran

    def plain_git(self, lab):
        """With the line on stderr, plain git can restore a checkpoint."""
        self.client.setup(lab)
        before = lab.tree()
        ran = self.turn(lab, EDIT, bash("rm gone.txt notes.txt"), words=["--headless"])
        ref, store = re.search(r"\[ctrlz\] turn-0 tree=\w+ ref=(\S+) store=(\S+)", ran.err).groups()
        refs = lab.must(["git", "--git-dir", store, "for-each-ref", "--format=%(refname)"])
        for name in ("latest", "resume"):
            assert re.search(rf"^refs/ctrlz/\w+/{name}$", refs, re.M), refs
        git = ["git", "--git-dir", store, "--work-tree", lab.project]
        env = {"GIT_INDEX_FILE": str(lab.top / "index")}
        lab.must([*git, "read-tree", ref], env=env)
        lab.must([*git, "checkout-index", "-a", "-f"], env=env)
        assert lab.tree() == before, difference(before, lab.tree())

    def terminal(self, lab):
        """With a UI, Marvin emits more events, some for a session that it never uses."""
        self.client.setup(lab)
        before = lab.tree()
        self.turn(lab, EDIT, write("new.txt", "n\n"), bash("echo h > half.txt; false"))
        assert len({step["session"] for step in lab.steps()}) == 1, lab.steps()
        lab.must(self.client.words("--continue", "/undo"))
        assert lab.tree() == before, difference(before, lab.tree())
        lab.must(self.client.words("--continue", "/redo"))
        assert lab.read("new.txt") == "n\n" and lab.read("half.txt") == "h\n"
        assert "new.txt" in lab.must(self.client.words("--continue", "/timeline"))

    def last_hundred(self, lab):
        """Only the last hundred checkpoints are kept."""
        self.client.setup(lab)
        lab.ctrlz("track")
        for number in range(99):
            lab.ctrlz("checkpoint")
        for _ in range(2):
            self.turn(lab, bash("true"), words=["--headless"])
        listed = lab.must(["git", "--git-dir", lab.ctrlz_json("status")["store"], "for-each-ref"])
        assert listed.count("/checkpoint-") == 100 and listed.count("/checkpoint-turn-0") == 2, listed

    def outside_git(self, lab):
        """Outside git, the hook does nothing and prints nothing."""
        shutil.rmtree(lab.project / ".git")
        self.client.setup(lab)
        ran = self.turn(lab, bash("echo x > x.txt"), words=["--headless"])
        assert lab.read("x.txt") == "x\n" and "ctrlz" not in ran.err, repr(ran)
        assert lab.ctrlz_json("log")["operations"] == []

    def without_ctrlz(self, lab):
        """Without the program, the agent continues and a line reports why nothing is recorded."""
        self.client.setup(lab)
        lab.variables["CTRLZ_BIN"] = "/nowhere/ctrlz"
        ran = self.turn(lab, bash("echo x > x.txt"), words=["--headless"])
        assert lab.read("x.txt") == "x\n" and "[ctrlz] not recorded" in ran.err, repr(ran)

    def stuck(self, lab):
        """A program that never answers delays a tool only for a limited time."""
        self.client.setup(lab)
        stub = lab.top / "stuck"
        stub.write_text("#!/bin/sh\nexec sleep 600\n")
        stub.chmod(0o755)
        lab.variables["CTRLZ_BIN"] = str(stub)
        begun = time.monotonic()
        self.turn(lab, bash("echo x > x.txt"), words=["--headless"])
        assert lab.read("x.txt") == "x\n" and time.monotonic() - begun < 60


CLIENT = Marvin()
own = Own(CLIENT)
prepare = CLIENT.prepare
SCENARIOS = shared(CLIENT) | {
    "plain git": own.plain_git, "terminal": own.terminal, "last hundred": own.last_hundred,
    "outside git": own.outside_git, "no ctrlz": own.without_ctrlz, "stuck": own.stuck,
}
