/**
 * OpenCode's `Snapshot` interface over `ctrlz rpc`: the same methods with the same results.
 *
 * As in OpenCode, no method fails. On an error it returns `undefined`, `""`, `[]` or nothing, and
 * logs the error. A file is deleted only if the snapshot proves that it did not exist, and nothing
 * outside the instance's directory is written.
 */
import { isAbsolute, join, relative } from "node:path"

import { pathText } from "../../clients/typescript/src/path"
import type * as wire from "../../clients/typescript/src/wire"
import { isKind, messageOf, Rpc, type Method, type Params, type Result } from "./rpc"

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
