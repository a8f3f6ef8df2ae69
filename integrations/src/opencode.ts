/**
 * ctrlz for OpenCode, and for Kilo, which is based on it: records every tool call as a step. When the
 * user undoes, redoes or forks in OpenCode, the files follow.
 *
 * While the plugin is active, OpenCode's own snapshots are disabled: otherwise both would restore
 * files for the same `/undo`, and OpenCode's restore overwrites later edits of the user. If `ctrlz`
 * does not answer, OpenCode is left unchanged. No handler throws into OpenCode.
 */
import { basename } from "node:path"

import type * as wire from "../../clients/typescript/src/wire"
import { Notices } from "./notices"
import { isKind, messageOf, Rpc } from "./rpc"
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
type ToolPart = { type: string; sessionID: string; callID: string; state?: { status: string } }
/** The fields of all events that are read. Each event has some of them. */
type Properties = { part: ToolPart; sessionID: string; info: Session }
type TextPart = ReturnType<typeof textPart>
/** A step of a tool call that OpenCode knows. */
type Recorded = { message: string; part: string }

/** Tools that cannot change files. */
const READERS = ["read", "grep", "glob", "list", "webfetch", "websearch", "codesearch", "todowrite", "todoread", "question", "skill", "lsp"]
/** Time limit for restoring files, which a prompt waits for. */
const MOVE_MILLIS = 30_000
/** Time limit for the snapshot before a turn, which runs in the background. */
const SNAPSHOT_MILLIS = 600_000

export const Ctrlz = async ({ client, directory }: { client: Client; directory: string }, options?: Options) => {
  const rpc = new Rpc()
  const steps = new Steps(rpc, basename(process.execPath).startsWith("kilo") ? "kilo" : "opencode")
  const notices = new Notices(rpc, steps)
  const files = new Files(rpc, client, directory)
  /** The current message of each session. */
  const turns = new Map<string, string>()
  const parents = new Map<string, string>()

  const safely = async <T>(event: string, work: () => Promise<T>): Promise<T | undefined> => {
    const result = await steps.safely(work)
    const why = steps.report(directory, event)
    if (why) tell(client, `not recorded: ${why}`, "warning")
    return result
  }

  /** Ends the step of a finished tool call. For a tool that throws, `tool.execute.after` is not called. */
  const onPart = async (part: ToolPart) => {
    if (part.type !== "tool" || !["completed", "error"].includes(part.state?.status ?? "")) return
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

    async "chat.message"(input: { sessionID: string }, output: { message: { id: string }; parts: TextPart[] }) {
      turns.set(input.sessionID, output.message.id)
      await safely("chat.message", () => files.commit(input.sessionID))
      // Records changes made before the turn. Not awaited; the first step is queued behind it.
      void steps.safely(() => rpc.call("track", { dir: directory }, SNAPSHOT_MILLIS))
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

    async event({ event }: { event: { type: string; properties: Properties } }) {
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

/** The user asked for the move and can reverse it, so no confirmation is required. */
const CONFIRMED = { interrupt: true, allow_mass_removal: true }

/** Moves the files to the same point as OpenCode's conversation. */
class Files {
  private readonly rpc: Rpc
  private readonly client: Client
  private readonly dir: string
  /** The boundary to which the files of each session were moved. */
  private readonly followed = new Map<string, string>()
  /** Queue of moves. Each starts after the previous one has ended. */
  private moves: Promise<unknown> = Promise.resolve()

  constructor(rpc: Rpc, client: Client, dir: string) {
    this.rpc = rpc
    this.client = client
    this.dir = dir
  }

  /** Moves the files if the boundary of a session has moved. */
  follow(info: Session): void {
    const { id, revert } = info
    const wanted = revert ? `${revert.messageID} ${revert.partID ?? ""}` : ""
    if (this.followed.get(id) === wanted) return
    const isFirstSight = !this.followed.has(id)
    this.followed.set(id, wanted)
    this.move(async () => {
      if (revert) await this.goBack(id, revert)
      // The first event of a session without a boundary means a change only if the session was
      // reverted when the last process ended.
      else if (!isFirstSight || (await this.state(id))) await this.comeBack(id)
    })
  }

  /** Waits for pending moves and makes a revert final, as OpenCode does at a prompt. */
  async commit(session: string): Promise<void> {
    await this.moves
    this.followed.set(session, "")
    if (await this.state(session)) await this.rpc.call("commit_revert", { dir: this.dir, session })
  }

  private move(work: () => Promise<void>): void {
    this.moves = this.moves.then(work).catch((error: unknown) => tell(this.client, messageOf(error), "error"))
  }

  private async state(session: string): Promise<wire.RevertState | null> {
    return (await this.rpc.call("revert_state", { dir: this.dir, session })).reverted
  }

  private async goBack(session: string, to: Revert): Promise<void> {
    const messages = await this.messages(session)
    const calls = callsFrom(messages, to)
    const recorded = await this.recorded(session, messages)
    const first = recorded.find((step) => calls.has(step.part))
    if (!first) {
      if (await this.state(session)) await this.unrevert(session)
      return
    }
    const isWhole = recorded.find((step) => step.message === first.message) === first
    const part = isWhole ? undefined : first.part
    const params = { dir: this.dir, session, message: first.message, part, ...CONFIRMED }
    this.show(await this.rpc.call("revert_to", params, MOVE_MILLIS), "undid")
  }

  /** Handles the end of a revert, which was reversed or made final. If final, its messages are gone. */
  private async comeBack(session: string): Promise<void> {
    const state = await this.state(session)
    if (!state) return
    const calls = [...callsFrom(await this.messages(session))]
    const isKept = state.steps.some((step) => calls.some((call) => step.endsWith(`:${call}`)))
    if (isKept) await this.unrevert(session)
    else await this.rpc.call("commit_revert", { dir: this.dir, session })
  }

  private async unrevert(session: string): Promise<void> {
    const params = { dir: this.dir, session, ...CONFIRMED }
    this.show(await this.rpc.call("unrevert", params, MOVE_MILLIS), "redid")
  }

  private show(report: wire.UndoReport, did: "undid" | "redid"): void {
    if (!report.done.length && report.complete) return
    tell(this.client, reported(report, `${did} changes in`), report.complete ? "info" : "warning")
  }

  private async messages(session: string): Promise<Message[]> {
    return (await this.client.session.messages({ path: { id: session } })).data ?? []
  }

  /** Returns the steps of a session's messages, oldest first. The messages of a fork are copies of another session's. */
  private async recorded(session: string, messages: Message[]): Promise<Recorded[]> {
    const calls = callsFrom(messages)
    const known = (one: wire.StepRecord): one is wire.StepRecord & Recorded =>
      one.message !== null && one.part !== null && calls.has(one.part)
    const own = (await this.rpc.call("steps", { dir: this.dir, session })).steps.filter(known)
    const { steps } = await this.rpc.call("steps", { dir: this.dir })
    const origin = steps.find((one) => known(one) && one.session !== session)?.session
    if (!origin) return own
    const original = steps.filter((one) => one.session === origin)
    await this.shareHistory(origin, session, original.find((one) => !known(one))?.message)
    return [...original.filter(known), ...own]
  }

  private async shareHistory(origin: string, session: string, at: string | null | undefined): Promise<void> {
    try {
      await this.rpc.call("fork", { dir: this.dir, session: origin, id: session, at })
    } catch (error) {
      if (!isKind(error, "session_exists")) throw error
    }
  }
}

/** Returns the tool calls of a conversation, from a boundary on. Default: all. */
function callsFrom(messages: Message[], from?: Revert): Set<string> {
  const at = from ? messages.findIndex((one) => one.info.id === from.messageID) : 0
  if (at < 0) return new Set()
  const parts = messages.slice(at).flatMap((one) => one.parts)
  const skip = from?.partID ? parts.findIndex((part) => part.id === from.partID) : 0
  return new Set(parts.slice(Math.max(0, skip)).flatMap((part) => part.callID ?? []))
}

/**
 * Shows a message in the terminal UI, and logs it. Not awaited, because the server that handles the
 * requests may itself be waiting for this plugin.
 */
function tell(client: Client, message: string, variant: "info" | "warning" | "error"): void {
  const level = variant === "warning" ? "warn" : variant
  void Promise.allSettled([
    client.tui.showToast({ body: { title: "ctrlz", message, variant } }),
    client.app.log({ body: { service: "ctrlz", level, message } }),
  ])
}

/** Creates a part that only the model sees. Its id sorts after the existing ones. */
function textPart(sessionID: string, messageID: string, text: string) {
  const time = (BigInt(Date.now()) * 0x1000n + 0xfffn) & 0xffffffffffffn
  const id = `prt_${time.toString(16).padStart(12, "0")}${Math.random().toString(36).slice(2).padEnd(14, "0").slice(0, 14)}`
  return { id, sessionID, messageID, type: "text", text, synthetic: true }
}
