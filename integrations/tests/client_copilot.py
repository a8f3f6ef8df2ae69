"""GitHub Copilot CLI, headless (`copilot -p`), with a custom model and a hooks file."""
import driver
from driver import Skip
from scenarios import shared

NAME, VERSION = "copilot", "1.0.102"


def program():
    installed = driver.npm_install("@github/copilot", VERSION, "copilot")
    found = sorted(installed.parent.parent.glob("@github/copilot-linux*/copilot"))
    if not found:
        raise Skip("the npm package has no program for this machine")
    return found[0]


class Copilot:
    NAME = NAME
    shows_failures = True
    user_config = {".copilot/hooks/mine.json": '{ "version": 1, "hooks": {} }\n'}
    volatile = ("session-state", "logs", ".cache", "pkg", "installed-plugins", "session-store.db",
                ".copilot/config.json", ".copilot/session-store.db", ".copilot/session-store.db-wal",
                ".copilot/session-store.db-shm", ".copilot/settings.json.lock")

    def configure(self, lab):
        lab.path += [program().parent]
        lab.variables |= {
            "COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": f"{lab.model.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "x", "COPILOT_MODEL": "fake-model",
            "COPILOT_AUTO_UPDATE": "false",
        }

    def setup(self, lab):
        self.configure(lab)
        lab.ctrlz("install", NAME)

    def prompt(self, lab, text, go_on=False):
        more = ["--continue"] if go_on else []
        return [program(), "--allow-all-tools", "--allow-all-paths", *more, "-p", text]

    def undo_inside(self, lab):
        raise Skip("no slash command; use `ctrlz undo` in a shell")


prepare, SCENARIOS = program, shared(Copilot())
FEW = ("whole turn", "beyond", "uninstalled")
