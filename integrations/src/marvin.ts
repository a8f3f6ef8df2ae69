/**
 * ctrlz for Marvin: records a baseline when a session starts or resumes, a checkpoint before every
 * turn, and every tool call as a step that `/undo` can undo.
 *
 * Marvin awaits `chat.message` and the tool hooks, but not `session.start` and the turn events.
 * Therefore the checkpoint of a turn starts with the message, and tools wait for it. Outside git
 * repositories the hook does nothing. No handler throws into Marvin or blocks it without a time limit.
 */
import { within } from "../../clients/typescript/src/child"
import { pathText } from "../../clients/typescript/src/path"
import { redo, timeline, undo, type Talk } from "./commands"
import { Notices } from "./notices"
import { Rpc } from "./rpc"
import { Steps } from "./steps"

type Context = {
  cwd: string
  sessionId: string | null
  hasUI: boolean
  ui: {
    confirm(title: string, text: string): Promise<boolean>
    notify(text: string, level: string): void
  }
}
type SessionEvent = { sessionId?: string; input?: unknown }
type ToolEvent = SessionEvent & { toolName: string; toolCallId: string; input?: unknown }
/** The events that are handled, with the fields that are read. */
type Events = {
  "session.start": SessionEvent
  "session.resume": SessionEvent
  "chat.message": SessionEvent & { output: { parts: { type: string; text: string }[] } }
  "tool.execute.before": ToolEvent
  "tool.execute.after": ToolEvent
  "agent.end": SessionEvent
  "session.shutdown": unknown
}
type Handler<E extends keyof Events> = (event: Events[E], ctx: Context) => Promise<void>
type Marvin = {
  on<E extends keyof Events>(name: E, handler: Handler<E>): void
  registerCommand(name: string, command: { description: string; handler(args: string, ctx: Context): Promise<void> }): void
}

/** Number of checkpoints to keep in addition to `latest` and `resume`. */
const KEEP = 100
/** Tools of Marvin that cannot change files. */
const READERS = ["read", "grep", "find", "ls"]
/** Time that a tool waits for the checkpoint of its turn. */
const CHECKPOINT_MILLIS = 10_000
/** Time limit for the checkpoint itself, which continues in the background. */
const SNAPSHOT_MILLIS = 600_000
const PLACE = { options: { require_git: true } }

export default function ctrlz(marvin: Marvin): void {
  const rpc = new Rpc()
  const steps = new Steps(rpc, "marvin", PLACE)
  const notices = new Notices(rpc, steps, PLACE)
  /** The current checkpoint, or the last one. */
  let checkpoint: Promise<void> = Promise.resolve()
  const begun = new Set<string>()
  let turn = ""
  let turns = 0

  /** Registers a handler whose errors do not reach Marvin. */
  const on = <E extends keyof Events>(name: E, handler: Handler<E>) =>
    marvin.on(name, async (event, ctx) => {
      await steps.safely(() => handler(event, ctx))
      const why = steps.report(ctx.cwd, name)
      if (why) console.error(`[ctrlz] not recorded: ${why}`)
    })

  const record = (kind: string, ctx: Context, session: string | undefined) => {
    checkpoint = checkpoint.then(() => steps.safely(() => makeCheckpoint(rpc, kind, ctx.cwd, session)))
  }

  on("session.start", async (event, ctx) => {
    const session = sessionOf(event, ctx)
    // Marvin announces a session more than once.
    if (begun.has(session)) return
    begun.add(session)
    record("resume", ctx, session)
  })

  on("session.resume", async (event, ctx) => record("resume", ctx, sessionOf(event, ctx)))

  on("chat.message", async (event, ctx) => {
    const session = sessionOf(event, ctx)
    turn = `${Date.now()}-${turns}`
    record(`turn-${turns++}`, ctx, session)
    const [notice, failures] = await Promise.all([notices.since(ctx.cwd, session), notices.failures(ctx.cwd)])
    if (failures) console.error(`[ctrlz] ${failures}`)
    if (notice) event.output.parts.push({ type: "text", text: notice })
  })

  on("tool.execute.before", async (event, ctx) => {
    await within(CHECKPOINT_MILLIS, checkpoint)
    if (READERS.includes(event.toolName)) return
    const session = sessionOf(event, ctx)
    await steps.begin({ dir: ctx.cwd, session, message: turn || session, call: event.toolCallId, tool: event.toolName, input: event.input })
  })

  on("tool.execute.after", async (event, ctx) => {
    await steps.end(sessionOf(event, ctx), event.toolCallId)
  })

  on("agent.end", async (event, ctx) => {
    await steps.endAll(sessionOf(event, ctx))
  })

  on("session.shutdown", async () => {
    rpc.close()
  })

  const command = (name: string, description: string, work: (args: string, ctx: Context) => Promise<unknown>) =>
    marvin.registerCommand(name, {
      description,
      handler: async (args, ctx) => {
        await steps.safely(() => work(args ?? "", ctx))
      },
    })

  command("undo", "Undo the file changes of the last turn (ctrlz)", (args, ctx) => undo(rpc, here(ctx), args, talk(ctx)))
  command("redo", "Reverse the last undo (ctrlz)", (_args, ctx) => redo(rpc, here(ctx), talk(ctx)))
  command("timeline", "Show the recorded file changes (ctrlz)", (_args, ctx) => timeline(rpc, here(ctx), talk(ctx)))
}

function here(ctx: Context) {
  return { dir: ctx.cwd, session: sessionOf({}, ctx) }
}

/** Returns the session of an event. Marvin announces sessions that it does not use, so none is remembered. */
function sessionOf(event: SessionEvent, ctx: Context): string {
  const input = event.input as { sessionId?: string } | undefined
  return event.sessionId ?? input?.sessionId ?? ctx.sessionId ?? "marvin"
}

function talk(ctx: Context): Talk {
  if (!ctx.hasUI) return { tell: (text) => console.error(`[ctrlz] ${text}`) }
  return { tell: (text, level) => ctx.ui.notify(text, level), confirm: (title, text) => ctx.ui.confirm(title, text) }
}

async function makeCheckpoint(rpc: Rpc, kind: string, dir: string, session: string | undefined): Promise<void> {
  const params = { ...PLACE, dir, kind, session, keep: KEEP }
  const made = await rpc.call("checkpoint", params, SNAPSHOT_MILLIS)
  if (!("snapshot" in made)) return
  const { store } = await rpc.call("status", { ...PLACE, dir })
  console.error(`[ctrlz] ${kind} tree=${made.snapshot} ref=${made.name} store=${pathText(store ?? "")}`)
}
