import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { RpcError, pathBytes, pathFromBytes } from "../src/index.js";
import { Lab } from "./lab.js";

test("revert restores the files of a patch", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  writeFileSync(lab.path("a.txt"), "one\n");
  const hash = await snapshot.track();
  assert.match(hash ?? "", /^[0-9a-f]{40}$/);

  writeFileSync(lab.path("a.txt"), "two\n");
  writeFileSync(lab.path("new.txt"), "new\n");
  const patch = await snapshot.patch(hash!);
  assert.deepEqual(patch, { hash, files: [lab.path("a.txt"), lab.path("new.txt")] });
  assert.match(await snapshot.diff(hash!), /^-one\n\+two\n/m);

  await snapshot.revert([patch]);
  assert.equal(readFileSync(lab.path("a.txt"), "utf8"), "one\n");
  assert.ok(!existsSync(lab.path("new.txt")));
});

test("restore keeps files created since, unless it is exact", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  for (const name of ["a", "b", "c", "d"]) writeFileSync(lab.path(name), name);
  const hash = (await snapshot.track())!;
  writeFileSync(lab.path("a"), "changed");
  writeFileSync(lab.path("new"), "new");

  await snapshot.restore(hash);
  assert.equal(readFileSync(lab.path("a"), "utf8"), "a");
  assert.ok(existsSync(lab.path("new")));
  const report = await snapshot.restore(hash, { exact: true });
  assert.deepEqual(report?.done, [{ action: "remove", path: "new" }]);
  assert.ok(!existsSync(lab.path("new")));
});

test("diffFull returns both texts and line counts of all files", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  writeFileSync(lab.path("a.txt"), "one\ntwo\n");
  const from = (await snapshot.track())!;
  writeFileSync(lab.path("a.txt"), "one\n2\n3\n");
  writeFileSync(lab.path("b.bin"), Buffer.of(0, 1, 2));
  const to = (await snapshot.track())!;

  const [text, binary, ...rest] = await snapshot.diffFull(from, to);
  assert.deepEqual(rest, []);
  assert.deepEqual(
    [text?.file, text?.before, text?.after, text?.additions, text?.deletions, text?.status],
    ["a.txt", "one\ntwo\n", "one\n2\n3\n", 2, 1, "modified"],
  );
  assert.deepEqual([binary?.file, binary?.binary, binary?.additions], ["b.bin", true, 0]);
  assert.deepEqual(await snapshot.changes(from, to), [
    { path: "a.txt", status: "modified" },
    { path: "b.bin", status: "added" },
  ]);
});

test("diffFull reads all pages", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  const from = (await snapshot.track())!;
  // Two of these do not fit into one answer, which has 16 MiB.
  const text = `${"x".repeat(1023)}\n`.repeat(9 << 10);
  for (const name of ["a", "b", "c"]) writeFileSync(lab.path(name), text);
  const to = (await snapshot.track())!;
  const files = await snapshot.diffFull(from, to);
  assert.deepEqual(files.map((file) => [file.file, file.after === text]), [["a", true], ["b", true], ["c", true]]);
});

test("files of a snapshot can be read, listed and tested for existence", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  mkdirSync(lab.path("src"));
  writeFileSync(lab.path("src/main.rs"), "fn main() {}\n");
  writeFileSync(lab.path("blob"), Buffer.of(255, 0, 254));
  const hash = (await snapshot.track())!;
  assert.deepEqual(await snapshot.listFiles(hash), ["blob", "src/main.rs"]);
  assert.equal((await snapshot.getFileAt(hash, "src/main.rs"))?.toString(), "fn main() {}\n");
  assert.deepEqual(await snapshot.getFileAt(hash, "blob"), Buffer.of(255, 0, 254));
  assert.equal(await snapshot.getFileAt(hash, "nothing"), undefined);
  assert.equal(await snapshot.fileExistsAt(hash, "blob"), true);
  assert.equal(await snapshot.fileExistsAt(hash, "nothing"), false);
});

test("a name that is not UTF-8 survives the round trip", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot();
  const raw = Buffer.concat([Buffer.from(`${lab.dir}/caf`), Buffer.of(0xe9), Buffer.from(".txt")]);
  writeFileSync(raw, "one");
  const hash = (await snapshot.track())!;
  writeFileSync(raw, "two");
  const patch = await snapshot.patch(hash);
  assert.deepEqual(patch.files, [`${lab.dir}/caf\uDCE9.txt`]);
  assert.deepEqual(pathBytes(patch.files[0]!), raw);
  // Agents keep patches as JSON.
  await snapshot.revert([JSON.parse(JSON.stringify(patch))]);
  assert.equal(readFileSync(raw, "utf8"), "one");
  assert.equal((await snapshot.getFileAt(hash, "caf\uDCE9.txt"))?.toString(), "one");
});

test("the conversion of bytes to a path is lossless", () => {
  const check = (bytes: number[]) => {
    const path = pathFromBytes(Uint8Array.from(bytes));
    assert.deepEqual([...pathBytes(path)], bytes, JSON.stringify(path));
  };
  check([...Array(256).keys()]);
  check([...Buffer.from("ü🦀")]);
  check([0xf0, 0x9f, 0xa6, 0xff, 0x80, 0xc3]);
  check([0xed, 0xb2, 0x80]);
  check([0xef, 0xbb, 0xbf, 0x61]);
});

test("methods return empty results if snapshots are disabled", async (t) => {
  const lab = new Lab(t);
  const off = lab.snapshot({ options: { enabled: false } });
  assert.equal(await off.track(), undefined);
  assert.deepEqual(await off.patch(""), { hash: "", files: [] });
  assert.equal(await off.diff(""), "");
  assert.deepEqual(await off.diffFull("", ""), []);
  assert.equal(await off.restore(""), undefined);
});

test("an error has a kind and leaves the files unchanged", async (t) => {
  const lab = new Lab(t);
  writeFileSync(lab.path("a"), "a");
  const unknown = "1".repeat(40);
  await assert.rejects(lab.snapshot().restore(unknown), (error) => {
    assert.ok(error instanceof RpcError);
    assert.deepEqual([error.kind, error.fault, error.method], ["unknown_snapshot", "caller", "restore"]);
    assert.equal(error.details.hash, unknown);
    return true;
  });
  assert.equal(readFileSync(lab.path("a"), "utf8"), "a");
});

test("onError receives every error instead of an exception", async (t) => {
  const lab = new Lab(t);
  const failures: string[] = [];
  const quiet = lab.snapshot({ onError: (error, method) => failures.push(`${method}: ${(error as RpcError).kind}`) });
  const unknown = "1".repeat(40);
  assert.deepEqual(await quiet.patch(unknown), { hash: unknown, files: [] });
  assert.equal(await quiet.diff("nonsense"), "");
  assert.equal(await quiet.restore(unknown), undefined);
  assert.deepEqual(failures, ["patch: unknown_snapshot", "diff: not_a_hash", "restore: unknown_snapshot"]);
});

test("the opencode profile requires git", async (t) => {
  const lab = new Lab(t);
  await assert.rejects(lab.snapshot({ profile: "opencode" }).track(), { kind: "not_git" });
});

test("a store inside the project is not part of snapshots", async (t) => {
  const lab = new Lab(t);
  const snapshot = lab.snapshot({ store: ".agent/snapshots", workTree: "dir" });
  writeFileSync(lab.path("a"), "a");
  const hash = (await snapshot.track())!;
  assert.ok(existsSync(lab.path(".agent/snapshots/HEAD")));
  assert.deepEqual(await snapshot.listFiles(hash), ["a"]);
  rmSync(lab.path("a"));
  await snapshot.restore(hash);
  assert.equal(readFileSync(lab.path("a"), "utf8"), "a");
});
