/**
 * ctrlz for pi: records every tool call as a step that `/undo` can undo. `/fork` and `/tree` can
 * restore the files together with the conversation.
 *
 * Supports both generations of pi's session events (before and since 0.65). Snapshots are entries in
 * pi's own session tree, so they survive resume, fork and reload. The hash in an entry is sufficient
 * to restore it. No handler throws into pi or blocks it without a time limit.
 */
import { readFileSync } from "node:fs"

import { within } from "../../clients/typescript/src/child"
import type * as wire from "../../clients/typescript/src/wire"
import { redo, timeline, undo, WRITE_MILLIS, type Talk } from "./commands"
import { Notices } from "./notices"
import { isKind, messageOf, Rpc } from "./rpc"
import { Steps } from "./steps"
import { count, names, reported } from "./words"

type Entry = { id: string; type: string; customType?: string; data?: unknown; message?: { role: string } }
type Context = {
  cwd: string
  hasUI: boolean
  ui: {
    select(title: string, options: string[]): Promise<string | undefined>
    confirm(title: string, text: string): Promise<boolean>
    notify(text: string, level: string): void
    setStatus(key: string, text: string | undefined): void
  }
  sessionManager: {
    getSessionId(): string
    getBranch(from?: string): Entry[]
    getEntry(id: string): Entry | undefined
  }
  waitForIdle?(): Promise<void>
}
type SessionEvent = { type?: string; reason?: string; previousSessionFile?: string }
type Position = "before" | "at"
/** The events that are handled, with the fields that are read. */
type Events = {
  session_start: SessionEvent
  session_switch: SessionEvent
  session_fork: SessionEvent
  before_agent_start: unknown
  tool_call: { toolName: string; toolCallId: string; input: unknown }
  tool_result: { toolCallId: string }
  agent_end: unknown
  session_before_fork: { entryId: string; position?: Position }
  session_before_tree: { preparation: { targetId: string } }
  session_shutdown: unknown
}
type Handler<E extends keyof Events> = (event: Events[E], ctx: Context) => Promise<unknown>
type Pi = {
  on<E extends keyof Events>(name: E, handler: Handler<E>): void
  registerCommand(name: string, command: { description: string; handler(args: string, ctx: Context): Promise<void> }): void
  appendEntry(type: string, data: unknown): void
}

/** Data of a snapshot entry: the state after a run, its message, and the state before that message. */
type Mark = { hash: string; message?: string; before?: string }

const ENTRY = "ctrlz"
/** Time limit for snapshots in the background, which nothing waits for. */
const SNAPSHOT_MILLIS = 600_000
/** Tools of pi that cannot change files. */
const READERS = ["read", "grep", "find", "ls"]
/** Time that a prompt waits for the baseline. Tools that write wait for their own snapshot instead. */
const BASELINE_MILLIS = 300
/** Delay before old snapshots are dropped, so that the start of a session stays fast. */
const GC_DELAY_MILLIS = 60_000
const GC_KEEP_DAYS = 7

export default function ctrlz(pi: Pi): void {
  const rpc = new Rpc()
  const steps = new Steps(rpc, "pi")
  const notices = new Notices(rpc, steps)
  /** The current run: its message, and the state before its first step. */
  let run: { message?: string; before?: string } | undefined
  let baseline: Promise<void> | undefined
  let gc: NodeJS.Timeout | undefined

  /** Registers a handler whose errors do not reach pi. */
  const on = <E extends keyof Events>(name: E, handler: Handler<E>) =>
    pi.on(name, async (event, ctx) => {
      const result = await steps.safely(() => handler(event, ctx))
      showTrouble(ctx, name)
      return result
    })

  const showTrouble = (ctx: Context, event: string) => {
    const why = steps.report(ctx.cwd, event)
    if (why) warn(ctx, `ctrlz: not recorded: ${why}`)
  }

  const warn = (ctx: Context, text: string) => {
    if (ctx.hasUI) ctx.ui.setStatus("ctrlz", text)
    else console.error(text)
  }

  const mark = (ctx: Context, mark: Mark) => {
    if (nearest(ctx.sessionManager.getBranch())?.hash === mark.hash && !mark.message) return
    pi.appendEntry(ENTRY, mark)
  }

  const arrive = async (event: SessionEvent, ctx: Context) => {
    run = undefined
    const session = ctx.sessionManager.getSessionId()
    const isFork = event.reason === "fork" || event.type === "session_fork"
    if (isFork && event.previousSessionFile) await shareHistory(rpc, ctx, event.previousSessionFile)
    clearTimeout(gc)
    gc = setTimeout(() => collect(ctx.cwd), GC_DELAY_MILLIS)
    gc.unref?.()
    // Not awaited: the first snapshot of a large tree must not delay the session.
    baseline = steps.safely(async () => {
      const { hash } = await rpc.call("track", { dir: ctx.cwd }, SNAPSHOT_MILLIS)
      // Once the agent runs, the entry would follow the message. The first step covers that case.
      if (hash && !run && ctx.sessionManager.getSessionId() === session) mark(ctx, { hash })
    })
  }

  on("session_start", arrive)
  on("session_switch", arrive)
  on("session_fork", arrive)

  on("before_agent_start", async (_event, ctx) => {
    if (baseline) await within(BASELINE_MILLIS, baseline)
    run = {}
    const [notice, failures] = await Promise.all([
      notices.since(ctx.cwd, ctx.sessionManager.getSessionId()),
      notices.failures(ctx.cwd),
    ])
    if (failures) warn(ctx, `ctrlz: ${failures}`)
    return notice ? { message: { customType: ENTRY, content: notice, display: true } } : undefined
  })

  on("tool_call", async (event, ctx) => {
    if (READERS.includes(event.toolName)) return
    const session = ctx.sessionManager.getSessionId()
    const message = lastPrompt(ctx.sessionManager.getBranch()) ?? session
    const call = { dir: ctx.cwd, session, message, call: event.toolCallId, tool: event.toolName, input: event.input }
    const before = await steps.begin(call)
    run ??= {}
    if (run.message !== message) run = { message, before }
  })

  on("tool_result", async (event, ctx) => {
    await steps.end(ctx.sessionManager.getSessionId(), event.toolCallId)
  })

  on("agent_end", async (_event, ctx) => {
    await steps.endAll(ctx.sessionManager.getSessionId())
    const { hash } = await rpc.call("track", { dir: ctx.cwd })
    if (hash) mark(ctx, { hash, ...run })
    run = undefined
  })

  on("session_before_fork", async (event, ctx) => {
    await offer(rpc, ctx, event.entryId, event.position ?? "before")
  })

  on("session_before_tree", async (event, ctx) => {
    const target = event.preparation.targetId
    const isPrompt = ctx.sessionManager.getEntry(target)?.message?.role === "user"
    await offer(rpc, ctx, target, isPrompt ? "before" : "at")
  })

  on("session_shutdown", async (_event, ctx) => {
    clearTimeout(gc)
    await steps.endAll(ctx.sessionManager.getSessionId())
    rpc.close()
  })

  const command = (name: string, description: string, work: (args: string, ctx: Context) => Promise<string | undefined | void>) =>
    pi.registerCommand(name, {
      description,
      handler: async (args, ctx) => {
        await ctx.waitForIdle?.()
        const hash = await steps.safely(() => work(args, ctx))
        if (hash) mark(ctx, { hash })
        showTrouble(ctx, `/${name}`)
      },
    })

  command("undo", "Undo the file changes of the last turn (ctrlz)", (args, ctx) => undo(rpc, here(ctx), args, talk(ctx)))
  command("redo", "Reverse the last undo (ctrlz)", (_args, ctx) => redo(rpc, here(ctx), talk(ctx)))
  command("timeline", "Show the recorded file changes (ctrlz)", (_args, ctx) => timeline(rpc, here(ctx), talk(ctx)))
}

function here(ctx: Context) {
  return { dir: ctx.cwd, session: ctx.sessionManager.getSessionId() }
}

function talk(ctx: Context): Talk {
  if (!ctx.hasUI) return { tell: (text) => console.error(text) }
  return { tell: (text, level) => ctx.ui.notify(text, level), confirm: (title, text) => ctx.ui.confirm(title, text) }
}

/** Drops old snapshots, in a separate process because calls on the same work tree are serialized. */
function collect(dir: string): void {
  const rpc = new Rpc()
  rpc.call("gc", { dir, keep_days: GC_KEEP_DAYS }, SNAPSHOT_MILLIS).then(
    () => rpc.close(),
    () => rpc.close(),
  )
}

function isPrompt(entry: Entry): boolean {
  return entry.type === "message" && entry.message?.role === "user"
}

function lastPrompt(branch: Entry[]): string | undefined {
  return branch.filter(isPrompt).at(-1)?.id
}

function markOf(entry: Entry): Mark | undefined {
  return entry.type === "custom" && entry.customType === ENTRY ? (entry.data as Mark | undefined) : undefined
}

function nearest(branch: Entry[]): Mark | undefined {
  return branch.map(markOf).filter(Boolean).at(-1)
}

/** Adds the steps that a fork shares with its original to the fork, so that they can be undone there. */
async function shareHistory(rpc: Rpc, ctx: Context, previousFile: string): Promise<void> {
  const id = ctx.sessionManager.getSessionId()
  const session = sessionOf(previousFile)
  if (!session || session === id) return
  const shared = new Set(ctx.sessionManager.getBranch().map((entry) => entry.id))
  const { steps } = await rpc.call("steps", { dir: ctx.cwd, session })
  const at = steps.find((step) => step.message && !shared.has(step.message))?.message
  try {
    await rpc.call("fork", { dir: ctx.cwd, session, id, at })
  } catch (error) {
    // pi may announce a session twice, and an original without changes has no history.
    if (!isKind(error, "session_exists", "no_such_session", "no_such_message")) throw error
  }
}

function sessionOf(file: string): string | undefined {
  try {
    const header: { id?: string } = JSON.parse(readFileSync(file, "utf8").split("\n", 1)[0])
    return header.id
  } catch {
    return file.match(/_([0-9a-f-]{36})\.jsonl$/)?.[1]
  }
}

// ------------------------------------------------------------ restoring files with a conversation

/** Asks how the files should follow when the conversation goes back to an entry, and does it. */
async function offer(rpc: Rpc, ctx: Context, entryId: string, position: Position): Promise<void> {
  const hash = stateAt(ctx, entryId, position)
  // Without a UI the user cannot be asked, and the files stay unchanged.
  if (!hash || !ctx.hasUI) return
  try {
    await choose(rpc, ctx, entryId, position, hash)
  } catch (error) {
    const isGone = isKind(error, "unknown_snapshot", "purged")
    const why = isGone ? "the snapshot of that point no longer exists" : messageOf(error)
    ctx.ui.notify(`ctrlz: ${why}; the files are unchanged`, "warning")
  }
}

/** Returns the snapshot of the files at an entry of the conversation. */
function stateAt(ctx: Context, entryId: string, position: Position): string | undefined {
  const { sessionManager } = ctx
  const way = sessionManager.getBranch(entryId)
  const marks = sessionManager.getBranch().map(markOf)
  if (position === "before") {
    const own = marks.find((mark) => mark?.message === entryId && mark.before)
    return own?.before ?? nearest(way.slice(0, -1))?.hash
  }
  const message = lastPrompt(way)
  return marks.find((mark) => mark?.message && mark.message === message)?.hash ?? nearest(way)?.hash
}

async function choose(rpc: Rpc, ctx: Context, entryId: string, position: Position, hash: string): Promise<void> {
  const changes = await rpc.call("changes", { dir: ctx.cwd, from: hash })
  const files = "files" in changes ? changes.files : []
  if (!files.length) return
  const own = await planOwn(rpc, ctx, entryId, position)
  const undone = own?.plan.done ?? []
  const created = files.filter((file) => file.status === "added")
  const undoOwn = `Undo the changes of this session (${count(undone.length)})`
  const restore = `Restore everything to that point (${count(files.length)}${created.length ? `, deletes ${names(created, 5)}` : ""})`
  const leave = "Leave the files unchanged"
  const options = [...(undone.length ? [undoOwn] : []), restore, leave]
  const choice = await ctx.ui.select(title(files, undone), options)
  if (choice === undoOwn && own) {
    const report = await rpc.call("undo", { ...own.params, plan: own.plan.plan }, WRITE_MILLIS)
    ctx.ui.notify(reported(report, "undid changes in"), report.complete ? "info" : "warning")
  } else if (choice === restore) {
    const report = await rpc.call("restore", { dir: ctx.cwd, hash, exact: true }, WRITE_MILLIS)
    if ("done" in report) ctx.ui.notify(reported(report, "restored"), report.complete ? "info" : "warning")
  }
}

function title(files: wire.Change[], undone: wire.Action[]): string {
  const own = new Set(undone.map((action) => action.path))
  const others = files.filter((file) => !own.has(file.path))
  const lines = [`${count(files.length)} changed since: ${names(files, 10)}`]
  if (undone.length && others.length) lines.push(`changed by others, kept unless you restore everything: ${names(others, 10)}`)
  return lines.join("\n")
}

/** Plans an undo of this session's steps from an entry on. Returns `undefined` if there are none. */
async function planOwn(rpc: Rpc, ctx: Context, entryId: string, position: Position) {
  const branch = ctx.sessionManager.getBranch()
  const at = branch.findIndex((entry) => entry.id === entryId)
  // For an entry on another branch, the later steps are not the difference.
  if (at < 0) return undefined
  const prompts = branch.slice(position === "before" ? at : at + 1).filter(isPrompt)
  for (const { id } of prompts) {
    const params = { ...here(ctx), scope: { from: { message: id } } }
    try {
      return { params, plan: await rpc.call("plan_undo", params) }
    } catch (error) {
      if (!isKind(error, "no_such_message", "no_such_session", "nothing_to_undo")) throw error
    }
  }
  return undefined
}
