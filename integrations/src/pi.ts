/**
 * ctrlz for pi: every tool call is a step that `/undo` takes back, and `/fork` can take the files
 * along with the conversation.
 *
 * Works with both generations of pi's session events (before and since 0.65). Snapshots are
 * entries in pi's own session tree, so they survive resume, fork and reload; an entry's hash is
 * all that is needed to go back to it. Nothing here throws into pi or blocks it for long.
 */
import { readFileSync } from "node:fs"

import { redo, timeline, undo, type Talk } from "./commands"
import { Notices } from "./notices"
import { Refusal, Rpc } from "./rpc"
import { Steps, soon } from "./steps"
import { count, names, pathOf, pathText, reported } from "./words"

type Entry = { id: string; type: string; customType?: string; data?: any; message?: { role: string } }
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
type Pi = {
  on(name: string, handler: (event: any, ctx: Context) => unknown): void
  registerCommand(name: string, command: { description: string; handler(args: string, ctx: Context): Promise<void> }): void
  appendEntry(type: string, data: unknown): void
}

/** What a snapshot entry holds: the state after a run, and the state before the message it ran for. */
type Mark = { hash: string; message?: string; before?: string }

const ENTRY = "ctrlz"
/** Tools of pi that cannot change a file. */
const READERS = ["read", "grep", "find", "ls"]
/** A prompt waits no longer than this for the baseline; a tool that writes waits for its own snapshot. */
const BASELINE_MILLIS = 300
/** Old snapshots are dropped once in a while, when the session has long begun. */
const GC_DELAY_MILLIS = 60_000
const GC_KEEP_DAYS = 7

export default function ctrlz(pi: Pi): void {
  const rpc = new Rpc()
  const steps = new Steps(rpc, "pi")
  const notices = new Notices(rpc, steps)
  /** The run that is under way: what its first step saw. */
  let run: { message?: string; before?: string } | undefined
  let baseline: Promise<void> | undefined
  let gc: NodeJS.Timeout | undefined

  /** A handler that pi never hears a failure from. */
  const on = (name: string, handler: (event: any, ctx: Context) => Promise<unknown>) =>
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

  const arrive = async (event: any, ctx: Context) => {
    run = undefined
    const session = ctx.sessionManager.getSessionId()
    const isFork = event.reason === "fork" || event.type === "session_fork"
    if (isFork && event.previousSessionFile) await shareHistory(rpc, ctx, event.previousSessionFile)
    clearTimeout(gc)
    gc = setTimeout(() => collect(ctx.cwd), GC_DELAY_MILLIS)
    gc.unref?.()
    // Not awaited: the first snapshot of a large tree must not delay the session.
    baseline = steps.safely(async () => {
      const { hash } = await rpc.call("track", { dir: ctx.cwd }, 600_000)
      // Once the agent runs, the entry would come after the message; its first step covers that.
      if (hash && !run && ctx.sessionManager.getSessionId() === session) mark(ctx, { hash })
    }) as Promise<void>
  }

  on("session_start", arrive)
  on("session_switch", arrive)
  on("session_fork", arrive)

  on("before_agent_start", async (_event, ctx) => {
    await soon(baseline, BASELINE_MILLIS)
    run = {}
    const [notice, failures] = await Promise.all([
      notices.since(ctx.cwd, ctx.sessionManager.getSessionId()),
      notices.failures(ctx.cwd),
    ])
    if (failures) warn(ctx, `ctrlz: ${failures}`)
    if (notice) return { message: { customType: ENTRY, content: notice, display: true } }
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

  command("undo", "Take back what the last turn did to files (ctrlz)", (args, ctx) => undo(rpc, here(ctx), args, talk(ctx)))
  command("redo", "Bring back what the last undo took back (ctrlz)", (_args, ctx) => redo(rpc, here(ctx), talk(ctx)))
  command("timeline", "Show what happened to the files (ctrlz)", (_args, ctx) => timeline(rpc, here(ctx), talk(ctx)))
}

function here(ctx: Context) {
  return { dir: ctx.cwd, session: ctx.sessionManager.getSessionId() }
}

function talk(ctx: Context): Talk {
  if (!ctx.hasUI) return { tell: (text) => console.error(text) }
  return { tell: (text, level) => ctx.ui.notify(text, level), confirm: (title, text) => ctx.ui.confirm(title, text) }
}

/** In a process of its own: calls on one work tree wait for each other, and nobody waits for this. */
function collect(dir: string): void {
  const rpc = new Rpc()
  rpc.call("gc", { dir, keep_days: GC_KEEP_DAYS }, 600_000).then(
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
  return entry.type === "custom" && entry.customType === ENTRY ? entry.data : undefined
}

function nearest(branch: Entry[]): Mark | undefined {
  return branch.map(markOf).filter(Boolean).at(-1)
}

/** Makes the steps that a fork shares with its original its own, as far as they can be taken back. */
async function shareHistory(rpc: Rpc, ctx: Context, previousFile: string): Promise<void> {
  const id = ctx.sessionManager.getSessionId()
  const session = sessionOf(previousFile)
  if (!session || session === id) return
  const shared = new Set(ctx.sessionManager.getBranch().map((entry) => entry.id))
  const { steps } = await rpc.call("steps", { dir: ctx.cwd, session })
  const at = steps.find((step: any) => step.message && !shared.has(step.message))?.message
  try {
    await rpc.call("fork", { dir: ctx.cwd, session, id, at })
  } catch (error) {
    // pi can say twice that a session begins, and an original that changed nothing has no history.
    if (!["session_exists", "no_such_session", "no_such_message"].includes((error as Refusal).kind)) throw error
  }
}

function sessionOf(file: string): string | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8").split("\n", 1)[0]).id
  } catch {
    return file.match(/_([0-9a-f-]{36})\.jsonl$/)?.[1]
  }
}

// ------------------------------------------------------------------ going back with a conversation

/** Asks what to do with the files when the conversation goes back to an entry, and does it. */
async function offer(rpc: Rpc, ctx: Context, entryId: string, position: "before" | "at"): Promise<void> {
  const hash = stateAt(ctx, entryId, position)
  // Without somebody to ask, files stay as they are.
  if (!hash || !ctx.hasUI) return
  try {
    await choose(rpc, ctx, entryId, position, hash)
  } catch (error) {
    const { kind, message } = error as Refusal
    const gone = ["unknown_snapshot", "purged"].includes(kind)
    const why = gone ? "the snapshot of that moment is no longer kept" : message
    ctx.ui.notify(`ctrlz: ${why}; files stay as they are`, "warning")
  }
}

/** The state of the files when the conversation stood at an entry. */
function stateAt(ctx: Context, entryId: string, position: "before" | "at"): string | undefined {
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

async function choose(rpc: Rpc, ctx: Context, entryId: string, position: "before" | "at", hash: string): Promise<void> {
  const { files } = await rpc.call("changes", { dir: ctx.cwd, from: hash })
  if (!files.length) return
  const own = await planOwn(rpc, ctx, entryId, position)
  const ours = new Set((own?.done ?? []).map((action: any) => pathText(action.path)))
  const others = files.filter((file: any) => !ours.has(pathText(file.path)))
  const created = files.filter((file: any) => file.status === "added")
  const takeBack = `Take back what this session did (${count(own?.done ?? [])})`
  const restore = `Restore everything to then (${count(files)}${created.length ? `, deletes ${names(created.map(pathOf), 5)}` : ""})`
  const leave = "Leave the files as they are"
  const options = [...(own?.done.length ? [takeBack] : []), restore, leave]
  const choice = await ctx.ui.select(title(files, own, others), options)
  if (choice === takeBack) {
    const report = await rpc.call("undo", { ...own.params, plan: own.plan }, 120_000)
    ctx.ui.notify(reported(report, "took back"), report.complete ? "info" : "warning")
  } else if (choice === restore) {
    const report = await rpc.call("restore", { dir: ctx.cwd, hash, exact: true }, 120_000)
    ctx.ui.notify(reported(report, "restored"), report.complete ? "info" : "warning")
  }
}

function title(files: any[], own: any, others: any[]): string {
  const lines = [`${count(files)} changed since: ${names(files.map(pathOf), 10)}`]
  if (own?.done.length && others.length) lines.push(`changed by others, kept unless you restore everything: ${names(others.map(pathOf), 10)}`)
  return lines.join("\n")
}

/** What taking back this session's steps from there on would do; nothing if it has none. */
async function planOwn(rpc: Rpc, ctx: Context, entryId: string, position: "before" | "at"): Promise<any> {
  const branch = ctx.sessionManager.getBranch()
  const at = branch.findIndex((entry) => entry.id === entryId)
  // On another branch, steps from here on are not what lies between.
  if (at < 0) return undefined
  const prompts = branch.slice(position === "before" ? at : at + 1).filter(isPrompt)
  for (const { id } of prompts) {
    const params = { ...here(ctx), scope: { from: { message: id } } }
    try {
      return { ...(await rpc.call("plan_undo", params)), params }
    } catch (error) {
      const none = ["no_such_message", "no_such_session", "nothing_to_undo"]
      if (!none.includes((error as Refusal).kind)) throw error
    }
  }
  return undefined
}
