import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { BinaryNotFoundError, ClosedError, Ctrlz, ProtocolError, RpcError, ServerEndedError, TimeoutError } from "../src/index.js";
import { CLIENTS, Lab, badLab, hermetic, isAlive, until } from "./lab.js";

test("a program that is not there is named, with what to do", async (t) => {
  const { client, dir } = new Lab(t, { binary: "/nowhere/ctrlz" });
  await assert.rejects(client.call("track", { dir }), (error) => {
    assert.ok(error instanceof BinaryNotFoundError);
    assert.match(error.message, /\/nowhere\/ctrlz.*CTRLZ_BINARY/);
    return true;
  });
});

test("a program that is something else is refused", async (t) => {
  for (const binary of ["/bin/false", "/bin/echo"]) {
    const { client, dir } = new Lab(t, { binary });
    await assert.rejects(client.call("track", { dir }), ProtocolError, binary);
  }
});

test("another protocol is refused", async (t) => {
  const { client } = badLab(t, {}, { BAD_PROTOCOL: "99" });
  await assert.rejects(client.call("track", {}), /version 99/);
});

test("a call that changes something is not repeated when the server dies", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("restore", { dir: "die", hash: "" }), (error) => {
    assert.ok(error instanceof ServerEndedError);
    assert.deepEqual([error.method, error.status, error.outcome], ["restore", "SIGKILL", "unknown"]);
    assert.match(error.stderr, /the disk caught fire/);
    return true;
  });
  await client.call("restore", { dir: "fine", hash: "" });
});

test("a call that only reads is made once more, and only once", async (t) => {
  const lab: Lab = new Lab(t);
  const marker = join(lab.home, "marker");
  const { client } = badLab(t, {}, { BAD_MARKER: marker });
  await client.call("status", { dir: "die-once" });
  assert.ok(existsSync(marker), "it did die");
  await assert.rejects(client.call("status", { dir: "die" }), ServerEndedError);
  await assert.rejects(client.call("track", { dir: "die" }), ServerEndedError);
});

test("every call in flight learns that the server died", async (t) => {
  const { client } = badLab(t);
  await client.call("track", { dir: "fine" });
  const calls = [..."abcdefgh"].map(() => client.call("track", { dir: "hang" }));
  calls.push(client.call("track", { dir: "die" }));
  const outcomes = await Promise.allSettled(calls);
  assert.ok(outcomes.every((it) => it.status === "rejected" && it.reason instanceof ServerEndedError));
});

test("nonsense instead of an answer ends the server, not the program", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("track", { dir: "garbage" }), /which is no message/);
  await client.call("track", { dir: "fine" });
});

test("a killed server is replaced by the next call", async (t) => {
  const lab = new Lab(t);
  writeFileSync(lab.path("a"), "a");
  const snapshot = lab.snapshot();
  const hash = await snapshot.track();
  const { pid } = await lab.client.server();
  process.kill(pid, "SIGKILL");
  await until("the server is gone and reaped", () => !isAlive(pid));
  assert.equal(await snapshot.track(), hash);
  assert.notEqual((await lab.client.server()).pid, pid);
});

// Bun says of a write that failed that it worked, so there the outcome is unknown.
const whereWritesFail = "bun" in process.versions ? () => {} : test;

whereWritesFail("a call that the dead server cannot have read is made again", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  const hash = (await snapshot.track())!;
  for (let turn = 0; turn < 10; turn++) {
    const { pid } = await lab.client.server();
    process.kill(pid, "SIGKILL");
    // Without a pause: this program has not noticed yet.
    while (!isDead(pid));
    assert.ok(await snapshot.restore(hash));
  }
});

/** Whether all threads have ended: as long as one has not, the pipes are open. */
function isDead(pid: number): boolean {
  if (!existsSync(`/proc/${pid}`)) return true;
  const alone = readdirSync(`/proc/${pid}/task`).length === 1;
  return alone && readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
}

test("a call that takes too long is cancelled, and says that nothing was done", async (t) => {
  const { client } = badLab(t, { timeoutMs: 100 });
  await assert.rejects(client.call("track", { dir: "hang" }), (error) => {
    assert.ok(error instanceof TimeoutError);
    assert.deepEqual([error.method, error.outcome], ["track", "not done"]);
    return true;
  });
});

test("a call that was done in the last moment gives its result", async (t) => {
  const { client } = badLab(t, { timeoutMs: 100 });
  assert.ok(await client.call("track", { dir: "late" }));
});

test("a call that nobody answers is of unknown outcome, and the server goes on", async (t) => {
  const { client } = badLab(t, { timeoutMs: 50, graceMs: 200 });
  const { pid } = await client.server();
  await assert.rejects(client.call("track", { dir: "deaf" }), { name: "TimeoutError", outcome: "unknown" });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal((await client.server()).pid, pid, "it answered when asked who it is");
});

test("a server that is frozen is replaced", async (t) => {
  const { client } = badLab(t, { timeoutMs: 50, graceMs: 200 });
  const { pid } = await client.server();
  await assert.rejects(client.call("track", { dir: "stop" }), TimeoutError);
  await until("the frozen server is gone", () => !isAlive(pid));
  await client.call("track", { dir: "fine" }, { timeoutMs: 10_000 });
});

test("a signal aborts a call, before and after it was sent", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("track", {}, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const controller = new AbortController();
  const call = client.call("track", { dir: "hang" }, { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await assert.rejects(call, /enough/);
});

test("many calls at once share one server", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  writeFileSync(lab.path("a"), "a");
  const hash = (await snapshot.track())!;
  const { pid } = await lab.client.server();
  const calls = Array.from({ length: 200 }, (_, at) => at % 4 ? snapshot.fileExistsAt(hash, at % 2 ? "a" : "b") : snapshot.track());
  const answers = await Promise.all(calls);
  answers.forEach((answer, at) => assert.equal(answer, at % 4 ? at % 2 === 1 : hash));
  assert.equal((await lab.client.server()).pid, pid);
});

test("the first calls of all start one server", async (t) => {
  const lab = new Lab(t);
  const servers = await Promise.all(Array.from({ length: 20 }, () => lab.client.server()));
  assert.equal(new Set(servers.map((server) => server.pid)).size, 1);
});

test("closing answers what was asked, leaves no process, and is final", async (t) => {
  const lab = new Lab(t);
  writeFileSync(lab.path("a"), "a");
  const { pid } = await lab.client.server();
  const last = lab.snapshot().track();
  await Promise.resolve();
  await new Promise((resolve) => setImmediate(resolve));
  await lab.client.close();
  assert.match((await last) ?? "", /^[0-9a-f]{40}$/);
  assert.ok(!isAlive(pid));
  await assert.rejects(lab.snapshot().track(), ClosedError);
  await lab.client.close();
});

test("a frozen server does not keep close from ending", async (t) => {
  const lab = badLab(t, { graceMs: 100 });
  const { pid } = await lab.client.server();
  const call = lab.client.call("track", { dir: "stop" }).catch((error: unknown) => error);
  await until("it is frozen", () => isFrozen(pid));
  await lab.client.close();
  assert.ok((await call) instanceof ServerEndedError);
  assert.ok(!isAlive(pid));
});

function isFrozen(pid: number): boolean {
  return readFileSync(`/proc/${pid}/stat`, "utf8").includes(") T ");
}

test("a program that forgets to close ends all the same, and its server with it", async (t) => {
  const lab = new Lab(t);
  const script = `
    import { Ctrlz } from ${JSON.stringify(join(CLIENTS, "typescript/dist/src/index.js"))};
    console.log((await Ctrlz.shared().server()).pid);`;
  const runtime = promisify(execFile)(process.execPath, evaluate(script), { env: hermetic(lab.home), timeout: 20_000 });
  const pid = Number((await runtime).stdout);
  assert.ok(pid > 0);
  await until("its server is gone", () => !isAlive(pid));
});

function evaluate(script: string): string[] {
  return "bun" in process.versions ? ["-e", script] : ["--input-type=module", "-e", script];
}

test("what is too large for one line is refused before it is sent", async (t) => {
  const { client } = badLab(t);
  const call = client.call("track", { paths: ["x".repeat(65 * 2 ** 20)] });
  await assert.rejects(call, (error) => error instanceof RpcError && error.kind === "too_large");
  await client.call("track", { dir: "fine" });
});

test("progress is told while a call runs", async (t) => {
  const { client } = badLab(t);
  const seen: number[] = [];
  await client.call("track", { dir: "progress" }, { onProgress: ({ files }) => seen.push(files) });
  assert.deepEqual(seen, [3]);
});

test("a client of one's own and the shared one are two", async (t) => {
  const lab = new Lab(t);
  assert.notEqual(Ctrlz.shared(), lab.client);
  assert.equal(Ctrlz.shared(), Ctrlz.shared());
});
