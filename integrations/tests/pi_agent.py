"""pi in three generations: the adapter for the shared scenarios, and its own scenarios."""
import json
import shutil

from driver import node, npm_install, script
from scenarios import bash, difference, shared, write

AGENT = ".pi/agent"


class Pi:
    NAME = "pi"
    shows_failures = True
    user_config = {f"{AGENT}/settings.json": '{\n  "quietStartup": true // mine\n}\n'}
    volatile = ("sessions", "auth.json")

    def __init__(self, package, version):
        self.package, self.version = package, version

    def prepare(self):
        self.program = npm_install(self.package, self.version, "pi")
        self.node = node()

    def configure(self, lab):
        lab.path = [self.program.parent, self.node]
        lab.variables = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}
        place = lab.home / AGENT
        place.mkdir(parents=True, exist_ok=True)
        provider = {"baseUrl": f"{lab.model.url}/v1", "api": "openai-completions", "apiKey": "x",
                    "models": [{"id": "fake-model"}]}
        (place / "models.json").write_text(json.dumps({"providers": {"fake": provider}}))

    def setup(self, lab):
        self.configure(lab)
        lab.ctrlz("install", self.NAME)

    def words(self, *more):
        return [self.program, "--provider", "fake", "--model", "fake-model", *more]

    def prompt(self, lab, text, go_on=False):
        return self.words("-p", *(["-c"] if go_on else []), text)

    def undo_inside(self, lab):
        with Talk(lab, self.words("--mode", "rpc", "-c")) as talk:
            talk.answer = lambda request: {"confirmed": True}
            talk.ask("prompt", message="/undo")
            talk.wait_for_notice("undid")


class Talk:
    """A connection to pi's rpc mode: JSON lines in both directions, including questions to the user."""

    def __init__(self, lab, words):
        self.lab = lab
        self.process = lab.start(words, stdin=None)
        self.seen, self.asked, self.notices, self.next = [], [], [], 1
        self.answer = lambda request: {"cancelled": True}

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.stdin.close()
        self.process.stdin = None
        self.process.wait(60)

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, command, **params):
        """Sends a command and returns its answer."""
        own, self.next = f"q{self.next}", self.next + 1
        self.send({"id": own, "type": command, **params})
        answer = self.read_until(lambda one: one.get("type") == "response" and one.get("id") == own)
        assert answer["success"], answer
        return answer.get("data")

    def turn(self, *steps):
        self.ask("prompt", message=script(*steps, {"text": "done"}))
        self.read_until(lambda one: one.get("type") == "agent_end")

    def wait_for_notice(self, text):
        if not any(text in notice for notice in self.notices):
            self.read_until(lambda one: text in str(one.get("message", "")) and one.get("method") == "notify")

    def read_until(self, wanted):
        while line := self.process.stdout.readline():
            if not line.startswith("{"):
                continue
            one = json.loads(line)
            self.seen.append(one)
            if one.get("type") == "extension_ui_request":
                self.on_request(one)
            if wanted(one):
                return one
        raise AssertionError(f"pi ended: {self.seen[-5:]} {self.process.stderr.read()}")

    def on_request(self, request):
        if request["method"] in ("select", "confirm"):
            self.asked.append(request)
            self.send({"type": "extension_ui_response", "id": request["id"], **self.answer(request)})
        elif request["method"] == "notify":
            self.notices.append(request["message"])


class Own:
    """Scenarios of pi only: forks that restore files, and entries in the session tree."""

    def __init__(self, pi):
        self.pi = pi

    def talk(self, lab, *more):
        return Talk(lab, self.pi.words("--mode", "rpc", *more))

    def fork_to(self, talk, prompt_number, choose):
        """Forks before a prompt, and chooses the option that starts with `choose`."""
        def answer(request):
            found = [one for one in request.get("options", []) if one.startswith(choose)]
            return {"value": found[0]} if found else {"cancelled": True}
        talk.answer = answer
        messages = talk.ask("get_fork_messages")["messages"]
        return talk.ask("fork", entryId=messages[prompt_number]["entryId"])

    def fork_with_files(self, lab):
        """A fork can undo the changes of the session and keep those of others."""
        self.pi.setup(lab)
        with self.talk(lab) as talk:
            talk.turn(write("one.txt", "1\n"))
            after_one = lab.tree()
            talk.turn(write("one.txt", "2\n"), bash("rm gone.txt; echo x > made.txt"))
            lab.write("mine.txt", "mine\n")
            forked = self.fork_to(talk, 1, "Undo the changes")
            assert not forked["cancelled"]
            assert "mine.txt" in talk.asked[-1]["title"], talk.asked
            expected = after_one | {"mine.txt": b"mine\n"}
            assert lab.tree() == expected, difference(expected, lab.tree())
            # The fork shares the first turn and can undo it.
            talk.answer = lambda request: {"confirmed": True}
            talk.notices.clear()
            talk.ask("prompt", message="/undo")
            talk.wait_for_notice("undid")
            assert lab.read("one.txt") is None and lab.read("mine.txt") == "mine\n"

    def fork_restores_all(self, lab):
        """A fork can restore everything, including files of others, or leave all files unchanged."""
        self.pi.setup(lab)
        with self.talk(lab) as talk:
            talk.turn(write("one.txt", "1\n"))
            after_one = lab.tree()
            talk.turn(bash("echo x > made.txt"))
            lab.write("mine.txt", "mine\n")
            before_fork = lab.tree()
            self.fork_to(talk, 1, "Leave")
            assert lab.tree() == before_fork, difference(before_fork, lab.tree())
        with self.talk(lab, "-c") as talk:
            talk.turn(bash("echo y > more.txt"))
            self.fork_to(talk, 1, "Restore everything")
            assert lab.tree() == before_fork, difference(before_fork, lab.tree())

    def hash_suffices(self, lab):
        """The hash of an entry is sufficient to restore the files without the log of the session."""
        self.pi.setup(lab)
        with self.talk(lab) as talk:
            talk.turn(write("one.txt", "1\n"))
            first = lab.tree()
            talk.turn(write("two.txt", "2\n"))
        file = newest_session(lab)
        lines = file.read_text().splitlines()
        # With another session id, no step in the log belongs to the session.
        head = json.loads(lines[0]) | {"id": "0" * 8 + "-0000-4000-8000-000000000000"}
        file.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
        with self.talk(lab, "--session", str(file)) as talk:
            self.fork_to(talk, 1, "Restore everything")
            assert lab.tree() == first, difference(first, lab.tree())

    def expired(self, lab):
        """If the snapshot no longer exists, a warning is shown and the fork continues."""
        self.pi.setup(lab)
        with self.talk(lab) as talk:
            talk.turn(write("one.txt", "1\n"))
            talk.turn(write("two.txt", "2\n"))
        shutil.rmtree(lab.data)
        after = lab.tree()
        with self.talk(lab, "-c") as talk:
            forked = self.fork_to(talk, 1, "Restore everything")
            assert not forked["cancelled"]
            talk.wait_for_notice("no longer exists")
        assert lab.tree() == after

    def without_ctrlz(self, lab):
        """Without the program, pi works normally and reports that nothing is recorded."""
        self.pi.setup(lab)
        lab.variables["CTRLZ_BIN"] = "/nowhere/ctrlz"
        ran = lab.run(self.pi.prompt(lab, script(write("a.txt", "a\n"), {"text": "all good"})))
        assert ran.code == 0 and "all good" in ran.out, repr(ran)
        assert lab.read("a.txt") == "a\n" and "ctrlz" in ran.err, repr(ran)


def newest_session(lab):
    return max((lab.home / AGENT / "sessions").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)


def scenarios(pi):
    own = Own(pi)
    return shared(pi) | {
        "fork with files": own.fork_with_files, "fork restores": own.fork_restores_all,
        "hash suffices": own.hash_suffices, "expired": own.expired, "no ctrlz": own.without_ctrlz,
    }
