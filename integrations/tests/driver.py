"""Test driver for all clients: installation, isolated directories, the fake model and the table.

A client is a file `client_<name>.py` with

    NAME       its name in `ctrlz install`
    VERSION    the pinned version, for the table
    prepare()  installs it, or raises `Skip(why)`
    SCENARIOS  {name: function(lab)}. The shared ones of scenarios.py are the columns of the table
               and come first. A function raises `AssertionError` if it fails, and `Skip(why)` if
               the client does not support the scenario.
    FEW        optional, for a client that is closely related to another one: the scenarios to run
               without `--full`

Each scenario gets its own `Lab`: a home, a git project, a data directory, a clean environment, and
no network except loopback.
"""
import argparse
import datetime
import fcntl
import importlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
# The shared scenarios, which are defined in scenarios.py.
COLUMNS = ("whole turn", "undo inside", "user edit", "interrupted", "resumed", "forked", "parallel",
           "told", "beyond", "failure", "by model", "uninstalled")
# Time limit of a program in seconds. Large, because the machine may be busy.
PATIENCE = 600
INSTALL_PATIENCE = 600


class Skip(Exception):
    """The client, or one of its scenarios, cannot run here. The message is the reason."""


# ------------------------------------------------------------------------------------- installing


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "ctrlz-agents"


def npm_install(package, version, program):
    """Installs a program from npm at exactly this version and returns its path, or raises `Skip`."""
    name = package.rsplit("/", 1)[-1]
    place = cache_dir() / f"{name}-{version}"
    found = place / "node_modules" / ".bin" / program
    place.mkdir(parents=True, exist_ok=True)
    with open(place / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found.exists():
            return found
        if shutil.which("npm") is None:
            raise Skip("npm is missing")
        words = ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund",
                 "--ignore-scripts", f"{package}@{version}"]
        try:
            done = subprocess.run(words, cwd=place, stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, timeout=INSTALL_PATIENCE)
        except subprocess.TimeoutExpired:
            raise Skip(f"npm install {package}@{version} took too long") from None
        if done.returncode != 0 or not found.exists():
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Skip(f"npm install {package}@{version}: {last}")
        return found


def node(least=22):
    """Returns a directory for PATH with `node` at this version or newer."""
    present = shutil.which("node")
    if present:
        told = subprocess.run([present, "--version"], capture_output=True, text=True).stdout
        if int(re.match(r"v(\d+)", told).group(1)) >= least:
            return Path(present).parent
    # Unlike the package `node`, this one contains the program and needs no install script.
    return npm_install(f"node-{npm_platform()}", "24.9.0", "node").parent


def npm_platform():
    """Returns the name that packages with native programs use for this machine."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{sys.platform}-{machine}"


# ------------------------------------------------------------------------------------ the model


class Model:
    """A `fake_model.py` process on a free port that logs complete requests."""

    def __init__(self, top):
        self.log = top / "model.jsonl"
        self.log.touch()
        portfile = top / "port"
        words = [sys.executable, str(TESTS / "fake_model.py"), "--port", "0", "--full",
                 "--log", str(self.log), "--portfile", str(portfile)]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: portfile.exists() and portfile.read_text().strip(), "the model to listen")
        self.url = f"http://127.0.0.1:{portfile.read_text().strip()}"

    def stop(self):
        self.process.kill()
        self.process.wait()

    def requests(self):
        """Returns the requests so far, oldest first."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def was_told(self, text):
        """Whether a client sent this text to the model."""
        return any(text in json.dumps(request.get("body")) for request in self.requests())


def script(*steps):
    """Returns a prompt that makes the model execute these steps; see fake_model.py."""
    return "FAKE: " + json.dumps(list(steps))


def wait_for(condition, what, patience=60):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"timed out waiting for {what}")


# -------------------------------------------------------------------------------------- the lab


class Ran:
    """Result of a program that has ended."""

    def __init__(self, words, code, out, err):
        self.words, self.code, self.out, self.err = words, code, out, err

    def __repr__(self):
        words = " ".join(str(word)[:200] for word in self.words)
        return f"{words}\nexit {self.code}\n--- stdout\n{tail(self.out)}\n--- stderr\n{tail(self.err)}"


def tail(text, lines=60):
    return "\n".join(text.splitlines()[-lines:])


class Lab:
    """The home, project, data directory and model of one scenario."""

    def __init__(self, ctrlz, top):
        self.ctrlz_bin, self.top = ctrlz, top
        self.home, self.project, self.data = top / "home", top / "project", top / "data"
        self.path = []           # directories to prepend to PATH
        self.variables = {}      # environment variables of the client
        self.started = []
        for place in (self.home, self.project, self.top / "tmp"):
            place.mkdir()
        self.model = Model(top)
        self.begin_project()

    def begin_project(self):
        self.write("keep.txt", "kept\n")
        self.write("edit.txt", "one\ntwo\nthree\nfour\nfive\n")
        self.write("gone.txt", "to be deleted\n")
        self.write(".gitignore", "*.secret\nbuild/\n")
        for words in (["init", "-q", "-b", "main"], ["add", "."],
                      ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "start"]):
            self.must(["git", *words])
        # Not committed, so that only a snapshot contains it.
        self.write("notes.txt", "not committed\n")

    def close(self):
        for process in self.started:
            if process.poll() is None:
                kill_group(process, signal.SIGKILL)
                process.wait()
        for number in self.left_over():
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.model.stop()

    def left_over(self):
        """Yields the remaining processes of this lab, which are recognized by its HOME."""
        mark = f"HOME={self.home}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in entry.read_bytes().split(b"\0"):
                    yield int(entry.parent.name)
            except (OSError, ValueError):
                continue        # the process has exited, or belongs to another user

    def environment(self, more=()):
        path = [str(self.ctrlz_bin.parent), *map(str, self.path), "/usr/local/bin", "/usr/bin", "/bin"]
        if shutil.which("git"):
            path.append(str(Path(shutil.which("git")).parent))
        return {
            "PATH": ":".join(path), "HOME": str(self.home), "PWD": str(self.project),
            "TMPDIR": str(self.top / "tmp"), "LANG": "C.UTF-8", "TERM": "dumb", "SHELL": "/bin/bash",
            "CTRLZ_DATA_DIR": str(self.data), "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            # Nothing listens on this port, so requests to other hosts fail immediately.
            "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
            **self.variables, **dict(more),
        }

    def start(self, words, stdin="", cwd=None, env=()):
        """Starts a program in its own process group."""
        process = subprocess.Popen(
            list(map(str, words)), cwd=cwd or self.project, env=self.environment(env),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True)
        process.words = words
        self.started.append(process)
        if stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
            process.stdin = None
        return process

    def finish(self, process, patience=PATIENCE):
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            kill_group(process, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"hangs: {Ran(process.words, None, out, err)}") from None
        return Ran(process.words, process.returncode, out, err)

    def run(self, words, stdin="", cwd=None, env=(), patience=PATIENCE):
        return self.finish(self.start(words, stdin, cwd, env), patience)

    def must(self, words, stdin="", cwd=None, env=()):
        """Runs a program that must succeed, and returns its output."""
        ran = self.run(words, stdin, cwd, env)
        assert ran.code == 0, repr(ran)
        return ran.out

    def ctrlz(self, *words):
        return self.must([self.ctrlz_bin, *words])

    def ctrlz_json(self, *words):
        return json.loads(self.ctrlz("--json", *words))

    def write(self, path, text):
        path = self.project / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, path):
        path = self.project / path
        return path.read_text() if path.exists() else None

    def tree(self):
        """Returns the content of every file of the project outside `.git`, by path."""
        return files_below(self.project, leave_out=(".git",))

    def steps(self):
        """Returns the recorded steps, oldest first."""
        entries = self.ctrlz_json("log")["operations"]
        return [step for entry in reversed(entries) for step in entry.get("steps", [])]

    def interrupt(self, process):
        """Sends SIGINT to the whole process group, like Ctrl-C in a terminal.

        Repeats it, because a runtime may ignore the signal while it waits for a child."""
        for _ in range(12):
            kill_group(process, signal.SIGINT)
            try:
                process.wait(timeout=5)
                return
            except subprocess.TimeoutExpired:
                pass


def kill_group(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def files_below(top, leave_out=()):
    found = {}
    for at, dirs, names in os.walk(top):
        dirs[:] = [name for name in dirs if name not in leave_out]
        for name in names:
            path = Path(at) / name
            key = str(path.relative_to(top))
            found[key] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


# ------------------------------------------------------------------------------------ the table


class Outcome:
    def __init__(self, sign, why="", seconds=0.0):
        self.sign, self.why, self.seconds = sign, why, seconds


def try_scenario(ctrlz, function, keep):
    top = Path(tempfile.mkdtemp(prefix="ctrlz-agents-")).resolve()
    begun = time.monotonic()
    lab = None
    try:
        lab = Lab(ctrlz, top)
        function(lab)
        outcome = Outcome("ok")
    except Skip as why:
        outcome = Outcome("-", str(why))
    except Exception as error:  # reported in the table; the other scenarios still run
        why = str(error) if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
        outcome = Outcome("FAILED", why + traced(error) + state_of(lab))
    finally:
        if lab:
            lab.close()
        if keep:
            print(f"kept: {top}", file=sys.stderr)
        else:
            shutil.rmtree(top, ignore_errors=True)
    outcome.seconds = time.monotonic() - begun
    return outcome


def traced(error):
    last = traceback.extract_tb(error.__traceback__)
    own = [f"{Path(frame.filename).name}:{frame.lineno} {frame.line}" for frame in last]
    return "\n--- at\n" + "\n".join(own)


def state_of(lab):
    if lab is None:
        return ""
    said = []
    for words in (["log"], ["status"]):
        try:
            ran = lab.run([lab.ctrlz_bin, *words], patience=30)
            said.append(f"--- ctrlz {words[0]}\n{tail(ran.out + ran.err, 30)}")
        except Exception as error:
            said.append(f"--- ctrlz {words[0]}: {error}")
    return "\n" + "\n".join(said)


def try_client(client, ctrlz, args):
    """Returns the outcome of every scenario, or the reason why the client is skipped."""
    try:
        client.prepare()
    except Skip as why:
        return str(why)
    row = {}
    for name, function in client.SCENARIOS.items():
        if args.scenario and name not in args.scenario:
            continue
        if not (args.full or args.scenario) and name not in getattr(client, "FEW", client.SCENARIOS):
            row[name] = Outcome("", "only with --full")
            continue
        row[name] = outcome = try_scenario(ctrlz, function, args.keep)
        print(f"{client.NAME:<14} {name:<18} {outcome.sign:<7} {outcome.seconds:5.1f} s",
              file=sys.stderr, flush=True)
        if outcome.sign == "FAILED":
            print("    " + outcome.why.replace("\n", "\n    "), file=sys.stderr, flush=True)
    return row


def columns_of(rows):
    """Returns the shared scenarios that were run, in the order of the table."""
    return [name for name in COLUMNS if any(name in row for row in rows.values() if isinstance(row, dict))]


def own_cell(row, columns):
    """Returns the number of the client's own scenarios that passed."""
    own = [outcome for name, outcome in row.items() if name not in columns and outcome.sign]
    good = sum(outcome.sign == "ok" for outcome in own)
    if not own:
        return ""
    return f"{good} ok" if good == len(own) else f"{good} of {len(own)} ok"


def table(clients, rows, columns):
    """Returns the table as lists of cells, and the notes below it."""
    lines, notes = [["client", "version", *columns, "its own"]], []
    for client in clients:
        row = rows[client.NAME]
        if not isinstance(row, dict):
            lines.append([client.NAME, client.VERSION, *["skipped" for _ in columns], "skipped"])
            notes.append(f"{client.NAME} is skipped: {row}")
            continue
        cells = [row[name].sign if name in row else "" for name in columns]
        lines.append([client.NAME, client.VERSION, *cells, own_cell(row, columns)])
        for name, outcome in row.items():
            if outcome.sign == "-":
                notes.append(f"{client.NAME}, {name}: {outcome.why}")
        left = [name for name, outcome in row.items() if outcome.sign == ""]
        if left:
            notes.append(f"{client.NAME}: {len(left)} scenarios only with --full")
        own = [name for name, outcome in row.items() if name not in columns and outcome.sign]
        if own:
            notes.append(f"{client.NAME}, its own: {', '.join(own)}")
    return lines, notes


def print_table(lines, notes, words):
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths)).rstrip())
    for note in notes:
        print(f"- {note}")
    print(words)


PAGE = ROOT / "docs" / "agents.md"
BEGIN, END = "<!-- written by integrations/check --full --docs -->", "<!-- to here -->"


WRITING = threading.Lock()


def write_docs(lines, notes):
    """Updates the table in docs/agents.md. Rows of other clients stay unchanged."""
    head, rest = PAGE.read_text().split(BEGIN)
    last, tail = rest.split(END)
    today = datetime.date.today().isoformat()
    made = {line[0]: [*line, today] for line in lines[1:]}
    old = [[cell.strip() for cell in line.strip("|").split("|")] for line in last.splitlines() if line[:1] == "|"]
    kept = {line[0]: line for line in old[2:] if line[0] not in made}
    notes += [line[2:] for line in last.splitlines() if re.match(r"- [^,: ]+", line)
              and re.match(r"- ([^,: ]+)", line).group(1) in kept]
    show = lambda line: "| " + " | ".join(cell or " " for cell in line) + " |"
    page = [show([*lines[0], "tried"]), "|" + "---|" * (len(lines[0]) + 1)]
    page += [show(line) for _, line in sorted((kept | made).items())]
    page += ["", *(f"- {note}" for note in sorted(notes))]
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(page) + f"\n{END}{tail}")


def try_and_write(client, ctrlz, args):
    """Runs a client and writes its row immediately, so that an aborted run keeps the finished rows."""
    row = try_client(client, ctrlz, args)
    if args.docs:
        with WRITING:
            write_docs(*table([client], {client.NAME: row}, COLUMNS))
    return row


def find_ctrlz():
    given = os.environ.get("CTRLZ_BIN")
    path = Path(given) if given else ROOT / "target" / "debug" / "ctrlz"
    if not path.exists():
        sys.exit(f"{path} does not exist: build it with `cargo build -p ctrlz`, or set CTRLZ_BIN")
    return path.resolve()


def load_clients(wanted):
    names = sorted(path.stem for path in TESTS.glob("client_*.py"))
    clients = [importlib.import_module(name) for name in names]
    known = [client.NAME for client in clients]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"unknown client: {', '.join(unknown)}; known are {', '.join(known)}")
    return [client for client in clients if not wanted or client.NAME in wanted]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("client", nargs="*")
    parser.add_argument("-s", "--scenario", action="append", default=[])
    parser.add_argument("-k", "--keep", action="store_true", help="keep the directories of the scenarios")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="number of clients to run concurrently")
    parser.add_argument("--full", action="store_true", help="run every scenario of every client")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/agents.md")
    args = parser.parse_args()
    if args.docs and (args.scenario or not args.full):
        parser.error("--docs requires --full and excludes --scenario")
    ctrlz, clients = find_ctrlz(), load_clients(args.client)
    begun = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        one = lambda client: try_and_write(client, ctrlz, args)
        # The clients with the most scenarios start first, which shortens the total time.
        longest = sorted(clients, key=lambda client: -len(getattr(client, "FEW", client.SCENARIOS)))
        rows = dict(zip([client.NAME for client in longest], pool.map(one, longest)))
    today = datetime.date.today().isoformat()
    words = (f"{today}, in {time.monotonic() - begun:.0f} s with {cpu_seconds():.0f} s of CPU time on "
             f"{os.cpu_count()} cores (load {os.getloadavg()[2]:.1f})")
    print_table(*table(clients, rows, columns_of(rows)), words)
    outcomes = [cell for row in rows.values() if isinstance(row, dict) for cell in row.values()]
    return 1 if any(cell.sign == "FAILED" for cell in outcomes) else 0
