"""OpenCode: headless runs for the shared scenarios, and `opencode serve` for reverts and forks."""
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

from driver import COLUMNS, Skip, npm_install, script, wait_for
from scenarios import EDIT, bash, difference, shared, write

NAME, VERSION = "opencode", "1.18.33"


class OpenCode:
    NAME = "opencode"
    package, version, program_name = "opencode-ai", VERSION, "opencode"
    binaries = "opencode-*/bin/opencode"
    quiet = "OPENCODE"
    user_config = {".config/opencode/opencode.jsonc": '{\n  // mine\n  "share": "disabled",\n}\n'}
    volatile = (".cache", ".local", "node_modules", "package.json", "bun.lock", ".gitignore", "package-lock.json")

    def prepare(self):
        installed = npm_install(self.package, self.version, self.program_name)
        # The install script, which is not run, would link one of these programs.
        found = sorted(installed.parent.parent.glob(self.binaries))
        runs = [program for program in found if has_version(program)]
        if not runs:
            raise Skip(f"no program for this machine among {[str(path) for path in found]}")
        self.program = runs[0]

    def configure(self, lab):
        names = ("DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_LSP_DOWNLOAD", "DISABLE_DEFAULT_PLUGINS")
        lab.variables = {f"{self.quiet}_{name}": "1" for name in names}
        # OpenCode installs types for plugins at its start, and retries for a minute without network.
        lab.variables |= {"npm_config_fetch_retries": "0", "XDG_DATA_HOME": str(lab.home / ".local/share")}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "fake",
                    "options": {"baseURL": f"{lab.model.url}/v1", "apiKey": "x"},
                    "models": {"fake-model": {"name": "fake"}}}
        config = {"provider": {"fake": provider}, "model": "fake/fake-model",
                  "small_model": "fake/fake-model", "autoupdate": False, "share": "disabled",
                  "permission": {"edit": "allow", "bash": "allow", "task": "allow",
                                 "external_directory": "allow"}}
        lab.variables[f"{self.quiet}_CONFIG_CONTENT"] = json.dumps(config)

    def setup(self, lab):
        self.configure(lab)
        lab.ctrlz("install", self.NAME)

    def prompt(self, lab, text, go_on=False):
        return [self.program, "run", *(["-c"] if go_on else []), text]

    def fork(self, lab, text):
        return [self.program, "run", "-c", "--fork", text]

    undo_tool = "ctrlz_undo"

    def with_mcp(self, lab, text):
        name = f"{self.quiet}_CONFIG_CONTENT"
        server = {"type": "local", "command": [str(lab.ctrlz_bin), "mcp"], "enabled": True}
        lab.variables[name] = json.dumps(json.loads(lab.variables[name]) | {"mcp": {"ctrlz": server}})
        return self.prompt(lab, text)

    def undo_inside(self, lab):
        with Server(self, lab) as server:
            session = server.get("/session")[0]["id"]
            server.revert(session, server.prompts(session)[-1])


def has_version(program):
    with tempfile.TemporaryDirectory() as home:
        words = [str(program), "--version"]
        return subprocess.run(words, env={"HOME": home}, capture_output=True).returncode == 0


class Server:
    """An `opencode serve` process, which is the backend of the terminal and the desktop app."""

    def __init__(self, client, lab):
        self.lab = lab
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = [client.program, "serve", "--port", str(port), "--hostname", "127.0.0.1"]
        self.process = lab.start(words, stdin=None)

    def __enter__(self):
        wait_for(self.answers, "the server", 120)
        return self

    def __exit__(self, *why):
        self.process.terminate()
        self.process.communicate(timeout=60)

    def answers(self):
        try:
            # A request during the start is never answered, so the time limit is short.
            self.call("GET", "/session", patience=5)
            return True
        except OSError:
            return False

    def call(self, method, path, body=None, patience=120):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=patience) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def get(self, path):
        return self.call("GET", path)

    def session(self):
        return self.call("POST", "/session", {"title": "t"})["id"]

    def turn(self, session, *steps):
        model = {"providerID": "fake", "modelID": "fake-model"}
        parts = [{"type": "text", "text": script(*steps, {"text": "done"})}]
        self.call("POST", f"/session/{session}/message", {"parts": parts, "model": model})

    def messages(self, session):
        return self.get(f"/session/{session}/message")

    def prompts(self, session):
        return [one["info"]["id"] for one in self.messages(session) if one["info"]["role"] == "user"]

    def revert(self, session, message, part=None):
        body = {"messageID": message} | ({"partID": part} if part else {})
        answer = self.call("POST", f"/session/{session}/revert", body)
        self.follow(session)
        return answer

    def unrevert(self, session):
        self.call("POST", f"/session/{session}/unrevert", {})
        self.follow(session)

    def follow(self, session):
        """Waits until the files have followed the conversation."""
        last, still = None, 0
        while still < 6:
            time.sleep(0.1)
            now = self.lab.tree(), len(self.lab.ctrlz_json("log")["operations"])
            last, still = now, still + 1 if now == last else 0


class Own:
    """Scenarios of OpenCode only: its reverts and forks."""

    def __init__(self, client):
        self.client = client

    def start(self, lab):
        self.client.setup(lab)
        return Server(self.client, lab)

    def revert_and_back(self, lab):
        """Reverts in both directions restore all states, including deletions, and keep user edits."""
        with self.start(lab) as server:
            session = server.session()
            states = [lab.tree()]
            for steps in ([write("one.txt", "1\n")], [bash("rm gone.txt; echo 2 > one.txt")], [EDIT, bash("rm keep.txt")]):
                server.turn(session, *steps)
                states.append(lab.tree())
            prompts = server.prompts(session)
            for number in (2, 0, 1):
                server.revert(session, prompts[number])
                assert lab.tree() == states[number], difference(states[number], lab.tree())
            lab.write("notes.txt", "edited while reverted\n")
            lab.write("mine.txt", "mine\n")
            server.unrevert(session)
            expected = states[3] | {"notes.txt": b"edited while reverted\n", "mine.txt": b"mine\n"}
            assert lab.tree() == expected, difference(expected, lab.tree())

    def revert_then_prompt(self, lab):
        """A prompt makes a revert final, and the next undo continues from there."""
        with self.start(lab) as server:
            session = server.session()
            first = lab.tree()
            server.turn(session, bash("echo 1 > one.txt"))
            server.turn(session, bash("echo 2 > two.txt"))
            server.revert(session, server.prompts(session)[1])
            server.turn(session, bash("echo 3 > three.txt"))
            assert (lab.read("two.txt"), lab.read("three.txt")) == (None, "3\n")
            assert len(server.prompts(session)) == 2
            assert lab.model.was_told("took back"), "the model got no notice"
            lab.ctrlz("undo")
            lab.ctrlz("undo")
            assert lab.tree() == first, difference(first, lab.tree())

    def revert_to_part(self, lab):
        """A revert to a part of a turn moves the files to the same point."""
        with self.start(lab) as server:
            session = server.session()
            server.turn(session, bash("echo 1 > one.txt"))
            server.turn(session, write("a.txt", "a\n"), bash("echo b > b.txt"), bash("echo c > c.txt"))
            parts = [(one["info"]["id"], part) for one in server.messages(session) for part in one["parts"]]
            for message, part in parts:
                if part["type"] == "tool" and "b.txt" in str(part["state"].get("input")):
                    answer = server.revert(session, message, part["id"])
            where = answer["revert"]
            kept = ["a.txt"] if where.get("partID") else []
            found = [name for name in ("a.txt", "b.txt", "c.txt") if lab.read(name)]
            assert found == kept and lab.read("one.txt"), (where, found)

    def fork_and_revert(self, lab):
        """A revert in a fork undoes the steps of the original messages."""
        with self.start(lab) as server:
            session = server.session()
            first = lab.tree()
            server.turn(session, bash("echo 1 > one.txt"))
            server.turn(session, bash("echo 2 > two.txt"))
            fork = server.call("POST", f"/session/{session}/fork", {})["id"]
            server.revert(fork, server.prompts(fork)[0])
            assert lab.tree() == first, difference(first, lab.tree())
            server.unrevert(fork)
            assert (lab.read("one.txt"), lab.read("two.txt")) == ("1\n", "2\n")

    def revert_across_restart(self, lab):
        """An unrevert in another process restores the files."""
        with self.start(lab) as server:
            session = server.session()
            server.turn(session, bash("echo 1 > one.txt; rm gone.txt"))
            after = lab.tree()
            server.revert(session, server.prompts(session)[0])
            assert lab.read("gone.txt") == "to be deleted\n"
        with Server(self.client, lab) as server:
            server.unrevert(session)
            assert lab.tree() == after, difference(after, lab.tree())

    def sub_agent(self, lab):
        """The changes of a sub-agent are undone with the turn that started it."""
        with self.start(lab) as server:
            session = server.session()
            before = lab.tree()
            inner = script(bash("echo s > sub.txt"), {"text": "done"})
            task = {"tool": "raw", "name": "task", "args": {
                "description": "d", "prompt": inner, "subagent_type": "general"}}
            server.turn(session, task, bash("echo m > main.txt"))
            assert lab.read("sub.txt") == "s\n" and lab.read("main.txt") == "m\n"
            server.revert(session, server.prompts(session)[0])
            assert lab.tree() == before, difference(before, lab.tree())

    def outside_git(self, lab):
        """Unlike OpenCode's own snapshots, reverts work without git."""
        shutil.rmtree(lab.project / ".git")
        with self.start(lab) as server:
            session = server.session()
            before = lab.tree()
            server.turn(session, bash("echo 1 > one.txt; rm gone.txt"))
            server.revert(session, server.prompts(session)[0])
            assert lab.tree() == before, difference(before, lab.tree())

    def without_ctrlz(self, lab):
        """Without the program, OpenCode works normally with its own snapshots."""
        self.client.setup(lab)
        lab.variables["CTRLZ_BIN"] = "/nowhere/ctrlz"
        with Server(self.client, lab) as server:
            session = server.session()
            before = lab.tree()
            server.turn(session, bash("echo 1 > one.txt"))
            assert lab.read("one.txt") == "1\n"
            server.call("POST", f"/session/{session}/revert", {"messageID": server.prompts(session)[0]})
            assert lab.tree() == before, difference(before, lab.tree())


def scenarios(client):
    own = Own(client)
    return shared(client) | {
        "revert and back": own.revert_and_back, "revert, prompt": own.revert_then_prompt,
        "revert to part": own.revert_to_part, "fork, revert": own.fork_and_revert,
        "restarted": own.revert_across_restart, "sub-agent": own.sub_agent,
        "outside git": own.outside_git, "no ctrlz": own.without_ctrlz,
    }


CLIENT = OpenCode()
prepare, SCENARIOS = CLIENT.prepare, scenarios(CLIENT)
# Starting the server takes long, so only some of the scenarios with a server run by default.
FEW = (*COLUMNS, "revert and back", "revert, prompt", "fork, revert", "sub-agent")
