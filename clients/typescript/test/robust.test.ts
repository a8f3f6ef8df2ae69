import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { BinaryNotFoundError, ClosedError, Ctrlz, ProtocolError, RpcError, ServerEndedError, TimeoutError } from "../src/index.js";
import { CLIENTS, Lab, badLab, hermetic, isAlive, until } from "./lab.js";

test("a missing program is reported with its path and a hint", async (t) => {
  const { client, dir } = new Lab(t, { binary: "/nowhere/ctrlz" });
  await assert.rejects(client.call("track", { dir }), (error) => {
    assert.ok(error instanceof BinaryNotFoundError);
    assert.match(error.message, /\/nowhere\/ctrlz.*CTRLZ_BINARY/);
    return true;
  });
});

test("a program that is not ctrlz is refused", async (t) => {
  for (const binary of ["/bin/false", "/bin/echo"]) {
    const { client, dir } = new Lab(t, { binary });
    await assert.rejects(client.call("track", { dir }), ProtocolError, binary);
  }
});

test("another protocol version is refused", async (t) => {
  const { client } = badLab(t, {}, { BAD_PROTOCOL: "99" });
  await assert.rejects(client.call("track", {}), /version 99/);
});

test("a call that writes is not repeated when the server dies", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("restore", { dir: "die", hash: "" }), (error) => {
    assert.ok(error instanceof ServerEndedError);
    assert.deepEqual([error.method, error.status, error.outcome], ["restore", "SIGKILL", "unknown"]);
    assert.match(error.stderr, /the disk caught fire/);
    return true;
  });
  await client.call("restore", { dir: "fine", hash: "" });
});

test("a call that only reads is repeated exactly once", async (t) => {
  const lab: Lab = new Lab(t);
  const marker = join(lab.home, "marker");
  const { client } = badLab(t, {}, { BAD_MARKER: marker });
  await client.call("status", { dir: "die-once" });
  assert.ok(existsSync(marker), "the server did not die");
  await assert.rejects(client.call("status", { dir: "die" }), ServerEndedError);
  await assert.rejects(client.call("track", { dir: "die" }), ServerEndedError);
});

test("all pending calls fail when the server dies", async (t) => {
  const { client } = badLab(t);
  await client.call("track", { dir: "fine" });
  const calls = [..."abcdefgh"].map(() => client.call("track", { dir: "hang" }));
  calls.push(client.call("track", { dir: "die" }));
  const outcomes = await Promise.allSettled(calls);
  assert.ok(outcomes.every((it) => it.status === "rejected" && it.reason instanceof ServerEndedError));
});

test("an invalid answer kills the server but not the program", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("track", { dir: "garbage" }), /which is not a message/);
  await client.call("track", { dir: "fine" });
});

test("the next call replaces a killed server", async (t) => {
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

// Bun reports success for a failed write, so the outcome is unknown there.
const whereWritesFail = "bun" in process.versions ? () => {} : test;

whereWritesFail("a call that a dead server cannot have read is repeated", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  const hash = (await snapshot.track())!;
  for (let turn = 0; turn < 10; turn++) {
    const { pid } = await lab.client.server();
    process.kill(pid, "SIGKILL");
    // Busy-waits, so that the event loop has not processed the exit yet.
    while (!isDead(pid));
    assert.ok(await snapshot.restore(hash));
  }
});

/** Whether all threads have ended. The pipes are open until then. */
function isDead(pid: number): boolean {
  if (!existsSync(`/proc/${pid}`)) return true;
  const alone = readdirSync(`/proc/${pid}/task`).length === 1;
  return alone && readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
}

test("a timeout cancels the call and reports that it was not done", async (t) => {
  const { client } = badLab(t, { timeoutMs: 100 });
  await assert.rejects(client.call("track", { dir: "hang" }), (error) => {
    assert.ok(error instanceof TimeoutError);
    assert.deepEqual([error.method, error.outcome], ["track", "not done"]);
    return true;
  });
});

test("a call that finishes despite its cancellation returns its result", async (t) => {
  const { client } = badLab(t, { timeoutMs: 100 });
  assert.ok(await client.call("track", { dir: "late" }));
});

test("an unanswered call has an unknown outcome, and the server keeps running", async (t) => {
  const { client } = badLab(t, { timeoutMs: 50, graceMs: 200 });
  const { pid } = await client.server();
  await assert.rejects(client.call("track", { dir: "deaf" }), { name: "TimeoutError", outcome: "unknown" });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal((await client.server()).pid, pid, "a server that answers initialize must not be killed");
});

test("a frozen server is replaced", async (t) => {
  const { client } = badLab(t, { timeoutMs: 50, graceMs: 200 });
  const { pid } = await client.server();
  await assert.rejects(client.call("track", { dir: "stop" }), TimeoutError);
  await until("the frozen server is gone", () => !isAlive(pid));
  await client.call("track", { dir: "fine" }, { timeoutMs: 10_000 });
});

test("a signal aborts a call before and after it is sent", async (t) => {
  const { client } = badLab(t);
  await assert.rejects(client.call("track", {}, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const controller = new AbortController();
  const call = client.call("track", { dir: "hang" }, { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await assert.rejects(call, /enough/);
});

test("concurrent calls share one server", async (t) => {
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

test("concurrent first calls start one server", async (t) => {
  const lab = new Lab(t);
  const servers = await Promise.all(Array.from({ length: 20 }, () => lab.client.server()));
  assert.equal(new Set(servers.map((server) => server.pid)).size, 1);
});

test("concurrent calls after a crash start one server", async (t) => {
  const lab = new Lab(t);
  const { pid } = await lab.client.server();
  process.kill(pid, "SIGKILL");
  await until("the server is gone", () => !isAlive(pid));
  const servers = await Promise.all(Array.from({ length: 20 }, () => lab.client.server()));
  assert.equal(new Set(servers.map((server) => server.pid)).size, 1);
});

test("close waits for pending calls, ends the server and is final", async (t) => {
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

test("close kills a frozen server", async (t) => {
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

test("a program without close exits, and its server with it", async (t) => {
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

test("parameters that exceed the line limit are refused before they are sent", async (t) => {
  const { client } = badLab(t);
  const call = client.call("track", { paths: ["x".repeat(65 * 2 ** 20)] });
  await assert.rejects(call, (error) => error instanceof RpcError && error.kind === "too_large");
  await client.call("track", { dir: "fine" });
});

test("onProgress receives progress while a call runs", async (t) => {
  const { client } = badLab(t);
  const seen: number[] = [];
  await client.call("track", { dir: "progress" }, { onProgress: ({ files }) => seen.push(files) });
  assert.deepEqual(seen, [3]);
});

test("the shared client is distinct from other clients", async (t) => {
  const lab = new Lab(t);
  assert.notEqual(Ctrlz.shared(), lab.client);
  assert.equal(Ctrlz.shared(), Ctrlz.shared());
});
