"""Cline CLI, headless, with a file per event in its hooks directory."""
import driver
from driver import Skip, script
from scenarios import bash, shared

NAME, VERSION = "cline", "3.0.65"


def prepare():
    driver.npm_install("cline", VERSION, "cline")


class Cline:
    cline = None
    NAME = NAME
    # Notices are shown at the next prompt of a session, which does not exist in headless mode.
    shows_failures = False
    user_config = {".cline/hooks/PreToolUse": "#!/bin/sh\nexit 0\n"}
    volatile = ("data", "logs", "db", "sessions", "settings")

    def configure(self, lab):
        self.cline = driver.npm_install("cline", VERSION, "cline")
        lab.path += [self.cline.parent, driver.node(20)]

    def setup(self, lab):
        self.configure(lab)
        lab.must([self.cline, "auth", "-p", "openai-compatible", "-k", "x", "-m", "fake-model",
                  "-b", f"{lab.model.url}/v1"])
        lab.ctrlz("install", NAME)

    def prompt(self, lab, text, go_on=False):
        if go_on:
            raise Skip("a headless run cannot resume a session: `--id` opens the terminal UI")
        return [self.cline, "-P", "openai-compatible", "-m", "fake-model", "--json", text]

    def undo_inside(self, lab):
        ran = lab.run(self.prompt(lab, script(bash(f"{lab.ctrlz_bin} undo"), {"text": "done"})))
        assert ran.code == 0, repr(ran)


SCENARIOS = shared(Cline())
