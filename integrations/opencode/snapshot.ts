// Made by integrations/build from integrations/src; change it there.
// One file that depends only on the program `ctrlz`. README.md describes it and how to remove it.

import { spawn, type ChildProcess } from "node:child_process"
import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join, relative } from "node:path"

// clients/typescript/src/path.ts, without comments
const LONE_SURROGATE = /\p{Surrogate}/u;
const ESCAPED_BYTE = /[\uDC80-\uDCFF]/;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();

function encodePath(path: string): Uint8Array {
  if (!LONE_SURROGATE.test(path)) return encoder.encode(path);
  const bytes: number[] = [];
  for (const character of path) {
    const code = character.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) bytes.push(code - 0xdc00);
    else if (code >= 0xd800 && code <= 0xdfff) throw new TypeError(`not a path: ${JSON.stringify(path)}`);
    else bytes.push(...encoder.encode(character));
  }
  return Uint8Array.from(bytes);
}

function pathFromBytes(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    return escaped(bytes);
  }
}

function pathText(path: string): string {
  return LONE_SURROGATE.test(path) ? lossy.decode(encodePath(path)) : path;
}

function escaped(bytes: Uint8Array): string {
  let path = "";
  for (let at = 0; at < bytes.length; ) {
    const length = characterLength(bytes, at);
    path += length
      ? strict.decode(bytes.subarray(at, at + length))
      : String.fromCharCode(0xdc00 + (bytes[at] ?? 0));
    at += length || 1;
  }
  return path;
}

function characterLength(bytes: Uint8Array, at: number): number {
  for (const length of [1, 2, 3, 4]) {
    try {
      if (at + length <= bytes.length && strict.decode(bytes.subarray(at, at + length))) return length;
    } catch {
      continue;
    }
  }
  return 0;
}

function toWire(value: unknown): unknown {
  if (typeof value === "string") {
    if (!LONE_SURROGATE.test(value)) return value;
    if (!ESCAPED_BYTE.test(value)) throw new TypeError(`not well-formed text: ${JSON.stringify(value)}`);
    return { bytes: [...encodePath(value)] };
  }
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toWire(item)]));
}

function parseWire(text: string): unknown {
  const value: unknown = JSON.parse(text);
  return text.includes('{"bytes":[') ? fromWire(value) : value;
}

function fromWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(fromWire);
  if (typeof value !== "object" || value === null) return value;
  if ("bytes" in value && Array.isArray(value.bytes)) return pathFromBytes(Uint8Array.from(value.bytes));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fromWire(item)]));
}

// clients/typescript/src/child.ts, without comments


interface End {
  status: number | string | null;
  stderr: string;
}

type Answer =
  | { result: unknown }
  | { error: { code: number; data: wire.Error } }
  | { end: End; unread: boolean };

interface StartOptions {
  env?: NodeJS.ProcessEnv | undefined;
  detached?: boolean | undefined;
}

interface Pending {
  unread: boolean;
  answer: (answer: Answer) => void;
  progress: ((progress: wire.ProgressParams) => void) | undefined;
}

const STDERR_LENGTH = 4096;
const DRAIN_MS = 1000;

class Child {
  readonly ended: Promise<End>;
  readonly #process: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #stderr = "";
  #end: End | undefined;

  private constructor(process: ChildProcess) {
    this.#process = process;
    this.ended = new Promise((resolve) => {
      const finish = (status: number | string | null) => {
        this.#end ??= { status, stderr: this.#stderr };
        for (const { answer, unread } of this.#take()) answer({ end: this.#end, unread });
        resolve(this.#end);
      };
      process.once("close", (code, signal) => finish(code ?? signal));
      process.once("exit", (code, signal) => {
        setTimeout(() => finish(code ?? signal), DRAIN_MS).unref();
      });
    });
    process.stdin?.on("error", () => {});
    readLines(process, (line) => this.#receive(line));
    process.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_LENGTH);
    });
    this.#hold();
  }

  static start(binary: string, args: string[], options: StartOptions = {}): Promise<Child> {
    const { env, detached = false } = options;
    return new Promise((resolve, reject) => {
      const process = spawn(binary, args, { stdio: "pipe", windowsHide: true, detached, ...(env && { env }) });
      const child = new Child(process);
      process.on("error", reject);
      process.once("spawn", () => resolve(child));
    });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get hasEnded(): boolean {
    const { exitCode, signalCode } = this.#process;
    return this.#end !== undefined || exitCode !== null || signalCode !== null;
  }

  ask(
    method: string,
    params: unknown,
    progress?: (progress: wire.ProgressParams) => void,
  ): { id: number; answer: Promise<Answer> } {
    const id = this.#nextId++;
    const answer = new Promise<Answer>((resolve) => {
      if (this.#end) return resolve({ end: this.#end, unread: true });
      const pending = { answer: resolve, progress, unread: false };
      this.#write({ jsonrpc: "2.0", id, method, params }, (error) => (pending.unread = error != null));
      this.#pending.set(id, pending);
      this.#hold();
    });
    return { id, answer };
  }

  cancel(id: number): void {
    this.#write({ jsonrpc: "2.0", method: "cancel", params: { id } });
  }

  abandon(id: number): void {
    this.#take(id);
    this.cancel(id);
  }

  finish(): void {
    this.#process.stdin?.end();
  }

  ref(): void {
    this.#process.ref();
  }

  kill(signal: "SIGTERM" | "SIGKILL"): void {
    this.#process.kill(signal);
  }

  #write(message: unknown, written?: (error?: Error | null) => void): void {
    this.#process.stdin?.write(`${JSON.stringify(message)}\n`, written);
  }

  #receive(line: string): void {
    const message = parse(line);
    if (!message) {
      this.#stderr += `it printed ${JSON.stringify(line.slice(0, 100))}, which is not a message`;
      return this.kill("SIGKILL");
    }
    if (message.method === "progress" && message.params) {
      this.#pending.get(Number(message.params.id))?.progress?.(message.params);
      return;
    }
    const pending = message.id == null ? this.#take() : this.#take(message.id);
    for (const { answer } of pending) answer(message as unknown as Answer);
  }

  #take(id?: number): Pending[] {
    const found = id === undefined ? [...this.#pending.values()] : [this.#pending.get(id)];
    if (id === undefined) this.#pending.clear();
    else this.#pending.delete(id);
    this.#hold();
    return found.filter((pending) => pending !== undefined);
  }

  #hold(): void {
    const { stdin, stdout, stderr } = this.#process;
    const busy = this.#pending.size > 0;
    for (const handle of [this.#process, stdin, stdout, stderr]) {
      const held = handle as unknown as { ref?: () => void; unref?: () => void } | null;
      if (busy) held?.ref?.();
      else held?.unref?.();
    }
  }
}

class Supervisor {
  readonly #start: () => Promise<Child>;
  #child: Promise<Child> | undefined;

  constructor(start: () => Promise<Child>) {
    this.#start = start;
  }

  async running(): Promise<Child> {
    const known = this.#child;
    const child = await known?.catch(() => undefined);
    if (child && !child.hasEnded) return child;
    if (this.#child === known) this.#child = undefined;
    return (this.#child ??= this.#start());
  }

  async release(): Promise<Child | undefined> {
    const known = this.#child;
    this.#child = undefined;
    return known?.catch(() => undefined);
  }
}

async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

interface Incoming {
  id?: number | null;
  method?: string;
  params?: wire.ProgressParams;
}

function parse(line: string): Incoming | undefined {
  try {
    const message = parseWire(line);
    return typeof message === "object" && message !== null ? message : undefined;
  } catch {
    return undefined;
  }
}

function readLines(process: ChildProcess, receive: (line: string) => void): void {
  let parts: Buffer[] = [];
  process.stdout?.on("data", (chunk: Buffer) => {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      parts.push(chunk.subarray(start, end));
      receive(Buffer.concat(parts).toString("utf8"));
      parts = [];
      start = end + 1;
    }
    if (start < chunk.length) parts.push(chunk.subarray(start));
  });
}

/**
 * Calls of `ctrlz rpc` from a plugin, over the child process of the TypeScript client.
 *
 * A call rejects with a `Refusal`, at the latest at its deadline. The next call after the process
 * died starts another one. The process exits together with the agent, because its standard input
 * is closed then.
 */


/** The error of a call. `kind` is listed in docs/rpc.md, or is `missing`, `ended` or `timeout`. */
class Refusal extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(message)
    this.kind = kind
  }
}

type Method = keyof wire.Methods
type Params<M extends Method> = wire.Methods[M]["params"]
type Result<M extends Method> = wire.Methods[M]["result"]

/** Default deadline of a call, which bounds the time that an agent waits. */
const DEADLINE_MILLIS = 10_000

class Rpc {
  private readonly server = new Supervisor(start)

  async call<M extends Method>(method: M, params: Params<M>, deadlineMillis = DEADLINE_MILLIS): Promise<Result<M>> {
    const child = await this.server.running()
    const { id, answer } = child.ask(method, toWire(params))
    const outcome = await within(deadlineMillis, answer)
    if (outcome) return resultOf<M>(outcome)
    child.abandon(id)
    throw new Refusal("timeout", `ctrlz did not answer ${method} in time`)
  }

  /** Ends the process once it has answered all pending calls. A later call starts another one. */
  close(): void {
    void this.server.release().then((child) => child?.finish())
  }
}

function start(): Promise<Child> {
  // Ctrl-C signals the whole process group of the terminal. A restore must survive it.
  const options = { detached: process.platform !== "win32" }
  return Child.start(program(), ["rpc"], options).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw new Refusal("ended", error.message)
    throw new Refusal("missing", "the program `ctrlz` is not in PATH; install it, or set CTRLZ_BIN")
  })
}

function resultOf<M extends Method>(outcome: Answer): Result<M> {
  if ("result" in outcome) return outcome.result as Result<M>
  if ("end" in outcome) throw new Refusal("ended", `ctrlz rpc ended (${outcome.end.status})`)
  throw new Refusal(outcome.error.data.kind, outcome.error.data.message)
}

/** `ctrlz install` replaces this by its own path. */
const PROGRAM = "ctrlz"

/** Returns the path of `ctrlz`. Desktop applications often lack the PATH of the shell. */
function program(): string {
  if (process.env.CTRLZ_BIN) return process.env.CTRLZ_BIN
  if (isAbsolute(PROGRAM) && existsSync(PROGRAM)) return PROGRAM
  const path = (process.env.PATH ?? "").split(process.platform === "win32" ? ";" : ":")
  const usual = [".cargo/bin", ".local/bin"].map((dir) => join(homedir(), dir))
  const name = process.platform === "win32" ? "ctrlz.exe" : "ctrlz"
  return [...path, ...usual, "/usr/local/bin", "/opt/homebrew/bin"]
    // A relative entry could run a program of the project.
    .filter((dir) => isAbsolute(dir))
    .map((dir) => join(dir, name))
    .find((file) => existsSync(file)) ?? name
}

/** The message of an error, of whatever type it is. */
function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Whether an error is a refusal of one of these kinds. */
function isKind(error: unknown, ...kinds: (wire.Kind)[]): boolean {
  return error instanceof Refusal && kinds.some((kind) => kind === error.kind)
}

/**
 * OpenCode's `Snapshot` interface over `ctrlz rpc`: the same methods with the same results.
 *
 * As in OpenCode, no method fails. On an error it returns `undefined`, `""`, `[]` or nothing, and
 * logs the error. A file is deleted only if the snapshot proves that it did not exist, and nothing
 * outside the instance's directory is written.
 */


export type Patch = { hash: string; files: string[] }
export type FileDiff = {
  file: string
  patch: string
  additions: number
  deletions: number
  status: "added" | "deleted" | "modified"
}

export type Instance = {
  /** Directory of the instance: the work tree or a directory in it. */
  directory: string
  /** Root of the repository. */
  worktree: string
  /** Version control system. Snapshots are taken only if it is `git`. */
  vcs?: string
  /** Whether snapshots are enabled in the configuration. Default: true. */
  enabled?: boolean
  /** Directory of all stores. Default: as configured in ctrlz. */
  dataDir?: string
  log?(text: string): void
}

/** Time limit of a call. OpenCode has none, and reading a large repository takes long. */
const READING_MILLIS = 600_000
const FIRST_CLEANUP_MILLIS = 60_000
const CLEANUP_MILLIS = 3_600_000
const KEEP_DAYS = 7

export type Snapshot = ReturnType<typeof createSnapshot>

export function createSnapshot(instance: Instance) {
  const { directory, worktree, log = () => {} } = instance
  const rpc = new Rpc()
  const place: wire.Place = { dir: directory, profile: "opencode", ...(instance.dataDir ? { data_dir: instance.dataDir } : {}) }
  const scope = relative(worktree, directory)
  const scoped = scope ? { paths: [scope] } : {}
  const isEnabled = instance.vcs === "git" && instance.enabled !== false
  /** Paths that are not UTF-8, by the text that OpenCode gets for them. */
  const escaped = new Map<string, wire.Path>()
  let timer: NodeJS.Timeout | undefined

  const call: Call = (method, params) => rpc.call(method, { ...place, ...params }, READING_MILLIS)

  const orElse = async <T>(what: string, otherwise: T, work: () => Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      log(`${what}: ${messageOf(error)}`)
      return otherwise
    }
  }

  const nameOf = (path: wire.Path): string => {
    const text = pathText(path)
    if (text !== path) escaped.set(text, path)
    return text
  }

  const everyHour = (millis: number) => {
    timer = setTimeout(() => void self.cleanup().then(() => everyHour(CLEANUP_MILLIS)), millis)
    timer.unref?.()
  }

  const self = {
    /** Starts the hourly cleanup. */
    async init(): Promise<void> {
      if (!timer) everyHour(FIRST_CLEANUP_MILLIS)
    },

    /** Drops snapshots that are older than a week. */
    async cleanup(): Promise<void> {
      if (isEnabled) await orElse("cleanup", undefined, async () => void (await call("gc", { keep_days: KEEP_DAYS })))
    },

    /** Records the work tree. Returns `undefined` if snapshots are disabled or the call failed. */
    async track(): Promise<string | undefined> {
      if (!isEnabled) return undefined
      return orElse("track", undefined, async () => (await call("track", {})).hash || undefined)
    },

    /** Returns the absolute paths of the files that changed since a snapshot. */
    async patch(hash: string): Promise<Patch> {
      return orElse("patch", { hash, files: [] as string[] }, async () => {
        const patch = await call("patch", { hash, relative: true })
        const named = "files" in patch ? patch.files.map(nameOf) : []
        const own = named.filter((file) => !scope || file === scope || file.startsWith(`${scope}/`))
        return { hash, files: own.map((file) => `${worktree.replaceAll("\\", "/")}/${file}`) }
      })
    },

    /** Restores every file of a snapshot, and keeps files created since. */
    async restore(hash: string): Promise<void> {
      await orElse("restore", undefined, async () => logKept(log, await call("restore", { hash, ...scoped })))
    },

    /** Restores files, each to the first hash that lists it. Files that did not exist are removed. */
    async revert(patches: Patch[]): Promise<void> {
      let rest = oldestFirst(patches, worktree, escaped)
      while (rest.length) {
        const report = await orElse("revert", undefined, async () => {
          try {
            return await call("revert", { patches: rest, allow_mass_removal: true })
          } catch (error) {
            if (!isKind(error, "unknown_snapshot", "purged", "not_a_hash", "not_a_snapshot")) throw error
            const known = await withoutUnknown(call, rest, log)
            if (known.length === rest.length) throw error
            rest = known
            return "again"
          }
        })
        if (report === "again") continue
        if (report) logKept(log, report)
        return
      }
    },

    /** Returns the changes since a snapshot as a patch. */
    async diff(hash: string): Promise<string> {
      return orElse("diff", "", async () => (await withIgnored(call, hash)).trim())
    },

    /** Returns the changes between two snapshots, file by file. */
    async diffFull(from: string, to: string): Promise<FileDiff[]> {
      return orElse("diffFull", [] as FileDiff[], async () => {
        const files = await allFiles(call, { from, to, ...scoped })
        if (!files.length) return []
        const text = await allText(call, { from, to, paths: files.map((one) => one.file) })
        const hunks = perFile(text)
        return files.map((one, at) => fileDiff(nameOf(one.file), one, hunks.length === files.length ? hunks[at] : undefined))
      })
    },

    /** Ends the child process. */
    close(): void {
      clearTimeout(timer)
      rpc.close()
    },
  }
  return self
}

type Call = <M extends Method>(method: M, params: Omit<Params<M>, "dir">) => Promise<Result<M>>
type Compared = { from: string; to: string; paths?: wire.Path[] }

function logKept(log: (text: string) => void, report: wire.RestoreReport | wire.Disabled): void {
  if (!("kept" in report)) return
  for (const one of report.kept) if (one.failure) log(`skipped: ${pathText(one.path)} (${one.text})`)
}

/** Merges patches: keeps each file in its first patch only, and drops files outside the work tree. */
function oldestFirst(patches: Patch[], worktree: string, escaped: Map<string, wire.Path>): wire.PatchParam[] {
  const seen = new Set<string>()
  const taken = patches.map(({ hash, files }) => {
    const fresh = files
      .filter((file) => !seen.has(file) && seen.add(file))
      .map((file) => relative(worktree, isAbsolute(file) ? file : join(worktree, file)))
      .filter((file) => file && !file.startsWith(".."))
    return { hash, files: fresh.map((file) => escaped.get(file) ?? file) }
  })
  return taken.filter(({ files }) => files.length)
}

/** Drops patches with an unknown hash, so that the others can still be reverted. */
async function withoutUnknown(call: Call, patches: wire.PatchParam[], log: (text: string) => void): Promise<wire.PatchParam[]> {
  const known = []
  for (const patch of patches) {
    try {
      await call("show", { hash: patch.hash })
      known.push(patch)
    } catch (error) {
      log(`revert: ${messageOf(error)}`)
    }
  }
  return known
}

async function allText(call: Call, params: Compared): Promise<string> {
  let text = ""
  for (let offset: number | null = 0; offset !== null; ) {
    const page: Result<"diff"> = await call("diff", { ...params, offset })
    if (!("text" in page)) break
    text += page.text
    offset = page.next
  }
  return text
}

/** Returns the changes as a patch, with files that are ignored by now as deleted, as in OpenCode. */
async function withIgnored(call: Call, hash: string): Promise<string> {
  const all = await call("patch", { hash, relative: true, options: { hide_ignored: false } })
  const changes = await call("changes", { from: hash })
  if (!("files" in all) || !("files" in changes)) return ""
  const text = await allText(call, { from: hash, to: changes.to })
  const seen = new Set(changes.files.map((one) => one.path))
  const hidden = all.files.filter((path) => !seen.has(path))
  const chunks = text.split(/^(?=diff --git )/m)
  if (!hidden.length || chunks.length !== seen.size) return text
  const named = [...seen].map((path, at) => ({ name: pathText(path), chunk: chunks[at] }))
  for (const path of hidden) named.push({ name: pathText(path), chunk: await deletion(call, hash, path) })
  const byName = (one: { name: string }, other: { name: string }) => Buffer.compare(Buffer.from(one.name), Buffer.from(other.name))
  return named.sort(byName).map(({ chunk }) => chunk).join("")
}

/** Returns a patch that deletes a file of a snapshot. */
async function deletion(call: Call, hash: string, path: wire.Path): Promise<string> {
  const listed = await call("list_files", { hash, paths: [path] })
  const shown = await call("show", { hash, path })
  if (!("files" in listed) || !("content" in shown)) return ""
  const { id, mode } = listed.files[0]
  const { content, encoding } = shown
  const quoted = (name: string) => (/["\\\x00-\x1f\x7f]/.test(name) ? JSON.stringify(name) : name)
  const [a, b] = [quoted(`a/${pathText(path)}`), quoted(`b/${pathText(path)}`)]
  const head = `diff --git ${a} ${b}\ndeleted file mode ${mode}\nindex ${id}..${"0".repeat(id.length)}\n`
  if (encoding !== "utf-8" || content.includes("\0")) return `${head}Binary files ${a} and /dev/null differ\n`
  const lines = linesOf(content)
  if (!lines.length) return head
  const from = lines.length === 1 ? "1" : `1,${lines.length}`
  return `${head}--- ${a}\n+++ /dev/null\n@@ -${from} +0,0 @@\n${replaced(lines, content, [], "").join("\n")}\n`
}

async function allFiles(call: Call, params: Compared): Promise<wire.FileDiff[]> {
  const files: wire.FileDiff[] = []
  for (let offset: number | null = 0; offset !== null; ) {
    const page: Result<"diff_full"> = await call("diff_full", { ...params, offset })
    if (!("files" in page)) break
    files.push(...page.files)
    offset = page.next
  }
  return files
}

// ------------------------------------------------------------------------------ patches as text

/** Splits a patch into the hunks of each file. Lines of content start with a sign, unlike headers. */
function perFile(text: string): string[][] {
  const files: string[][] = []
  let isHeader = true
  for (const line of text.split("\n")) {
    if (line.startsWith("diff --git ")) files.push([])
    isHeader = !line.startsWith("@@ ") && (isHeader || line.startsWith("diff --git "))
    if (!isHeader && line) files.at(-1)?.push(line)
  }
  return files
}

function fileDiff(file: string, one: wire.FileDiff, hunks: string[] | undefined): FileDiff {
  const { additions, deletions, status, before, after } = one
  const isText = !one.binary && !one.omitted
  return { file, patch: isText ? wholePatch(file, before, after, hunks) : "", additions, deletions, status }
}

/** Returns a patch with the whole file as context, in the format of the `diff` package. */
function wholePatch(file: string, before: string, after: string, hunks: string[] | undefined): string {
  const head = [`Index: ${file}`, "=".repeat(67), `--- ${file}\t`, `+++ ${file}\t`]
  if (before === after) return head.join("\n") + "\n"
  const [was, is] = [linesOf(before), linesOf(after)]
  const start = (lines: string[]) => `${lines.length ? 1 : 0},${lines.length}`
  const body = hunks ? widened(was, before, hunks) : replaced(was, before, is, after)
  return [...head, `@@ -${start(was)} +${start(is)} @@`, ...body].join("\n") + "\n"
}

function linesOf(text: string): string[] {
  const lines = text.split("\n")
  return lines.at(-1) === "" ? lines.slice(0, -1) : lines
}

const NO_NEWLINE = "\\ No newline at end of file"

/** Adds the unchanged lines between and after the hunks. */
function widened(was: string[], before: string, hunks: string[]): string[] {
  const body: string[] = []
  let at = 0
  for (const line of hunks) {
    const from = line.match(/^@@ -(\d+)(?:,(\d+))? /)
    if (from) {
      // For an empty range, git gives the line before it.
      const begins = Number(from[1]) - (from[2] === "0" ? 0 : 1)
      for (; at < begins; at++) body.push(` ${was[at]}`)
    } else {
      body.push(line)
      if (line[0] === " " || line[0] === "-") at++
    }
  }
  if (at < was.length) {
    for (; at < was.length; at++) body.push(` ${was[at]}`)
    if (!before.endsWith("\n")) body.push(NO_NEWLINE)
  }
  return body
}

function replaced(was: string[], before: string, is: string[], after: string): string[] {
  const side = (sign: string, lines: string[], text: string) => [
    ...lines.map((line) => sign + line),
    ...(lines.length && !text.endsWith("\n") ? [NO_NEWLINE] : []),
  ]
  return [...side("-", was, before), ...side("+", is, after)]
}

/** The used part of clients/typescript/src/wire.ts. */
declare namespace wire {
  interface CallOptions { enabled?: boolean | null; hide_ignored?: boolean | null }
  interface CareReport { gc: GcReport }
  interface Change { path: Path; status: ChangeStatus }
  type ChangeStatus = "added" | "deleted" | "modified"
  interface Changes { files: Change[]; from: Hash; next: number | null; to: Hash }
  interface CompareParams { from: Hash; offset?: number; paths?: Path[]; to?: Hash | null }
  interface Diff { from: Hash; next: number | null; text: string; to: Hash }
  interface DiffFull { files: FileDiff[]; from: Hash; next: number | null; to: Hash }
  interface Disabled { hash: string }
  type Encoding = "utf-8" | "base64"
  interface Error { kind: string; message: string; path?: Path | null }
  interface FileContent { content: string; encoding: Encoding; hash: Hash; next: number | null; path: Path }
  interface FileDiff { additions: number; after: string; before: string; binary: boolean; deletions: number; file: Path; omitted: boolean; status: ChangeStatus }
  interface Files { files: ListedFile[]; hash: Hash; next: number | null }
  interface GcParams { keep_days?: number | null }
  interface GcReport {}
  type Hash = string
  interface Kept { failure: boolean; path: Path; text: string }
  type Kind = "not_a_hash" | "unknown_snapshot" | "purged" | "not_a_snapshot" | "git"
  interface ListParams { hash: Hash; offset?: number; paths?: Path[] }
  interface ListedFile { id: Hash; mode: string; path: Path }
  interface Methods { changes: { params: Place & CompareParams; result: Changes | Disabled };
    diff: { params: Place & CompareParams; result: Diff | Disabled };
    diff_full: { params: Place & CompareParams; result: DiffFull | Disabled };
    gc: { params: Place & GcParams; result: CareReport };
    list_files: { params: Place & ListParams; result: Files | Disabled };
    patch: { params: Place & PatchParams; result: Patch | Disabled };
    restore: { params: Place & RestoreParams; result: RestoreReport | Disabled };
    revert: { params: Place & RevertParams; result: RestoreReport };
    show: { params: Place & ShowParams; result: Shown | Disabled };
    track: { params: Place & TrackParams; result: Snapshot | Disabled } }
  interface Patch { files: Path[]; hash: Hash; skipped: Skipped[] }
  interface PatchParam { files: Path[]; hash: Hash }
  interface PatchParams { hash: Hash; relative?: boolean; to?: Hash | null }
  type Path = string
  interface Place { data_dir?: Path | null; dir?: Path | null; options?: CallOptions; profile?: Profile | null; progress?: boolean }
  type Profile = "opencode"
  interface ProgressParams { files: number; id: unknown }
  interface RestoreParams { allow_mass_removal?: boolean; hash: Hash; paths?: Path[] }
  interface RestoreReport { after: Hash; kept: Kept[] }
  interface RevertParams { allow_mass_removal?: boolean; patches: PatchParam[] }
  interface ShowParams { hash: Hash; offset?: number; path?: Path | null }
  type Shown = FileContent | SnapshotInfo
  interface Skipped { bytes?: number | null; failure: boolean; path: Path; text: string }
  interface Snapshot { files: number; hash: Hash; skipped: Skipped[] }
  interface SnapshotInfo { files: number; hash: Hash; skipped: Skipped[] | null }
  interface TrackParams { paths?: Path[] }
}
