import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { Session } from "../src/index.js";
import { Lab, isAlive, until } from "./lab.js";

test("undo reverses a turn and redo reverses the undo", async (t) => {
  const lab = new Lab(t);
  const session = lab.session();
  writeFileSync(lab.path("a"), "before");
  const ended = await session.step({ message: "m1", tool: "bash" }, async (step) => {
    writeFileSync(lab.path("a"), "after");
    return step;
  });
  assert.deepEqual((await ended.end())?.files, ["a"]);

  assert.deepEqual((await session.planUndo()).done, [{ action: "overwrite", path: "a" }]);
  assert.equal(readFileSync(lab.path("a"), "utf8"), "after");
  assert.deepEqual((await session.undo()).done, [{ action: "overwrite", path: "a" }]);
  assert.equal(readFileSync(lab.path("a"), "utf8"), "before");
  await session.redo();
  assert.equal(readFileSync(lab.path("a"), "utf8"), "after");
});

test("a step ends even if its work throws", async (t) => {
  const lab = new Lab(t);
  const session = lab.session();
  const work = () => {
    writeFileSync(lab.path("half"), "done");
    throw new Error("the tool failed");
  };
  await assert.rejects(session.step({ message: "m1" }, work), /the tool failed/);
  assert.equal((await session.steps()).length, 1);
  await session.undo();
  assert.ok(!existsSync(lab.path("half")));
});

test("a step survives the death of its server", async (t) => {
  const lab = new Lab(t);
  const session = lab.session();
  writeFileSync(lab.path("a"), "before");
  const step = await session.begin({ message: "m1" });
  const { pid } = await lab.client.server();
  process.kill(pid, "SIGKILL");
  await until("the server is gone", () => !isAlive(pid));
  writeFileSync(lab.path("a"), "after");
  assert.deepEqual((await step.end())?.files, ["a"]);
  assert.deepEqual((await session.steps()).map((record) => record.inferred), [true]);
  await session.undo();
  assert.equal(readFileSync(lab.path("a"), "utf8"), "before");
});

test("a revert to a message can be reversed or committed", async (t) => {
  const lab = new Lab(t);
  const session = lab.session();
  for (const message of ["m1", "m2", "m3"]) {
    await session.step({ message }, () => writeFileSync(lab.path(message), message));
  }
  await session.revert("m2");
  assert.deepEqual((await session.revertState())?.boundary, { message: "m2", part: null });
  assert.deepEqual([existsSync(lab.path("m1")), existsSync(lab.path("m2"))], [true, false]);
  await session.unrevert();
  assert.equal(await session.revertState(), undefined);
  assert.ok(existsSync(lab.path("m3")));

  await session.revert("m3");
  assert.deepEqual((await session.commitRevert()).messages, ["m3"]);
  assert.deepEqual((await session.diff()).map((file) => file.file), ["m1", "m2"]);
  assert.equal((await session.timeline()).operations[0]?.kind !== undefined, true);
});

test("a session can be forked, checkpointed and released", async (t) => {
  const lab = new Lab(t);
  const session = lab.session();
  await session.step({ message: "m1" }, () => writeFileSync(lab.path("a"), "a"));
  assert.equal((await session.checkpoint("green"))?.label, "green");
  assert.equal((await session.fork({ id: "s2" })).session, "s2");
  await session.release();
});

test("steps are no-ops if snapshots are disabled", async (t) => {
  const lab = new Lab(t);
  const session = new Session({ id: "s", dir: lab.dir, client: lab.client, options: { enabled: false } });
  const step = await session.begin();
  assert.deepEqual([step.id, await step.end()], ["", undefined]);
});
