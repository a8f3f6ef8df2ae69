"""The scenarios that all clients share, in the order of the table's columns.

`shared(client)` creates them from an object with

    setup(lab)                      configures the client and installs ctrlz into it
    prompt(lab, text, go_on=False)  returns the command line of one headless prompt; `go_on`
                                    continues the last session
    fork(lab, text)                 the same in a fork of the last session; optional
    undo_inside(lab)                undoes the last turn from inside the client
    shows_failures                  whether a headless client reports unrecorded steps in its output
                                    or to the model
    user_config                     {path below home: content} that exists before the installation
    volatile                        names below home that the client itself rewrites

Clients may add their own scenarios.
"""
import re

from driver import COLUMNS, Skip, files_below, script, wait_for

# Part of the notice to the model after an undo.
NOTICE = "These files are not as you left them"
EDIT = {"tool": "edit", "path": "edit.txt", "old": "one", "new": "ONE"}


def bash(command):
    return {"tool": "bash", "command": command}


def write(path, content):
    return {"tool": "write", "path": path, "content": content}


class Shared:
    def __init__(self, client):
        self.client = client

    def turn(self, lab, *steps, go_on=False):
        """Makes the agent execute these steps as one turn."""
        text = script(*steps, {"text": "done"})
        ran = lab.run(self.client.prompt(lab, text, go_on=go_on), stdin=self.stdin(text))
        assert ran.code == 0, repr(ran)
        return ran

    def stdin(self, text):
        return text if getattr(self.client, "prompt_on_stdin", False) else ""

    # ------------------------------------------------------------------------------ scenarios

    def whole_turn(self, lab):
        """One undo reverses a turn of edits, writes, commands, a failing command and deletions."""
        self.client.setup(lab)
        before = lab.tree()
        self.turn(
            lab, EDIT, write("new.txt", "new\n"),
            bash("mkdir -p deep && echo made > deep/made.txt && chmod 755 keep.txt"),
            bash("echo half > half.txt; false"),
            bash("rm gone.txt notes.txt"))
        after = lab.tree()
        assert after["edit.txt"].startswith(b"ONE"), after
        assert after["half.txt"] == b"half\n" and after["deep/made.txt"] == b"made\n", after
        assert "gone.txt" not in after and "notes.txt" not in after, after
        steps = lab.steps()
        assert len({step["session"] for step in steps}) == 1, steps
        assert len({step.get("message") for step in steps}) == 1, steps
        assert {step.get("who") for step in steps} == {self.client.NAME}, steps
        assert not any(step["inferred"] for step in steps), steps
        lab.ctrlz("undo")
        assert lab.tree() == before, difference(before, lab.tree())
        lab.ctrlz("redo")
        assert lab.tree() == after, difference(after, lab.tree())

    def undo_inside(self, lab):
        """The client's own undo restores the files."""
        self.client.setup(lab)
        before = lab.tree()
        self.turn(lab, EDIT, write("new.txt", "new\n"), bash("rm gone.txt"))
        assert lab.read("gone.txt") is None
        self.client.undo_inside(lab)
        assert lab.tree() == before, difference(before, lab.tree())

    def user_edit(self, lab):
        """Undo keeps user edits made between and after turns."""
        self.client.setup(lab)
        self.turn(lab, EDIT, bash("echo x > new.txt"))
        lab.write("mine.txt", "mine\n")
        lab.write("edit.txt", "ONE\ntwo\nthree\nfour\nFIVE by me\n")
        self.turn(lab, bash("echo second > second.txt"))
        lab.ctrlz("undo")
        assert lab.read("second.txt") is None
        lab.ctrlz("undo")
        assert lab.read("new.txt") is None
        assert lab.read("edit.txt") == "one\ntwo\nthree\nfour\nFIVE by me\n", lab.read("edit.txt")
        assert lab.read("mine.txt") == "mine\n"

    def interrupted(self, lab):
        """After Ctrl-C during `rm -rf docs`, one undo restores docs. Later writes of a surviving
        process belong to no step."""
        self.client.setup(lab)
        lab.write("docs/guide.md", "guide\n")
        lab.write("docs/deep/more.md", "more\n")
        before = lab.tree()
        gate = lab.top / "gate"
        delete = getattr(self.client, "delete", "rm -rf")
        text = script(bash(f"{delete} docs; echo early > early.txt; while [ ! -e {gate} ]; do sleep 0.1; done; "
                           "echo late > late.txt"), {"text": "done"})
        process = lab.start(self.client.prompt(lab, text), stdin=self.stdin(text))
        wait_for(lambda: lab.read("early.txt"), "the tool to write", 120)
        lab.interrupt(process)
        lab.finish(process)
        lab.ctrlz("undo")
        assert lab.tree() == before, difference(before, lab.tree())
        lab.ctrlz("redo")
        assert lab.read("docs/guide.md") is None and lab.read("early.txt") == "early\n"
        self.turn(lab, bash("echo next > next.txt"))
        steps = lab.steps()
        cut_off = [step for step in steps if "early" in (step.get("label") or "")]
        assert cut_off, steps
        gate.touch()
        try:
            wait_for(lambda: lab.read("late.txt"), "a late write", 2)
            late = {"late.txt": b"late\n"}
        except AssertionError:
            late = {}            # the client killed the tool's process
        lab.ctrlz("undo")
        assert lab.read("next.txt") is None and lab.read("early.txt") == "early\n"
        lab.ctrlz("undo")
        assert lab.tree() == before | late, difference(before | late, lab.tree())

    def resumed(self, lab):
        """A session resumed in another process stays one session."""
        self.client.setup(lab)
        before = lab.tree()
        self.turn(lab, bash("echo a > a.txt"))
        self.turn(lab, bash("echo b > b.txt"), go_on=True)
        steps = lab.steps()
        assert len({step["session"] for step in steps}) == 1, steps
        assert len({step["message"] for step in steps}) == 2, steps
        lab.ctrlz("undo")
        assert lab.read("b.txt") is None and lab.read("a.txt") == "a\n"
        lab.ctrlz("undo")
        assert lab.tree() == before, difference(before, lab.tree())

    def forked(self, lab):
        """A fork is a separate session. Its undo keeps the changes of the original."""
        if not hasattr(self.client, "fork"):
            raise Skip("no fork in headless mode")
        self.client.setup(lab)
        self.turn(lab, bash("echo a > a.txt"))
        text = script(bash("echo f > f.txt"), {"text": "done"})
        ran = lab.run(self.client.fork(lab, text), stdin=self.stdin(text))
        assert ran.code == 0, repr(ran)
        steps = lab.steps()
        assert len({step["session"] for step in steps}) == 2, steps
        lab.ctrlz("undo")
        assert lab.read("f.txt") is None and lab.read("a.txt") == "a\n"

    def parallel(self, lab):
        """Concurrent tool calls of one message are one turn, and all are undone."""
        self.client.setup(lab)
        before = lab.tree()
        self.turn(lab, [write("p1.txt", "1\n"), write("p2.txt", "2\n"),
                        bash("echo 3 > p3.txt; sleep 0.3; echo 4 > p4.txt")])
        made = lab.tree()
        assert all(f"p{n}.txt" in made for n in "1234"), made
        lab.ctrlz("undo")
        assert lab.tree() == before, difference(before, lab.tree())

    def told(self, lab):
        """After an undo, the next prompt lists the changed files for the model."""
        self.client.setup(lab)
        self.turn(lab, EDIT, bash("echo x > unusual-name.txt"))
        lab.ctrlz("undo")
        assert not lab.model.was_told(NOTICE)
        self.turn(lab, {"text": "ok"}, go_on=True)
        assert lab.model.was_told(NOTICE), "the model got no notice"
        asked = [request for request in lab.model.requests() if request["m"] == "POST"]
        assert "unusual-name.txt" in str(asked[-1]["body"])

    def beyond(self, lab):
        """Undo restores ignored files that a command deleted; `--outside` also files outside the project."""
        self.client.setup(lab)
        lab.write("local.secret", "secret\n")
        lab.write("build/out.bin", "built\n")
        photos = lab.home / "photos"
        photos.mkdir()
        (photos / "one.jpg").write_text("a photo\n")
        self.turn(lab, bash("rm -r ~/photos build local.secret"))
        assert not photos.exists() and lab.read("build/out.bin") is None
        said = lab.run([lab.ctrlz_bin, "undo"])
        assert lab.read("local.secret") == "secret\n", repr(said)
        assert lab.read("build/out.bin") == "built\n", repr(said)
        assert not photos.exists(), "restored outside the project without --outside"
        assert "photos" in said.out and "--outside" in said.out, repr(said)
        lab.ctrlz("undo", "--outside")
        assert (photos / "one.jpg").read_text() == "a photo\n"

    def failure(self, lab):
        """A recording failure does not stop the agent, and is reported until the user has seen it."""
        self.client.setup(lab)
        config = lab.home / ".config/ctrlz/config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("max_files = 1\n")
        self.turn(lab, bash("echo x > x.txt"))
        assert lab.read("x.txt") == "x\n" and lab.steps() == []
        config.unlink()
        status = lab.ctrlz("status")
        assert re.search(rf"agents +{self.client.NAME}, ", status), status
        ran = self.turn(lab, bash("echo y > y.txt"))
        assert len(lab.steps()) == 1, lab.steps()
        if getattr(self.client, "shows_failures", False):
            said = "could not be recorded"
            assert said in ran.err or lab.model.was_told(said), repr(ran)
        doctor = lab.run([lab.ctrlz_bin, "doctor"])
        assert f"agents: {self.client.NAME}, " in doctor.out, repr(doctor)
        assert self.client.NAME + ", " not in lab.ctrlz("status")

    def by_model(self, lab):
        """The model undoes the last turn with the tools of `ctrlz mcp`."""
        if not hasattr(self.client, "with_mcp"):
            raise Skip("not tested; no MCP, or only with manual setup")
        self.client.setup(lab)
        before = lab.tree()
        self.turn(lab, EDIT, bash("rm gone.txt"))
        text = script({"tool": "raw", "name": self.client.undo_tool, "args": {}}, {"text": "done"})
        ran = lab.run(self.client.with_mcp(lab, text), stdin=self.stdin(text))
        assert ran.code == 0, repr(ran)
        assert lab.tree() == before, difference(before, lab.tree())

    def uninstalled(self, lab):
        """Installing is idempotent, and uninstalling restores every file byte for byte."""
        for path, content in self.client.user_config.items():
            (lab.home / path).parent.mkdir(parents=True, exist_ok=True)
            (lab.home / path).write_text(content)
        self.client.configure(lab)
        before = self.stable(lab)
        lab.ctrlz("install", self.client.NAME)
        once = self.stable(lab)
        assert once != before, "nothing was installed"
        lab.ctrlz("install", self.client.NAME)
        assert self.stable(lab) == once, difference(once, self.stable(lab))
        lab.ctrlz("uninstall", self.client.NAME)
        assert self.stable(lab) == before, difference(before, self.stable(lab))

    def stable(self, lab):
        """Returns the files below home without those that the client itself rewrites."""
        volatile = self.client.volatile
        found = files_below(lab.home, leave_out=volatile)
        return {path: text for path, text in found.items() if path not in volatile}


def difference(wanted, found):
    keys = sorted(set(wanted) | set(found))
    lines = [f"{key}: wanted {wanted.get(key)!r}, found {found.get(key)!r}"
             for key in keys if wanted.get(key) != found.get(key)]
    return "\n".join(lines)


def shared(client, kind=Shared):
    own = kind(client)
    return {name: getattr(own, name.replace(" ", "_")) for name in COLUMNS}
