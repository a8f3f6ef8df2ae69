"""Claude Code, headless (`claude -p`), with the plugin."""
import json

import driver
from scenarios import shared

NAME, VERSION = "claude-code", "2.1.325"
TOOLS = ["Bash", "Write", "Edit", "Read"]


def installed():
    """Returns the native program. `.bin/claude` only works after the package's install script."""
    stub = driver.npm_install("@anthropic-ai/claude-code", VERSION, "claude")
    package = f"claude-code-{driver.npm_platform()}"
    native = stub.parents[1] / "@anthropic-ai" / package / "claude"
    return native if native.exists() else stub


def prepare():
    installed()
    driver.node()


class Claude:
    claude = None
    NAME = NAME
    prompt_on_stdin = True
    user_config = {".claude/settings.json": '{\n    "model": "opus",\n    "unknown": {"a": [1, 2]}\n}\n'}
    # State of the client itself, including its copies of plugins.
    volatile = (".claude.json", "backups", ".last-cleanup", "projects", "session-env", "statsig")

    def configure(self, lab):
        claude = installed()
        lab.path += [claude.parent, driver.node()]
        lab.variables |= {
            "ANTHROPIC_BASE_URL": lab.model.url, "ANTHROPIC_API_KEY": "sk-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }
        self.claude = claude

    def setup(self, lab):
        self.configure(lab)
        lab.ctrlz("install", NAME)

    def words(self, *more):
        return [self.claude, "-p", *(f"--allowedTools={tool}" for tool in TOOLS), *more]

    def prompt(self, lab, text, go_on=False):
        return self.words(*(["--continue"] if go_on else []))

    def fork(self, lab, text):
        return self.words("--continue", "--fork-session")

    undo_tool = "mcp__ctrlz__undo"

    def with_mcp(self, lab, text):
        servers = {"mcpServers": {"ctrlz": {"command": str(lab.ctrlz_bin), "args": ["mcp"]}}}
        return self.words("--mcp-config", json.dumps(servers), "--allowedTools=mcp__ctrlz__undo")

    def undo_inside(self, lab):
        ran = lab.run(self.words("--continue"), stdin="/ctrlz:undo")
        assert ran.code == 0, repr(ran)


SCENARIOS = shared(Claude())
