// Made by integrations/build from integrations/src; change it there.
// One file, no dependencies but the program `ctrlz`. What it does and how to remove it: README.md.

import { spawn, type ChildProcess } from "node:child_process"
import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join, relative } from "node:path"

/**
 * One `ctrlz rpc` child, asked by promises.
 *
 * In: a method and its parameters. Out: its result, or a `Refusal` that says why not.
 * A call never hangs past its deadline, a dead child is started again by the next call, and the
 * child ends by itself when the agent does: its input closes then.
 */

/** Why a call has no result. `kind` is one of docs/rpc.md, or `missing`, `ended` or `timeout`. */
class Refusal extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(message)
    this.kind = kind
  }
}

type Params = Record<string, unknown>
type Waiting = { resolve(result: any): void; reject(why: Refusal): void; timer: NodeJS.Timeout }

/** How long a call may take if it says nothing else: a bounded wait, never a blocked agent. */
const PATIENCE_MILLIS = 10_000

class Rpc {
  private child: ChildProcess | undefined
  private readonly waiting = new Map<number, Waiting>()
  private next = 1

  async call(method: string, params: Params, patienceMillis = PATIENCE_MILLIS): Promise<any> {
    const child = (this.child ??= this.start())
    const id = this.next++
    return new Promise((resolve, reject) => {
      // The timer also keeps the agent's event loop alive until the answer is there.
      const timer = setTimeout(() => this.giveUp(id, method), patienceMillis)
      this.waiting.set(id, { resolve, reject, timer })
      child.stdin?.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n")
    })
  }

  /** Lets the child finish what it was asked, and go. A later call starts another one. */
  close(): void {
    this.child?.stdin?.end()
    this.child = undefined
  }

  private start(): ChildProcess {
    const child = spawn(program(), ["rpc"], {
      stdio: ["pipe", "pipe", "ignore"],
      // Ctrl-C goes to the whole group of the terminal; a restore must not die of it.
      detached: process.platform !== "win32",
      windowsHide: true,
    })
    const gone = (why: Refusal) => this.lose(child, why)
    child.on("error", (error: NodeJS.ErrnoException) =>
      gone(error.code === "ENOENT" ? missing() : new Refusal("ended", error.message)),
    )
    child.on("exit", (code, signal) => gone(new Refusal("ended", `ctrlz rpc ended (${signal ?? code})`)))
    // A write to a child that is gone is answered by its `exit`.
    child.stdin?.on("error", () => {})
    child.stdout?.on("data", lines((line) => this.answer(line)))
    // An idle child must not keep the agent from ending.
    for (const held of [child, child.stdin, child.stdout]) (held as { unref?(): void })?.unref?.()
    return child
  }

  private answer(line: string): void {
    const message = JSON.parse(line)
    const waiting = this.take(message.id)
    if (!waiting) return
    const { error } = message
    if (error) waiting.reject(new Refusal(error.data?.kind ?? "internal_error", error.message))
    else waiting.resolve(message.result)
  }

  private giveUp(id: number, method: string): void {
    const cancel = { jsonrpc: "2.0", method: "cancel", params: { id } }
    this.child?.stdin?.write(JSON.stringify(cancel) + "\n")
    this.take(id)?.reject(new Refusal("timeout", `ctrlz took too long over ${method}`))
  }

  private lose(child: ChildProcess, why: Refusal): void {
    if (this.child !== child) return
    this.child = undefined
    for (const id of [...this.waiting.keys()]) this.take(id)?.reject(why)
  }

  private take(id: number): Waiting | undefined {
    const waiting = this.waiting.get(id)
    this.waiting.delete(id)
    clearTimeout(waiting?.timer)
    return waiting
  }
}

/** `ctrlz install` writes its own path here. */
const PROGRAM = "ctrlz"

function missing(): Refusal {
  return new Refusal("missing", "the program `ctrlz` is not in PATH; install it, or set CTRLZ_BIN")
}

/** An agent that a desktop started often lacks the PATH of the shell, so the usual places count too. */
function program(): string {
  if (process.env.CTRLZ_BIN) return process.env.CTRLZ_BIN
  if (isAbsolute(PROGRAM) && existsSync(PROGRAM)) return PROGRAM
  const path = (process.env.PATH ?? "").split(process.platform === "win32" ? ";" : ":")
  const usual = [".cargo/bin", ".local/bin"].map((dir) => join(homedir(), dir))
  const name = process.platform === "win32" ? "ctrlz.exe" : "ctrlz"
  return [...path, ...usual, "/usr/local/bin", "/opt/homebrew/bin"]
    // A relative entry would run what lies in the project.
    .filter((dir) => isAbsolute(dir))
    .map((dir) => join(dir, name))
    .find((file) => existsSync(file)) ?? name
}

/** Cuts bytes into lines at LF alone; a line may come in many pieces. */
function lines(take: (line: string) => void): (piece: Buffer) => void {
  let rest: Buffer[] = []
  return (piece) => {
    let from = 0
    for (let at; (at = piece.indexOf(10, from)) >= 0; from = at + 1) {
      rest.push(piece.subarray(from, at))
      take(Buffer.concat(rest).toString("utf8"))
      rest = []
    }
    if (from < piece.length) rest.push(piece.subarray(from))
  }
}

/**
 * What happened to the files, in words.
 */

/** More are counted and not named. */
const MAX_NAMES = 20

/** A list of files for a line of text; one that is cut says so. */
function names(files: unknown[], max = MAX_NAMES): string {
  const shown = files.slice(0, max).map(pathText).join(", ")
  return files.length > max ? `${shown} and ${files.length - max} more` : shown
}

/** A path as `ctrlz` writes it: text, or the bytes of a name that is no UTF-8. */
function pathText(path: any): string {
  return typeof path === "string" ? path : Buffer.from(path.bytes).toString("utf8")
}

/** What an undo, a redo or a restore did, or would do, for people. */
function reported(report: any, did: string): string {
  const lines = [`${did} ${count(report.done ?? report.actions)}: ${names((report.done ?? report.actions).map(pathOf))}`]
  const left = [...(report.conflicts ?? []), ...(report.kept ?? []), ...(report.ignored ?? [])]
  for (const one of left.slice(0, MAX_NAMES)) lines.push(`stays: ${pathText(one.path)} (${one.why ?? one.text})`)
  if (left.length > MAX_NAMES) lines.push(`and ${left.length - MAX_NAMES} more stay`)
  if (report.outside?.length) lines.push(`changed outside of the project, and left; \`ctrlz undo --outside\` puts it back: ${names(report.outside.map(pathOf))}`)
  if (report.git_hint) lines.push(`your own git, if you want it back too: ${report.git_hint}`)
  return lines.join("\n")
}

function count(files: unknown[]): string {
  return files.length === 1 ? "1 file" : `${files.length} files`
}

function pathOf(action: { path: unknown }): unknown {
  return action.path
}

/**
 * OpenCode's `Snapshot` over `ctrlz rpc`: the same methods, the same answers, none of the losses.
 *
 * As there, no method fails. What could not be done is `undefined`, `""`, `[]` or nothing at all,
 * and a line in the log. Files are only ever removed where the snapshot proves that they did not
 * exist, and nothing outside the instance's directory is written.
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
  /** Where the instance works: the work tree or a directory in it. */
  directory: string
  /** The root of the repository. */
  worktree: string
  /** Snapshots are taken in git projects only. */
  vcs?: string
  /** What the configuration says. Default: on. */
  enabled?: boolean
  /** Where stores lie. Default: where ctrlz has them. */
  dataDir?: string
  log?(text: string): void
}

/** Reading a large repository may take its time; OpenCode never gives up either. */
const READING_MILLIS = 600_000
const FIRST_CLEANUP_MILLIS = 60_000
const CLEANUP_MILLIS = 3_600_000
const KEEP_DAYS = 7
const NAMES_ABSENT = ["unknown_snapshot", "purged", "not_a_hash", "not_a_snapshot"]

export type Snapshot = ReturnType<typeof createSnapshot>

export function createSnapshot(instance: Instance) {
  const { directory, worktree, log = () => {} } = instance
  const rpc = new Rpc()
  const place = { dir: directory, profile: "opencode", ...(instance.dataDir ? { data_dir: instance.dataDir } : {}) }
  const scope = relative(worktree, directory)
  const within = scope ? { paths: [scope] } : {}
  const isEnabled = instance.vcs === "git" && instance.enabled !== false
  /** Names that are no UTF-8 go out as text and come back as the bytes they are. */
  const bytes = new Map<string, unknown>()
  let timer: NodeJS.Timeout | undefined

  const call = (method: string, params: Record<string, unknown>) => rpc.call(method, { ...place, ...params }, READING_MILLIS)

  const orElse = async <T>(what: string, otherwise: T, work: () => Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      log(`${what}: ${(error as Error).message}`)
      return otherwise
    }
  }

  const nameOf = (path: unknown): string => {
    const text = pathText(path)
    if (typeof path !== "string") bytes.set(text, path)
    return text
  }

  const everyHour = (millis: number) => {
    timer = setTimeout(() => void self.cleanup().then(() => everyHour(CLEANUP_MILLIS)), millis)
    timer.unref?.()
  }

  const self = {
    /** Starts the hourly cleaning. */
    async init(): Promise<void> {
      if (!timer) everyHour(FIRST_CLEANUP_MILLIS)
    },

    /** Drops what is older than a week. */
    async cleanup(): Promise<void> {
      if (isEnabled) await orElse("cleanup", undefined, () => call("gc", { keep_days: KEEP_DAYS }))
    },

    /** Records the work tree; `undefined` if snapshots are off, or nothing could be recorded. */
    async track(): Promise<string | undefined> {
      if (!isEnabled) return undefined
      return orElse("track", undefined, async () => (await call("track", {})).hash || undefined)
    },

    /** The files that changed since, absolute. */
    async patch(hash: string): Promise<Patch> {
      return orElse("patch", { hash, files: [] as string[] }, async () => {
        const { files } = await call("patch", { hash, relative: true })
        const named: string[] = (files ?? []).map(nameOf)
        const own = named.filter((file) => !scope || file === scope || file.startsWith(`${scope}/`))
        return { hash, files: own.map((file) => `${worktree.replaceAll("\\", "/")}/${file}`) }
      })
    },

    /** Writes every file of a snapshot; files created since stay. */
    async restore(hash: string): Promise<void> {
      await orElse("restore", undefined, async () => told(log, await call("restore", { hash, ...within })))
    },

    /** Takes files back, each to the first hash that names it; what was not there is removed. */
    async revert(patches: Patch[]): Promise<void> {
      let rest = oldestFirst(patches, worktree, bytes)
      while (rest.length) {
        const report = await orElse("revert", undefined, async () => {
          try {
            return await call("revert", { patches: rest, allow_mass_removal: true })
          } catch (error) {
            if (!NAMES_ABSENT.includes((error as Refusal).kind)) throw error
            const known = await withoutUnknown(call, rest, log)
            if (known.length === rest.length) throw error
            rest = known
            return "again"
          }
        })
        if (report === "again") continue
        if (report) told(log, report)
        return
      }
    },

    /** What changed since, as text. */
    async diff(hash: string): Promise<string> {
      return orElse("diff", "", async () => (await withIgnored(call, hash)).trim())
    },

    /** What changed between two snapshots, file by file. */
    async diffFull(from: string, to: string): Promise<FileDiff[]> {
      return orElse("diffFull", [] as FileDiff[], async () => {
        const files = await allFiles(call, { from, to, ...within })
        if (!files.length) return []
        const text = await allText(call, { from, to, paths: files.map((one) => one.file) })
        const hunks = perFile(text)
        return files.map((one, at) => fileDiff(nameOf(one.file), one, hunks.length === files.length ? hunks[at] : undefined))
      })
    },

    /** Lets the child process go. */
    close(): void {
      clearTimeout(timer)
      rpc.close()
    },
  }
  return self
}

type Call = (method: string, params: Record<string, unknown>) => Promise<any>

function told(log: (text: string) => void, report: any): void {
  for (const one of report.kept ?? []) if (one.failure) log(`stays: ${pathText(one.path)} (${one.text})`)
}

/** One entry per hash, in order; a file counts where it comes first, and only inside the work tree. */
function oldestFirst(patches: Patch[], worktree: string, bytes: Map<string, unknown>): { hash: string; files: unknown[] }[] {
  const seen = new Set<string>()
  const taken = patches.map(({ hash, files }) => {
    const fresh = files
      .filter((file) => !seen.has(file) && seen.add(file))
      .map((file) => relative(worktree, isAbsolute(file) ? file : join(worktree, file)))
      .filter((file) => file && !file.startsWith(".."))
    return { hash, files: fresh.map((file) => bytes.get(file) ?? file) }
  })
  return taken.filter(({ files }) => files.length)
}

/** An unknown hash says nothing about its files, so they stay as they are; the others go on. */
async function withoutUnknown(call: Call, patches: { hash: string; files: unknown[] }[], log: (text: string) => void) {
  const known = []
  for (const patch of patches) {
    try {
      await call("show", { hash: patch.hash })
      known.push(patch)
    } catch (error) {
      log(`revert: ${(error as Error).message}`)
    }
  }
  return known
}

async function allText(call: Call, params: Record<string, unknown>): Promise<string> {
  let text = ""
  for (let more: any = {}; more; ) {
    const part = await call("diff", { ...params, ...more })
    text += part.text ?? ""
    more = part.truncated && part.next ? { to: part.to, offset: part.next } : undefined
  }
  return text
}

/** What changed, with what is ignored by now as deleted: OpenCode hides that everywhere but here. */
async function withIgnored(call: Call, hash: string): Promise<string> {
  const all = await call("patch", { hash, relative: true, options: { hide_ignored: false } })
  const { files, to } = await call("changes", { from: hash })
  const text = await allText(call, { from: hash, to })
  const seen = new Set((files ?? []).map((one: any) => pathText(one.path)))
  const hidden = (all.files ?? []).filter((path: unknown) => !seen.has(pathText(path)))
  const chunks = text.split(/^(?=diff --git )/m)
  if (!hidden.length || chunks.length !== seen.size) return text
  const named = [...seen].map((name, at) => [name as string, chunks[at]])
  for (const path of hidden) named.push([pathText(path), await deletion(call, hash, path)])
  const byName = ([one]: string[], [other]: string[]) => Buffer.compare(Buffer.from(one), Buffer.from(other))
  return named.sort(byName).map(([, chunk]) => chunk).join("")
}

async function deletion(call: Call, hash: string, path: unknown): Promise<string> {
  const { files } = await call("list_files", { hash, paths: [path] })
  const { content, encoding } = await call("show", { hash, path })
  const { id, mode } = files[0]
  const quoted = (name: string) => (/["\\\x00-\x1f\x7f]/.test(name) ? JSON.stringify(name) : name)
  const [a, b] = [quoted(`a/${pathText(path)}`), quoted(`b/${pathText(path)}`)]
  const head = `diff --git ${a} ${b}\ndeleted file mode ${mode}\nindex ${id}..${"0".repeat(id.length)}\n`
  if (encoding !== "utf-8" || content.includes("\0")) return `${head}Binary files ${a} and /dev/null differ\n`
  const lines = linesOf(content)
  if (!lines.length) return head
  const from = lines.length === 1 ? "1" : `1,${lines.length}`
  return `${head}--- ${a}\n+++ /dev/null\n@@ -${from} +0,0 @@\n${replaced(lines, content, [], "").join("\n")}\n`
}

async function allFiles(call: Call, params: Record<string, unknown>): Promise<any[]> {
  const files = []
  for (let more: any = {}; more; ) {
    const part = await call("diff_full", { ...params, ...more })
    files.push(...(part.files ?? []))
    more = part.truncated && part.next ? { offset: part.next } : undefined
  }
  return files
}

// --------------------------------------------------------------------------------- texts of patches

/** The hunks of each file. Only a header begins in the first column: content has its sign there. */
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

function fileDiff(file: string, one: any, hunks: string[] | undefined): FileDiff {
  const { additions, deletions, status, before, after } = one
  const isText = !one.binary && !one.omitted
  return { file, patch: isText ? wholePatch(file, before, after, hunks) : "", additions, deletions, status }
}

/** A patch that shows all of a file, as the `diff` package writes it with unlimited context. */
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

/** Hunks with everything between them, and after the last. */
function widened(was: string[], before: string, hunks: string[]): string[] {
  const body: string[] = []
  let at = 0
  for (const line of hunks) {
    const from = line.match(/^@@ -(\d+)(?:,(\d+))? /)
    if (from) {
      // Of an empty range git names the line before it.
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
