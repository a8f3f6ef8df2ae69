/**
 * ctrlz for Marvin: a baseline when a session starts or resumes, a checkpoint before every turn, and
 * every tool call as a step that `/undo` takes back.
 *
 * Marvin awaits `chat.message` and the tool hooks; `session.start` and the turn events it only
 * announces. So a turn's checkpoint begins with the message, and a tool waits for it. Outside git
 * this does nothing. Nothing here throws into Marvin or blocks it for long.
 */
import { redo, timeline, undo, type Talk } from "./commands"
import { Notices } from "./notices"
import { Rpc } from "./rpc"
import { Steps, soon } from "./steps"

type Context = {
  cwd: string
  sessionId: string | null
  hasUI: boolean
  ui: {
    confirm(title: string, text: string): Promise<boolean>
    notify(text: string, level: string): void
  }
}
type Marvin = {
  on(name: string, handler: (event: any, ctx: Context) => unknown): void
  registerCommand(name: string, command: { description: string; handler(args: string, ctx: Context): Promise<void> }): void
}

/** Checkpoints that are kept beside `latest` and `resume`. */
const KEEP = 100
/** Tools of Marvin that cannot change a file. */
const READERS = ["read", "grep", "find", "ls"]
/** How long a tool waits for the checkpoint before it. */
const CHECKPOINT_MILLIS = 10_000
const PLACE = { options: { require_git: true } }

export default function ctrlz(marvin: Marvin): void {
  const rpc = new Rpc()
  const steps = new Steps(rpc, "marvin", PLACE)
  const notices = new Notices(rpc, steps, PLACE)
  /** The checkpoint that is under way, or the last one. */
  let checkpoint: Promise<void> = Promise.resolve()
  const begun = new Set<string>()
  let turn = ""
  let turns = 0

  /** A handler that Marvin never hears a failure from. */
  const on = (name: string, handler: (event: any, ctx: Context) => Promise<unknown>) =>
    marvin.on(name, async (event, ctx) => {
      await steps.safely(() => handler(event, ctx))
      const why = steps.report(ctx.cwd, name)
      if (why) console.error(`[ctrlz] not recorded: ${why}`)
    })

  const record = (kind: string, ctx: Context, session: string | undefined) => {
    checkpoint = checkpoint.then(() => steps.safely(() => makeCheckpoint(rpc, kind, ctx.cwd, session))) as Promise<void>
  }

  on("session.start", async (event, ctx) => {
    const session = sessionOf(event, ctx)
    // It is announced more than once.
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
    await soon(checkpoint, CHECKPOINT_MILLIS)
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

  command("undo", "Take back what the last turn did to files (ctrlz)", (args, ctx) => undo(rpc, here(ctx), args, talk(ctx)))
  command("redo", "Bring back what the last undo took back (ctrlz)", (_args, ctx) => redo(rpc, here(ctx), talk(ctx)))
  command("timeline", "Show what happened to the files (ctrlz)", (_args, ctx) => timeline(rpc, here(ctx), talk(ctx)))
}

function here(ctx: Context) {
  return { dir: ctx.cwd, session: sessionOf({}, ctx) }
}

/** Marvin announces a session it then does not use, so every event is asked for its own. */
function sessionOf(event: any, ctx: Context): string {
  return event.sessionId ?? event.input?.sessionId ?? ctx.sessionId ?? "marvin"
}

function talk(ctx: Context): Talk {
  if (!ctx.hasUI) return { tell: (text) => console.error(`[ctrlz] ${text}`) }
  return { tell: (text, level) => ctx.ui.notify(text, level), confirm: (title, text) => ctx.ui.confirm(title, text) }
}

async function makeCheckpoint(rpc: Rpc, kind: string, dir: string, session: string | undefined): Promise<void> {
  const params = { ...PLACE, dir, kind, session, keep: KEEP }
  const { snapshot, name } = await rpc.call("checkpoint", params, 600_000)
  if (!snapshot) return
  const { store } = await rpc.call("status", { ...PLACE, dir })
  console.error(`[ctrlz] ${kind} tree=${snapshot} ref=${name} store=${store}`)
}
