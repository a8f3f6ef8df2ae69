/**
 * ctrlz for OpenCode, and for Kilo, which is made from it: every tool call is a step, and when the
 * user undoes, redoes or forks in OpenCode, the files go along.
 *
 * While this is at work OpenCode's own snapshots are switched off: two programs that put files back
 * for the same `/undo` would undo each other, and its own overwrites what the user did since.
 * Where `ctrlz` does not answer, OpenCode is left as it was. Nothing here throws into it.
 */
import { basename } from "node:path"

import { Notices } from "./notices"
import { Refusal, Rpc } from "./rpc"
import { Steps } from "./steps"
import { reported } from "./words"

type Message = { info: { id: string }; parts: { id: string; type: string; callID?: string }[] }
type Client = {
  session: { messages(options: { path: { id: string } }): Promise<{ data?: Message[] }> }
  tui: { showToast(options: { body: { title: string; message: string; variant: string } }): Promise<unknown> }
  app: { log(options: { body: { service: string; level: string; message: string } }): Promise<unknown> }
}
type Revert = { messageID: string; partID?: string }
type Session = { id: string; parentID?: string; revert?: Revert }
type Options = { keepSnapshots?: boolean }

/** Tools that cannot change a file. */
const READERS = ["read", "grep", "glob", "list", "webfetch", "websearch", "codesearch", "todowrite", "todoread", "question", "skill", "lsp"]
/** How long a prompt waits for files that are still being put back. */
const MOVE_MILLIS = 30_000

export const Ctrlz = async ({ client, directory }: { client: Client; directory: string }, options?: Options) => {
  const rpc = new Rpc()
  const steps = new Steps(rpc, basename(process.execPath).startsWith("kilo") ? "kilo" : "opencode")
  const notices = new Notices(rpc, steps)
  const files = new Files(rpc, client, directory)
  /** The message that each session works on. */
  const turns = new Map<string, string>()
  const parents = new Map<string, string>()

  const safely = async <T>(event: string, work: () => Promise<T>): Promise<T | undefined> => {
    const result = await steps.safely(work)
    const why = steps.report(directory, event)
    if (why) tell(client, `not recorded: ${why}`, "warning")
    return result
  }

  /** What a session's messages say has ended, since a tool that throws has no `after`. */
  const onPart = async (part: any) => {
    if (part.type !== "tool" || !["completed", "error"].includes(part.state?.status)) return
    await steps.end(part.sessionID, part.callID)
  }

  const onSession = (info: Session) => {
    if (info.parentID) parents.set(info.id, info.parentID)
    if (!options?.keepSnapshots) files.follow(info)
  }

  return {
    async config(config: { snapshot?: boolean }) {
      if (options?.keepSnapshots) return
      const answers = await safely("config", () => rpc.call("initialize", {}, 3_000))
      if (answers) config.snapshot = false
    },

    async "chat.message"(input: { sessionID: string }, output: { message: { id: string }; parts: any[] }) {
      turns.set(input.sessionID, output.message.id)
      await safely("chat.message", () => files.settle(input.sessionID))
      // What came before the turn is somebody else's; nobody waits for it but the first tool.
      void steps.safely(() => rpc.call("track", { dir: directory }, 600_000))
      const [notice, failures] = await Promise.all([notices.since(directory, input.sessionID), notices.failures(directory)])
      if (failures) tell(client, failures, "warning")
      if (notice) output.parts.push(textPart(input.sessionID, output.message.id, notice))
    },

    async "tool.execute.before"(input: { tool: string; sessionID: string; callID: string }, output: { args: unknown }) {
      if (READERS.includes(input.tool)) return
      const { sessionID: session, callID: call, tool } = input
      const message = turns.get(session) ?? session
      const parent = parents.has(session) ? { session: parents.get(session) as string } : undefined
      await safely("tool.execute.before", () => steps.begin({ dir: directory, session, message, call, tool, input: output.args, parent }))
    },

    async "tool.execute.after"(input: { sessionID: string; callID: string }) {
      await safely("tool.execute.after", () => steps.end(input.sessionID, input.callID))
    },

    async event({ event }: { event: { type: string; properties: any } }) {
      const { type, properties } = event
      if (type === "message.part.updated") await safely(type, () => onPart(properties.part))
      if (type === "session.idle" || type === "session.error") await safely(type, () => steps.endAll(properties.sessionID))
      if (type === "session.created" || type === "session.updated") onSession(properties.info)
    },

    async dispose() {
      rpc.close()
    },
  }
}

/** Takes the files where OpenCode takes the conversation. */
class Files {
  private readonly rpc: Rpc
  private readonly client: Client
  private readonly dir: string
  /** The boundary each session is reverted to, as far as it was followed. */
  private readonly followed = new Map<string, string>()
  /** One move at a time: each starts from where the last one ended. */
  private moves: Promise<unknown> = Promise.resolve()

  constructor(rpc: Rpc, client: Client, dir: string) {
    this.rpc = rpc
    this.client = client
    this.dir = dir
  }

  /** Notes where a session stands; if that moved, the files follow. */
  follow(info: Session): void {
    const { id, revert } = info
    const wanted = revert ? `${revert.messageID} ${revert.partID ?? ""}` : ""
    if (this.followed.get(id) === wanted) return
    const isFirstSight = !this.followed.has(id)
    this.followed.set(id, wanted)
    this.move(async () => {
      if (revert) await this.goBack(id, revert)
      // The first news of a session that is not reverted says nothing, unless it was when we ended.
      else if (!isFirstSight || (await this.state(id))) await this.comeBack(id)
    })
  }

  /** Waits for the files, and makes a revert final, as OpenCode does when it is prompted. */
  async settle(session: string): Promise<void> {
    await this.moves
    this.followed.set(session, "")
    if (await this.state(session)) await this.rpc.call("commit_revert", { dir: this.dir, session })
  }

  private move(work: () => Promise<void>): void {
    this.moves = this.moves.then(work).catch((error: Error) => tell(this.client, error.message, "error"))
  }

  private async state(session: string): Promise<any> {
    return (await this.rpc.call("revert_state", { dir: this.dir, session })).reverted
  }

  private async goBack(session: string, to: Revert): Promise<void> {
    const messages = await this.messages(session)
    const calls = callsFrom(messages, to)
    const recorded = await this.recorded(session, messages)
    const first = recorded.find((step) => calls.has(step.part))
    if (!first) {
      if (await this.state(session)) await this.take("unrevert", { session })
      return
    }
    const isWhole = recorded.find((step) => step.message === first.message) === first
    const part = isWhole ? undefined : first.part
    await this.take("revert_to", { session, message: first.message, part })
  }

  /** A revert that is over was either taken back, or made final: then its messages are gone. */
  private async comeBack(session: string): Promise<void> {
    const state = await this.state(session)
    if (!state) return
    const calls = [...callsFrom(await this.messages(session))]
    const isKept = state.steps.some((step: string) => calls.some((call) => step.endsWith(`:${call}`)))
    if (isKept) await this.take("unrevert", { session })
    else await this.rpc.call("commit_revert", { dir: this.dir, session })
  }

  private async take(method: "revert_to" | "unrevert", params: Record<string, unknown>): Promise<void> {
    // The user said so, in so many words, and can say the opposite: no guard is asked again.
    const all = { ...params, dir: this.dir, interrupt: true, allow_mass_removal: true }
    const report = await this.rpc.call(method, all, MOVE_MILLIS)
    const did = method === "unrevert" ? "brought back" : "took back"
    if (report.done.length || !report.complete) {
      tell(this.client, reported(report, did), report.complete ? "info" : "warning")
    }
  }

  private async messages(session: string): Promise<Message[]> {
    return (await this.client.session.messages({ path: { id: session } })).data ?? []
  }

  /** The steps behind a session's messages, oldest first; a fork has copies of another's. */
  private async recorded(session: string, messages: Message[]): Promise<any[]> {
    const calls = callsFrom(messages)
    const known = (one: any) => calls.has(one.part)
    const own = (await this.rpc.call("steps", { dir: this.dir, session })).steps.filter(known)
    const { steps } = await this.rpc.call("steps", { dir: this.dir })
    const origin = steps.find((one: any) => known(one) && one.session !== session)?.session
    if (!origin) return own
    const original = steps.filter((one: any) => one.session === origin)
    await this.shareHistory(origin, session, original.find((one: any) => !known(one))?.message)
    return [...original.filter(known), ...own]
  }

  private async shareHistory(origin: string, session: string, at: string | undefined): Promise<void> {
    try {
      await this.rpc.call("fork", { dir: this.dir, session: origin, id: session, at })
    } catch (error) {
      if ((error as Refusal).kind !== "session_exists") throw error
    }
  }
}

/** The tool calls of a conversation, from a boundary on or all of them. */
function callsFrom(messages: Message[], from?: Revert): Set<string> {
  const at = from ? messages.findIndex((one) => one.info.id === from.messageID) : 0
  if (at < 0) return new Set()
  const parts = messages.slice(at).flatMap((one) => one.parts)
  const skip = from?.partID ? parts.findIndex((part) => part.id === from.partID) : 0
  return new Set(parts.slice(Math.max(0, skip)).flatMap((part) => part.callID ?? []))
}

/**
 * Shows something where there is a screen, and logs it everywhere. Nobody waits for it: the server
 * that is asked may itself be waiting for this plugin.
 */
function tell(client: Client, message: string, variant: "info" | "warning" | "error"): void {
  const level = variant === "warning" ? "warn" : variant
  void Promise.allSettled([
    client.tui.showToast({ body: { title: "ctrlz", message, variant } }),
    client.app.log({ body: { service: "ctrlz", level, message } }),
  ])
}

/** A part for the model alone; its id sorts after those OpenCode has made. */
function textPart(sessionID: string, messageID: string, text: string) {
  const time = (BigInt(Date.now()) * 0x1000n + 0xfffn) & 0xffffffffffffn
  const id = `prt_${time.toString(16).padStart(12, "0")}${Math.random().toString(36).slice(2).padEnd(14, "0").slice(0, 14)}`
  return { id, sessionID, messageID, type: "text", text, synthetic: true }
}
