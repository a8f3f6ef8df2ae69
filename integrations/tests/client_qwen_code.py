"""Qwen Code, headless (`qwen -p`), with hooks in its settings."""
import json

import driver
from driver import Skip
from scenarios import EDIT, Shared, shared

NAME, VERSION = "qwen-code", "0.24.4"


def prepare():
    driver.npm_install("@qwen-code/qwen-code", VERSION, "qwen")


class Qwen:
    qwen = None
    NAME = NAME
    user_config = {".qwen/settings.json": '{\n    // mine\n    "unknown": {"a": [1, 2]},\n    '
                   '"security": {"auth": {"selectedType": "openai"}}\n}\n'}
    volatile = ("tmp", "projects", "usage", "extension-store", "extensions", "skills", "logs",
                ".qwen/installation_id", ".qwen/usage_record.jsonl", ".qwen/output-language.md")

    def configure(self, lab):
        self.qwen = driver.npm_install("@qwen-code/qwen-code", VERSION, "qwen")
        lab.path += [self.qwen.parent, driver.node(22)]
        lab.variables |= {
            "OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{lab.model.url}/v1",
            "OPENAI_MODEL": "fake-model", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }

    def setup(self, lab):
        self.configure(lab)
        (lab.home / ".qwen").mkdir(exist_ok=True)
        settings = {"security": {"auth": {"selectedType": "openai"}},
                    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
                    "privacy": {"usageStatisticsEnabled": False}}
        (lab.home / ".qwen/settings.json").write_text(json.dumps(settings))
        lab.ctrlz("install", NAME)

    def prompt(self, lab, text, go_on=False):
        words = ["--approval-mode", "yolo", "-o", "json", *(["--continue"] if go_on else [])]
        return [self.qwen, *words, "-p", text]

    def undo_inside(self, lab):
        raise Skip("no slash command; use `ctrlz undo` in a shell")


class ReadsFirst(Shared):
    """Reads files first, because Qwen Code refuses to edit unread files."""

    def turn(self, lab, *steps, go_on=False):
        read = [{"tool": "read", "path": EDIT["path"]}] if EDIT in steps else []
        return super().turn(lab, *read, *steps, go_on=go_on)


SCENARIOS = shared(Qwen(), ReadsFirst)
FEW = ("whole turn", "beyond", "uninstalled")
