"""Codex CLI, headless (`codex exec`), with Claude Code's plugin directory."""
import driver
from driver import script
from scenarios import bash, shared

NAME, VERSION = "codex", "0.166.0"
CONFIG = """model = "gpt-5.5"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
"""


def prepare():
    driver.npm_install("@openai/codex", VERSION, "codex")


class Codex:
    delete = "rm -r"      # Codex asks before it runs `rm -rf`, which fails in headless mode.
    codex = None
    NAME = NAME
    user_config = {".codex/config.toml": '# mine\nmodel = "gpt-5.5" # keep this\n\n[unknown]\na = 1\n'}
    # State of the client itself, except marketplaces and plugins.
    volatile = (".tmp", "tmp", "log", "sessions", "installation_id", "version.json", "shell_snapshots",
                ".personality_migration", "state_5.sqlite", "memories")

    def configure(self, lab):
        self.codex = driver.npm_install("@openai/codex", VERSION, "codex")
        lab.path += [self.codex.parent, driver.node(16)]
        lab.variables |= {"FAKE_KEY": "x"}

    def setup(self, lab):
        self.configure(lab)
        home = lab.home / ".codex"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(CONFIG.format(url=lab.model.url))
        lab.ctrlz("install", NAME)

    def prompt(self, lab, text, go_on=False):
        # Headless mode cannot approve hooks, so the check is bypassed.
        words = [self.codex, "exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "--json"]
        return [*words, "resume", "--last", text] if go_on else [*words, text]

    undo_tool = "undo"

    def with_mcp(self, lab, text):
        # Codex does not pass its environment to MCP servers.
        lab.must([self.codex, "mcp", "add", "ctrlz", "--env", f"CTRLZ_DATA_DIR={lab.data}", "--",
                  lab.ctrlz_bin, "mcp"])
        # For known models, Codex makes tools available only through a search.
        first, *rest = self.prompt(lab, text)
        return [first, *rest[:-1], "-m", "fake-model", rest[-1]]

    def undo_inside(self, lab):
        ran = lab.run(self.prompt(lab, script(bash(f"{lab.ctrlz_bin} undo"), {"text": "done"}), go_on=True))
        assert ran.code == 0, repr(ran)


SCENARIOS = shared(Codex())


def approval(lab):
    """Hooks that are not approved do not run, and doctor reports it."""
    client = Codex()
    client.setup(lab)
    said = lab.run([lab.ctrlz_bin, "doctor"])
    assert said.code == 1 and "wait for your approval" in said.out, repr(said)
    ran = lab.run([client.codex, "exec", "--skip-git-repo-check", script(bash("echo x > x.txt"), {"text": "ok"})])
    assert ran.code == 0, repr(ran)
    assert lab.read("x.txt") == "x\n" and lab.steps() == []


SCENARIOS["approval"] = approval
