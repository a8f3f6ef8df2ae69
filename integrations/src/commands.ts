/**
 * The commands `/undo`, `/redo` and `/timeline` for agents that can ask the user.
 *
 * `/undo` and `/redo` show a plan first, and then do exactly that or nothing.
 */
import type * as wire from "../../clients/typescript/src/wire"
import { isKind, messageOf, type Rpc } from "./rpc"
import { count, names, reported } from "./words"

/** How an agent talks to its user. Without `confirm`, the user cannot be asked. */
export type Talk = {
  tell(text: string, level: "info" | "warning" | "error"): void
  confirm?(title: string, text: string): Promise<boolean>
}

export type Where = { dir: string; session: string }

/** Time limit for changing files. Writing a large tree takes longer than planning. */
export const WRITE_MILLIS = 120_000

const SCOPES = new Map<string, wire.Scope>([["", "last_turn"], ["turn", "last_turn"], ["step", "last_step"], ["session", "session"]])

/** Undoes the last turn, or the scope that the argument of `/undo` names. Returns the new snapshot. */
export async function undo(rpc: Rpc, where: Where, argument: string, talk: Talk): Promise<string | undefined> {
  const scope = SCOPES.get(argument.trim())
  if (!scope) {
    talk.tell("usage: /undo [turn | step | session]", "warning")
    return undefined
  }
  const params = { ...where, scope }
  return planned("undo", talk, {
    plan: () => rpc.call("plan_undo", params),
    apply: (plan) => rpc.call("undo", { ...params, plan }, WRITE_MILLIS),
  })
}

/** Reverses the last undo of this session. Returns the new snapshot. */
export async function redo(rpc: Rpc, where: Where, talk: Talk): Promise<string | undefined> {
  return planned("redo", talk, {
    plan: () => rpc.call("plan_redo", where),
    apply: (plan) => rpc.call("redo", { ...where, plan }, WRITE_MILLIS),
  })
}

type Planned = { plan(): Promise<wire.UndoReport>; apply(plan: string): Promise<wire.UndoReport> }

async function planned(verb: "undo" | "redo", talk: Talk, calls: Planned): Promise<string | undefined> {
  try {
    const plan = await calls.plan()
    const text = reported(plan, `will ${verb} changes in`)
    if (!plan.done.length) {
      talk.tell(text, "warning")
      return undefined
    }
    if (talk.confirm && !(await talk.confirm(`ctrlz ${verb}?`, text))) return undefined
    const report = await calls.apply(plan.plan)
    talk.tell(reported(report, verb === "undo" ? "undid changes in" : "redid changes in"), report.complete ? "info" : "warning")
    return report.after ?? undefined
  } catch (error) {
    const isNothing = isKind(error, "nothing_to_undo", "nothing_to_redo", "no_such_session")
    talk.tell(`ctrlz ${verb}: ${messageOf(error)}`, isNothing ? "info" : "error")
    return undefined
  }
}

/** Lists the last operations of the work tree. */
export async function timeline(rpc: Rpc, where: Where, talk: Talk): Promise<void> {
  try {
    const log = await rpc.call("timeline", { dir: where.dir, limit: 20, files: 3 })
    const lines = log.operations.map(line)
    talk.tell(lines.length ? lines.join("\n") : "nothing is recorded yet", "info")
  } catch (error) {
    talk.tell(`ctrlz timeline: ${messageOf(error)}`, "error")
  }
}

function line(operation: wire.LogEntry): string {
  const time = new Date(operation.at_millis).toTimeString().slice(0, 8)
  const tools = operation.steps.map((step) => step.label ?? step.tool ?? "step").join(", ")
  const what = tools || operation.label || ""
  const files = operation.files ? `${count(operation.files)}: ${names(operation.changes, 3)}` : ""
  const state = operation.taken_back || operation.steps.some((step) => step.undone) ? "(undone)" : ""
  return [time, operation.kind, what, files, state].filter(Boolean).join("  ")
}
