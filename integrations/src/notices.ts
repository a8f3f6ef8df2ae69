/**
 * What the model is told after an undo: which files changed under it.
 */
import type { Rpc } from "./rpc"
import type { Place, Steps } from "./steps"
import { MAX_NAMES, names, pathOf } from "./words"

const MOVES: Record<string, string> = {
  undo: "An undo took back changes to",
  revert: "A revert took back changes to",
  redo: "A redo brought back changes to",
  unrevert: "An unrevert brought back changes to",
  restore: "A restore put back",
}

/** Tells the model, once, which files were changed under it by undoing. */
export class Notices {
  private readonly seen = new Map<string, string>()

  private readonly rpc: Rpc
  private readonly steps: Steps
  private readonly place: Place

  constructor(rpc: Rpc, steps: Steps, place: Place = {}) {
    this.rpc = rpc
    this.steps = steps
    this.place = place
  }

  /** What happened since the last call for this session; what was before the first is old news. */
  async since(dir: string, session: string): Promise<string | undefined> {
    const log = await this.steps.safely(() =>
      this.rpc.call("timeline", { ...this.place, dir, limit: 50, files: MAX_NAMES }, 2_000),
    )
    const operations: any[] = log?.operations ?? []
    const last = this.seen.get(session) ?? lastStepOf(operations, session)
    if (operations.length) this.seen.set(session, operations[0].operation)
    if (!last) return undefined
    const fresh = operations.slice(0, Math.max(0, operations.findIndex((one) => one.operation === last)))
    const moves = fresh.filter((one) => MOVES[one.kind] && one.changes.length).reverse()
    if (!moves.length) return undefined
    return moves.map(sentence).join(" ") + " Read these files again before you rely on what they held."
  }
}

/** A session that goes on in another process has seen everything up to its last step. */
function lastStepOf(operations: any[], session: string): string | undefined {
  return operations.find((one) => one.steps.some((step: any) => step.session === session))?.operation
}

function sentence(operation: any): string {
  const files = operation.changes.map(pathOf)
  const more = operation.files - files.length
  return `${MOVES[operation.kind]} ${names(files)}${more > 0 ? ` and ${more} more` : ""}.`
}
