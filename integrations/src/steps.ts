/**
 * Tool calls as steps.
 *
 * In: "this call begins", "this call has ended". Out: recorded steps that can be taken back.
 * Nothing here throws or waits without bound: an agent goes on whether or not it is recorded, and
 * `trouble` keeps the reason until `report` hands it on.
 */
import { Refusal, type Rpc } from "./rpc"

/** One tool call. Its `call` is the client's id for it, and the step's part. */
export type Call = {
  dir: string
  session: string
  /** The client's id of the user's message: the turn. */
  message: string
  call: string
  tool: string
  input: unknown
  /** The turn that a sub-agent works for. */
  parent?: { session: string }
}

/** Where calls act beyond their directory: keys of `Place` in the schema. */
export type Place = Record<string, unknown>

/** How long leaving a failure behind may take; nobody waits for it, but an agent that ends does. */
const NOTE_MILLIS = 2_000

type Open = { dir: string; session: string; begun: Promise<string | undefined> }

export class Steps {
  /** Why something was not recorded, until it is reported. */
  trouble: string | undefined
  /** When somebody was last told of a failure. */
  toldAtMillis = 0
  private readonly open = new Map<string, Open>()

  private readonly rpc: Rpc
  private readonly who: string
  private readonly place: Place

  constructor(rpc: Rpc, who: string, place: Place = {}) {
    this.rpc = rpc
    this.who = who
    this.place = place
  }

  /** Records the state before a call; gives its hash, if there is one. */
  async begin(call: Call): Promise<string | undefined> {
    const step = this.stepOf(call.session, call.call)
    const begun = this.safely(() => this.beginStep(step, call)).then((done) => done?.before)
    this.open.set(step, { dir: call.dir, session: call.session, begun })
    return begun
  }

  /** Records the state after a call, whether it succeeded or not. */
  async end(session: string, call: string): Promise<void> {
    await this.endStep(this.stepOf(session, call))
  }

  /** Ends what a session left open: calls that were aborted, or whose tool threw. */
  async endAll(session: string): Promise<void> {
    const left = [...this.open].filter(([, open]) => open.session === session)
    await Promise.all(left.map(([step]) => this.endStep(step)))
  }

  /** Does something that may fail, and keeps the reason if it does. */
  async safely<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work()
    } catch (error) {
      if (!isQuiet(error)) this.trouble = (error as Error)?.message ?? String(error)
      return undefined
    }
  }

  /** Gives the reason why something was not recorded, and leaves it where `ctrlz status` shows it. */
  report(dir: string, event: string): string | undefined {
    const why = this.trouble
    if (why === undefined) return undefined
    this.trouble = undefined
    this.toldAtMillis = Date.now()
    const failure = { ...this.place, dir, client: this.who, event, why }
    // Where even this fails there is nothing to leave it with.
    this.rpc.call("note_failure", failure, NOTE_MILLIS).catch(() => {})
    return why
  }

  private async beginStep(step: string, call: Call): Promise<any> {
    const { dir, session, message, tool, parent, input } = call
    const start = { ...this.place, dir, session, message, part: call.call, tool, parent, step, who: this.who }
    const named = { label: labelOf(input), files: filesOf(input), commands: commandsOf(input), cwd: cwdOf(input) }
    return this.rpc.call("begin_step", { ...start, ...named })
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

/** Gives up waiting after a while; what is waited for goes on. */
export async function soon(work: Promise<unknown> | undefined, millis: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  await Promise.race([work, new Promise((resolve) => (timer = setTimeout(resolve, millis)))])
  clearTimeout(timer)
}

/** What is no trouble: nobody asked for snapshots here, or the session moved on by itself. */
function isQuiet(error: unknown): boolean {
  return error instanceof Refusal && ["disabled", "not_git", "dangerous_root", "no_such_step"].includes(error.kind)
}

/** The files a tool says it will write; agents differ in how they spell it. */
function filesOf(input: unknown): string[] {
  const { path, file_path, filePath, content, edits, oldText, old_string, oldString, newText } = (input ?? {}) as any
  const writes = [content, edits, oldText, old_string, oldString, newText].some((value) => value !== undefined)
  return writes ? [path, file_path, filePath].filter((value) => typeof value === "string") : []
}

/** The shell commands it will run: what they name is kept, also where no snapshot looks. */
function commandsOf(input: unknown): string[] {
  const { command } = (input ?? {}) as any
  return typeof command === "string" ? [command] : []
}

/** Where it will run them, if not where the agent is. */
function cwdOf(input: unknown): string | undefined {
  const { workdir, cwd } = (input ?? {}) as any
  return [workdir, cwd].find((value) => typeof value === "string" && value)
}

/** What a call is about, for people: its command, else its file. */
function labelOf(input: unknown): string | undefined {
  const { command, path, file_path, filePath } = (input ?? {}) as any
  const text = [command, path, file_path, filePath].find((value) => typeof value === "string")
  return text?.split("\n")[0].slice(0, 200)
}
