/**
 * Tests the replacement for OpenCode's `Snapshot` for the behaviour that OpenCode's callers rely on.
 * Runs one scenario, in a new project.
 *
 *     bun snapshot_contract.ts SCENARIO       in the project; $DIFF_PACKAGE names the `diff` package
 */
import assert from "node:assert/strict"
import { execFileSync } from "node:child_process"
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"

import { createSnapshot } from "../opencode/snapshot"

/** The part of the `diff` package that is used. */
type DiffPackage = {
  structuredPatch(old: string, fresh: string, before: string, after: string, a: string, b: string, options: object): object
  formatPatch(patch: object): string
  applyPatch(before: string, patch: string): string | false
}

const worktree = process.cwd()
const logged: string[] = []
const open = (more: object = {}) =>
  createSnapshot({ directory: worktree, worktree, vcs: "git", log: (text) => logged.push(text), ...more })
const snapshot = open()
const read = (path: string) => (existsSync(path) ? readFileSync(path, "utf8") : undefined)
const write = (path: string, text: string | Buffer) => writeFileSync(path, text)
const abs = (...paths: string[]) => paths.map((path) => join(worktree, path))

async function tracked(): Promise<string> {
  const hash = await snapshot.track()
  assert.match(hash ?? "", /^[0-9a-f]{40}$/, logged.join("\n"))
  return hash as string
}

const scenarios: Record<string, () => Promise<void>> = {
  async "track and patch"() {
    const hash = await tracked()
    assert.equal(await snapshot.track(), hash, "an unchanged tree has the same hash")
    assert.deepEqual(await snapshot.patch(hash), { hash, files: [] })
    write("edit.txt", "changed\n")
    write("new.txt", "new\n")
    rmSync("gone.txt")
    assert.deepEqual((await snapshot.patch(hash)).files, abs("edit.txt", "gone.txt", "new.txt"))
  },

  async "revert by file"() {
    const one = await tracked()
    write("edit.txt", "first\n")
    write("new.txt", "new\n")
    rmSync("gone.txt")
    const first = await snapshot.patch(one)
    const two = await tracked()
    write("edit.txt", "second\n")
    write("other.txt", "not in a patch\n")
    await snapshot.revert([first, { hash: two, files: abs("edit.txt", "new.txt") }])
    assert.deepEqual([read("edit.txt"), read("new.txt"), read("gone.txt"), read("other.txt")],
      ["one\ntwo\nthree\nfour\nfive\n", undefined, "to be deleted\n", "not in a patch\n"])
  },

  async "restore keeps extras"() {
    const hash = await tracked()
    write("edit.txt", "x\n")
    write("new.txt", "stays\n")
    rmSync("gone.txt")
    await snapshot.restore(hash)
    assert.deepEqual([read("new.txt"), read("gone.txt")], ["stays\n", "to be deleted\n"])
    assert.deepEqual((await snapshot.patch(hash)).files, abs("new.txt"))
  },

  async "rename and odd names"() {
    const odd = ['qu"ote.txt', "tab\there.txt", "new\nline.txt", "ünï.txt", " edges ", ":colon.md", "s*.md", "back\\slash"]
    for (const name of odd) write(name, "before\n")
    write("star.md", "sibling\n")
    const hash = await tracked()
    for (const name of odd) write(name, "after\n")
    renameSync("keep.txt", "moved.txt")
    const patch = await snapshot.patch(hash)
    assert.deepEqual(new Set(patch.files), new Set(abs(...odd, "keep.txt", "moved.txt")))
    await snapshot.revert([patch])
    for (const name of odd) assert.equal(read(name), "before\n", name)
    assert.deepEqual([read("keep.txt"), read("moved.txt"), read("star.md")], ["kept\n", undefined, "sibling\n"])
  },

  async "unknown hash"() {
    const hash = await tracked()
    write("new.txt", "new\n")
    write("edit.txt", "x\n")
    const unknown = "1".repeat(40)
    await snapshot.revert([{ hash: unknown, files: abs("keep.txt") }, { hash, files: abs("new.txt", "edit.txt") }])
    assert.deepEqual([read("keep.txt"), read("new.txt")], ["kept\n", undefined], "patches with a known hash are still reverted")
    assert.deepEqual(await snapshot.patch(unknown), { hash: unknown, files: [] })
    assert.equal(await snapshot.diff(unknown), "")
    assert.deepEqual(await snapshot.diffFull(unknown, hash), [])
    await snapshot.restore(unknown)
    await snapshot.restore("no hash at all")
    assert.equal(read("keep.txt"), "kept\n")
    assert.ok(logged.length >= 5, logged.join("\n"))
  },

  async "contained"() {
    const outside = join(worktree, "..", "outside.txt")
    write(outside, "mine\n")
    const hash = await tracked()
    write("new.txt", "new\n")
    symlinkSync("..", "up")
    await snapshot.revert([{ hash, files: [outside, join(worktree, "up", "outside.txt"), ...abs("new.txt")] }])
    assert.equal(read(outside), "mine\n")
  },

  async "sub-directory"() {
    mkdirSync("sub")
    write("sub/a.txt", "a\n")
    const inner = open({ directory: join(worktree, "sub") })
    const hash = (await inner.track()) as string
    write("sub/a.txt", "b\n")
    write("keep.txt", "the user's edit\n")
    assert.deepEqual((await inner.patch(hash)).files, abs("sub/a.txt"))
    const later = (await inner.track()) as string
    assert.deepEqual((await inner.diffFull(hash, later)).map((one) => one.file), ["sub/a.txt"])
    await inner.restore(hash)
    assert.deepEqual([read("sub/a.txt"), read("keep.txt")], ["a\n", "the user's edit\n"])
    inner.close()
  },

  async "ignored by now"() {
    write("local.txt", "one\n")
    const hash = await tracked()
    appendFileSync(".gitignore", "local.txt\n")
    write("local.txt", "two\n")
    assert.deepEqual((await snapshot.patch(hash)).files, abs(".gitignore"), "hidden in patch")
    const later = await tracked()
    assert.deepEqual((await snapshot.diffFull(hash, later)).map((one) => one.file), [".gitignore"], "and in diffFull")
    const text = await snapshot.diff(hash)
    assert.match(text, /diff --git a\/local.txt b\/local.txt\ndeleted file mode/, "and deleted in diff")
    assert.equal(text, text.trim())
  },

  async "large files"() {
    write("large.bin", Buffer.alloc(2 * 1024 * 1024 + 1, "x"))
    write("limit.bin", Buffer.alloc(2 * 1024 * 1024, "x"))
    const hash = await tracked()
    rmSync("limit.bin")
    write("large.bin", "small now\n")
    assert.deepEqual((await snapshot.patch(hash)).files, abs("large.bin", "limit.bin"))
    await snapshot.revert([{ hash, files: abs("large.bin", "limit.bin") }])
    assert.equal(read("limit.bin")?.length, 2 * 1024 * 1024)
    assert.equal(read("large.bin"), "small now\n", "a file that was not captured must not be removed")
  },

  async "file diffs"() {
    const { structuredPatch, formatPatch, applyPatch }: DiffPackage = await import(process.env.DIFF_PACKAGE as string)
    const text = Array.from({ length: 60 }, (_, n) => `line ${n}\n`).join("")
    const pairs: Record<string, [string | undefined, string | undefined]> = {
      "added.txt": [undefined, "a\nb\n"], "deleted.txt": ["a\nb\n", undefined], "one-line": ["a\n", "b\n"],
      "no-newline": ["a\nb", "a\nc"], "gains-newline": ["a", "a\n"], "loses-newline": ["x\na\n", "x\na"],
      "context-no-newline": ["a\nb\nc\nd\ne\nf\ng", "X\nb\nc\nd\ne\nf\ng"], "crlf": ["a\r\nb\r\n", "a\r\nc\r\n"],
      "dashes": ["-- a\n++ b\n@@ c\n", "-- a\n++ d\ndiff --git x\n"], "emptied": ["a\n", ""], "filled": ["", "a\n"],
      "far apart": [text, text.replace("line 2\n", "two\n").replace("line 50\n", "").replace("line 30\n", "line 30\nmore\n")],
    }
    for (const [name, [before]] of Object.entries(pairs)) if (before !== undefined) write(name, before)
    const from = await tracked()
    for (const [name, [, after]] of Object.entries(pairs)) after === undefined ? rmSync(name) : write(name, after)
    const to = await tracked()
    const diffs = await snapshot.diffFull(from, to)
    assert.deepEqual(new Set(diffs.map((one) => one.file)), new Set(Object.keys(pairs)))
    const counted = Object.fromEntries(numstat(from, to))
    for (const one of diffs) {
      const [before = "", after = ""] = pairs[one.file]
      const status = pairs[one.file][0] === undefined ? "added" : pairs[one.file][1] === undefined ? "deleted" : "modified"
      assert.deepEqual(Object.keys(one).sort(), ["additions", "deletions", "file", "patch", "status"])
      assert.equal(one.status, status, one.file)
      assert.equal(`${one.additions} ${one.deletions}`, counted[one.file], one.file)
      const theirs = formatPatch(structuredPatch(one.file, one.file, before, after, "", "", { context: Number.MAX_SAFE_INTEGER }))
      assert.equal(one.patch, theirs, one.file)
      assert.equal(applyPatch(before, one.patch), after, one.file)
    }
  },

  async "binary and mode"() {
    write("image.bin", Buffer.from([0, 1, 2]))
    const from = await tracked()
    write("image.bin", Buffer.from([0, 9]))
    execFileSync("chmod", ["755", "keep.txt"])
    const to = await tracked()
    const [image, keep] = await snapshot.diffFull(from, to)
    assert.deepEqual(image, { file: "image.bin", patch: "", additions: 0, deletions: 0, status: "modified" })
    assert.deepEqual([keep.file, keep.additions, keep.deletions, keep.status], ["keep.txt", 0, 0, "modified"])
    assert.equal(keep.patch, `Index: keep.txt\n${"=".repeat(67)}\n--- keep.txt\t\n+++ keep.txt\t\n`)
  },

  async "many files"() {
    mkdirSync("many")
    for (let n = 0; n < 1500; n++) write(`many/${n}.txt`, `${n}\n`.repeat(20))
    const from = await tracked()
    for (let n = 0; n < 1500; n++) write(`many/${n}.txt`, `${n}\n`.repeat(20) + "x\n")
    const to = await tracked()
    const diffs = await snapshot.diffFull(from, to)
    assert.equal(diffs.length, 1500)
    assert.ok(diffs.every((one) => one.additions === 1 && one.patch.endsWith("+x\n")))
    await snapshot.revert([await snapshot.patch(from)])
    assert.equal(await snapshot.track(), from)
  },

  async "source gc"() {
    const hash = await tracked()
    write("edit.txt", "x\n")
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--amend", "-am", "other"])
    execFileSync("git", ["reflog", "expire", "--expire=now", "--all"])
    execFileSync("git", ["gc", "-q", "--prune=now"])
    await snapshot.cleanup()
    await snapshot.revert([{ hash, files: abs("edit.txt") }])
    assert.equal(read("edit.txt"), "one\ntwo\nthree\nfour\nfive\n")
  },

  async "switched off"() {
    for (const off of [open({ enabled: false }), open({ vcs: undefined })]) {
      assert.equal(await off.track(), undefined)
      await off.cleanup()
      off.close()
    }
    process.env.CTRLZ_BIN = "/nowhere/ctrlz"
    const gone = open()
    assert.equal(await gone.track(), undefined)
    assert.deepEqual(await gone.patch("1".repeat(40)), { hash: "1".repeat(40), files: [] })
    assert.deepEqual([await gone.diff("1".repeat(40)), await gone.diffFull("1".repeat(40), "2".repeat(40))], ["", []])
    await gone.restore("1".repeat(40))
    await gone.revert([{ hash: "1".repeat(40), files: abs("keep.txt") }])
    assert.equal(read("keep.txt"), "kept\n")
  },
}

function numstat(from: string, to: string): [string, string][] {
  const status = execFileSync(process.env.CTRLZ_BIN as string, ["--json", "status"], { encoding: "utf8" })
  const { store }: { store: string } = JSON.parse(status)
  const words = ["--git-dir", store, "diff", "--numstat", "--no-renames", from, to]
  const lines = execFileSync("git", words, { encoding: "utf8" }).trim().split("\n")
  return lines.map((line) => line.split("\t")).map(([more, less, name]) => [name, `${more} ${less}`])
}

const name = process.argv[2]
if (name === "--list") console.log(JSON.stringify(Object.keys(scenarios)))
else await scenarios[name]()
process.exit(0)
