/**
 * OpenCode's `Snapshot` over `ctrlz rpc`: the same methods, the same answers, none of the losses.
 *
 * As there, no method fails. What could not be done is `undefined`, `""`, `[]` or nothing at all,
 * and a line in the log. Files are only ever removed where the snapshot proves that they did not
 * exist, and nothing outside the instance's directory is written.
 */
import { isAbsolute, join, relative } from "node:path"

import { Refusal, Rpc } from "./rpc"
import { pathText } from "./words"

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
