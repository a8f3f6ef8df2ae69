/**
 * Records tool calls as steps.
 *
 * No method throws or waits without a time limit, because the agent must continue even if nothing
 * is recorded. The last error is kept in `trouble` until `report` returns it.
 */
import type * as wire from "../../clients/typescript/src/wire"
import { isKind, messageOf, type Rpc } from "./rpc"

/** A tool call. */
export type Call = {
  dir: string
  session: string
  /** The agent's id of the user's message (the turn). */
  message: string
  /** The agent's id of the tool call, which becomes the part of the step. */
  call: string
  tool: string
  input: unknown
  /** The session that this one works for as a sub-agent. */
  parent?: { session: string }
}

/** Time limit for reporting a failure. The agent does not wait for it, except when it exits. */
const NOTE_MILLIS = 2_000

type Open = { dir: string; session: string; begun: Promise<string | undefined> }

export class Steps {
  /** Why something was not recorded, until it is reported. */
  trouble: string | undefined
  /** When the user last saw a failure, in milliseconds since the Unix epoch. */
  toldAtMillis = 0
  private readonly open = new Map<string, Open>()

  private readonly rpc: Rpc
  private readonly who: string
  private readonly place: wire.Place

  constructor(rpc: Rpc, who: string, place: wire.Place = {}) {
    this.rpc = rpc
    this.who = who
    this.place = place
  }

  /** Records the state before a call. Returns its hash, or `undefined` if it was not recorded. */
  async begin(call: Call): Promise<string | undefined> {
    const step = this.stepOf(call.session, call.call)
    const begun = this.safely(() => this.beginStep(step, call))
    this.open.set(step, { dir: call.dir, session: call.session, begun })
    return begun
  }

  /** Records the state after a call, whether it succeeded or not. */
  async end(session: string, call: string): Promise<void> {
    await this.endStep(this.stepOf(session, call))
  }

  /** Ends the open steps of a session: calls that were aborted, or whose tool threw. */
  async endAll(session: string): Promise<void> {
    const left = [...this.open].filter(([, open]) => open.session === session)
    await Promise.all(left.map(([step]) => this.endStep(step)))
  }

  /** Runs `work`. If it throws, keeps the reason and returns `undefined`. */
  async safely<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work()
    } catch (error) {
      if (!isExpected(error)) this.trouble = messageOf(error)
      return undefined
    }
  }

  /** Returns why something was not recorded, and stores it for `ctrlz status`. */
  report(dir: string, event: string): string | undefined {
    const why = this.trouble
    if (why === undefined) return undefined
    this.trouble = undefined
    this.toldAtMillis = Date.now()
    const failure = { ...this.place, dir, client: this.who, event, why }
    // Errors are ignored: the caller shows the reason anyway.
    this.rpc.call("note_failure", failure, NOTE_MILLIS).catch(() => {})
    return why
  }

  private async beginStep(step: string, call: Call): Promise<string | undefined> {
    const { dir, session, message, tool, parent, input } = call
    const begun = await this.rpc.call("begin_step", {
      ...this.place, dir, session, message, part: call.call, tool, parent, step, who: this.who,
      label: labelOf(input), files: filesOf(input), commands: commandsOf(input), cwd: cwdOf(input),
    })
    return "before" in begun ? begun.before : undefined
  }

  private async endStep(step: string): Promise<void> {
    const open = this.open.get(step)
    if (!open) return
    this.open.delete(step)
    if ((await open.begun) === undefined) return
    await this.safely(() => this.rpc.call("end_step", { ...this.place, dir: open.dir, step }))
  }

  private stepOf(session: string, call: string): string {
    return `${this.who}:${session}:${call}`
  }
}

/** Whether an error is not worth reporting: snapshots are disabled here, or the step has already ended. */
function isExpected(error: unknown): boolean {
  return isKind(error, "disabled", "not_git", "dangerous_root", "no_such_step")
}

/** Returns the values of these keys of a tool's input. */
function values(input: unknown, keys: string[]): unknown[] {
  const fields: { [key: string]: unknown } = { ...(input as object | undefined) }
  return keys.map((key) => fields[key])
}

function texts(input: unknown, ...keys: string[]): string[] {
  return values(input, keys).filter((value) => typeof value === "string")
}

const PATH_KEYS = ["path", "file_path", "filePath"]
/** Keys that only tools that write have. */
const WRITE_KEYS = ["content", "edits", "oldText", "old_string", "oldString", "newText"]

/** Returns the files that a tool will write. The keys differ between agents. */
function filesOf(input: unknown): string[] {
  const writes = values(input, WRITE_KEYS).some((value) => value !== undefined)
  return writes ? texts(input, ...PATH_KEYS) : []
}

/** Returns the shell commands that a tool will run. Paths in them are captured even if they are ignored. */
function commandsOf(input: unknown): string[] {
  return texts(input, "command").map(wellFormed)
}

/** Returns the working directory of the commands, if it differs from that of the agent. */
function cwdOf(input: unknown): string | undefined {
  return texts(input, "workdir", "cwd").find(Boolean)
}

/** Returns a label for display: the first line of the command, or the file. */
function labelOf(input: unknown): string | undefined {
  const [text] = texts(input, "command", ...PATH_KEYS)
  return text === undefined ? undefined : wellFormed(text.split("\n", 1)[0].slice(0, 200))
}

/** Replaces lone surrogates, such as half of an emoji at the cut. JSON cannot encode them. */
function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd")
}
