#!/usr/bin/env python3
"""What one `ctrlz push` costs: milliseconds, and bytes on the wire in both directions.

Usage: docs/fleet_cost.py PATH-TO-CTRLZ [FILES] [STEPS]

Starts `git daemon` on loopback behind a proxy that counts bytes, makes FILES files, and then
pushes after each of STEPS steps that change one of them.
"""
import os, socket, statistics, subprocess, sys, tempfile, threading, time

ctrlz = os.path.abspath(sys.argv[1])
files = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 20
top = tempfile.mkdtemp()
work, base = top + "/home/project", top + "/server"
env = {"PATH": os.environ["PATH"], "HOME": top + "/home", "GIT_CONFIG_GLOBAL": "/dev/null",
       "CTRLZ_DATA_DIR": top + "/data"}
for n in range(files):
    path = f"{work}/dir{n % 40}/file{n}.txt"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(f"file {n}\n" * 40)
subprocess.run(["git", "init", "-q", "--bare", base + "/p.git"], check=True, env=env)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


port = free_port()
daemon = subprocess.Popen(
    ["git", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack",
     "--listen=127.0.0.1", f"--port={port}", f"--base-path={base}", base], env=env)
carried = 0


def pump(source, target):
    global carried
    while data := source.recv(65536):
        carried += len(data)
        target.sendall(data)
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(listener):
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, server), (server, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
threading.Thread(target=serve, args=(listener,), daemon=True).start()
address = f"git://127.0.0.1:{listener.getsockname()[1]}/p.git"
time.sleep(1)


def run(*words):
    global carried
    carried, start = 0, time.monotonic()
    subprocess.run([ctrlz, *words], check=True, env=env, cwd=work, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    took = (time.monotonic() - start) * 1000
    time.sleep(0.05)
    return took, carried


try:
    run("track")
    took, sent = run("push", address)
    print(f"first push, {files} files: {took:.0f} ms, {sent} bytes")
    costs = []
    for n in range(steps):
        run("run", "--", "/bin/sh", "-c", f"echo change {n} >> dir{n % 40}/file{n}.txt")
        costs.append(run("push", address))
    times, sizes = zip(*costs)
    print(f"each of {steps} pushes of one step: median {statistics.median(times):.0f} ms, "
          f"{statistics.median(sizes):.0f} bytes")
    took, sent = run("push", address)
    print(f"push with nothing new: {took:.0f} ms, {sent} bytes")
finally:
    daemon.terminate()
