"""Gemini CLI, headless (`gemini -p`), with the extension."""
import json

import driver
from scenarios import shared

NAME, VERSION = "gemini-cli", "0.61.0"


def prepare():
    driver.npm_install("@google/gemini-cli", VERSION, "gemini")


class Gemini:
    gemini = None
    NAME = NAME
    user_config = {".gemini/settings.json": '{\n    // mine\n    "unknown": {"a": [1, 2]},\n    '
                   '"security": {"auth": {"selectedType": "gemini-api-key"}}\n}\n'}
    # State of the client itself: known projects, and caches of former extensions.
    volatile = ("history", "tmp", "projects.json", "installation_id", "state.json",
                ".gemini/projects.json", ".gemini/installation_id", ".gemini/state.json",
                ".gemini/extension_integrity.json", ".gemini/gemini-credentials.json",
                ".gemini/extensions/extension-enablement.json", ".gemini/google_accounts.json")

    def configure(self, lab):
        self.gemini = driver.npm_install("@google/gemini-cli", VERSION, "gemini")
        lab.path += [self.gemini.parent, driver.node(20)]
        lab.variables |= {
            "GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": lab.model.url,
            "GEMINI_CLI_NO_RELAUNCH": "true", "GEMINI_TELEMETRY_ENABLED": "false",
        }

    def setup(self, lab):
        self.configure(lab)
        home = lab.home / ".gemini"
        home.mkdir(exist_ok=True)
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}},
                    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
                    "privacy": {"usageStatisticsEnabled": False}}
        (home / "settings.json").write_text(json.dumps(settings))
        lab.ctrlz("install", NAME)

    def words(self, text, *more):
        return [self.gemini, "--skip-trust", "-m", "gemini-2.5-flash", "--approval-mode", "yolo",
                "-o", "json", *more, "-p", text]

    def prompt(self, lab, text, go_on=False):
        return self.words(text, *(["--resume", "latest"] if go_on else []))

    undo_tool = "mcp_ctrlz_undo"

    def with_mcp(self, lab, text):
        lab.must([self.gemini, "mcp", "add", "-s", "user", "ctrlz", lab.ctrlz_bin, "mcp"])
        return self.words(text)

    def undo_inside(self, lab):
        ran = lab.run(self.words("/ctrlz:undo", "--resume", "latest"))
        assert ran.code == 0, repr(ran)


SCENARIOS = shared(Gemini())
