/**
 * `/undo`, `/redo` and `/timeline` for agents whose users can be asked.
 *
 * Every one plans first, shows the plan, and then does exactly that or nothing.
 */
import { Refusal, type Rpc } from "./rpc"
import { count, names, pathOf, reported } from "./words"

/** How an agent talks to its user. Without `confirm` there is nobody to ask. */
export type Talk = {
  tell(text: string, level: "info" | "warning" | "error"): void
  confirm?(title: string, text: string): Promise<boolean>
}

export type Where = { dir: string; session: string }

const SCOPES: Record<string, string> = { "": "last_turn", turn: "last_turn", step: "last_step", session: "session" }

/** Takes back the last turn, or what the word after `/undo` says; gives the snapshot afterwards. */
export async function undo(rpc: Rpc, where: Where, words: string, talk: Talk): Promise<string | undefined> {
  const scope = SCOPES[words.trim()]
  if (!scope) {
    talk.tell("usage: /undo [turn | step | session]", "warning")
    return undefined
  }
  return planned(rpc, "undo", { ...where, scope }, talk)
}

/** Brings back what the last undo of this session took back. */
export async function redo(rpc: Rpc, where: Where, talk: Talk): Promise<string | undefined> {
  return planned(rpc, "redo", where, talk)
}

async function planned(rpc: Rpc, method: "undo" | "redo", params: Record<string, unknown>, talk: Talk) {
  try {
    const plan = await rpc.call(`plan_${method}`, params)
    const would = method === "undo" ? "takes back" : "brings back"
    if (!plan.done.length) {
      talk.tell(reported(plan, would), "warning")
      return undefined
    }
    const text = reported(plan, would)
    if (talk.confirm && !(await talk.confirm(`ctrlz ${method}?`, text))) return undefined
    // Big trees take longer to write than to look at.
    const report = await rpc.call(method, { ...params, plan: plan.plan }, 120_000)
    const did = method === "undo" ? "took back" : "brought back"
    talk.tell(reported(report, did), report.complete ? "info" : "warning")
    return report.after as string | undefined
  } catch (error) {
    talk.tell(`ctrlz ${method}: ${(error as Error).message}`, isNothing(error) ? "info" : "error")
    return undefined
  }
}

function isNothing(error: unknown): boolean {
  return error instanceof Refusal && ["nothing_to_undo", "nothing_to_redo", "no_such_session"].includes(error.kind)
}

/** Lists the last operations of the work tree. */
export async function timeline(rpc: Rpc, where: Where, talk: Talk): Promise<void> {
  try {
    const log = await rpc.call("timeline", { dir: where.dir, limit: 20, files: 3 })
    const lines = log.operations.map(line)
    talk.tell(lines.length ? lines.join("\n") : "nothing is recorded yet", "info")
  } catch (error) {
    talk.tell(`ctrlz timeline: ${(error as Error).message}`, "error")
  }
}

function line(operation: any): string {
  const time = new Date(operation.at_millis).toTimeString().slice(0, 8)
  const tools = operation.steps.map((step: any) => step.label ?? step.tool ?? "step").join(", ")
  const what = tools || operation.label || ""
  const files = operation.files ? `${count(Array(operation.files))}: ${names(operation.changes.map(pathOf), 3)}` : ""
  const state = operation.taken_back || operation.steps.some((step: any) => step.undone) ? "(taken back)" : ""
  return [time, operation.kind, what, files, state].filter(Boolean).join("  ")
}
