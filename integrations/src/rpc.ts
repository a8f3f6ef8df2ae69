/**
 * Calls of `ctrlz rpc` from a plugin, over the child process of the TypeScript client.
 *
 * A call rejects with a `Refusal`, at the latest at its deadline. The next call after the process
 * died starts another one. The process exits together with the agent, because its standard input
 * is closed then.
 */
import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join } from "node:path"

import { Child, Supervisor, within, type Answer } from "../../clients/typescript/src/child"
import { toWire } from "../../clients/typescript/src/path"
import type * as wire from "../../clients/typescript/src/wire"

/** The error of a call. `kind` is listed in docs/rpc.md, or is `missing`, `ended` or `timeout`. */
export class Refusal extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(message)
    this.kind = kind
  }
}

export type Method = keyof wire.Methods
export type Params<M extends Method> = wire.Methods[M]["params"]
export type Result<M extends Method> = wire.Methods[M]["result"]

/** Default deadline of a call, which bounds the time that an agent waits. */
const DEADLINE_MILLIS = 10_000

export class Rpc {
  private readonly server = new Supervisor(start)

  async call<M extends Method>(method: M, params: Params<M>, deadlineMillis = DEADLINE_MILLIS): Promise<Result<M>> {
    const child = await this.server.running()
    const { id, answer } = child.ask(method, toWire(params))
    const outcome = await within(deadlineMillis, answer)
    if (outcome) return resultOf<M>(outcome)
    child.abandon(id)
    throw new Refusal("timeout", `ctrlz did not answer ${method} in time`)
  }

  /** Ends the process once it has answered all pending calls. A later call starts another one. */
  close(): void {
    void this.server.release().then((child) => child?.finish())
  }
}

function start(): Promise<Child> {
  // Ctrl-C signals the whole process group of the terminal. A restore must survive it.
  const options = { detached: process.platform !== "win32" }
  return Child.start(program(), ["rpc"], options).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw new Refusal("ended", error.message)
    throw new Refusal("missing", "the program `ctrlz` is not in PATH; install it, or set CTRLZ_BIN")
  })
}

function resultOf<M extends Method>(outcome: Answer): Result<M> {
  if ("result" in outcome) return outcome.result as Result<M>
  if ("end" in outcome) throw new Refusal("ended", `ctrlz rpc ended (${outcome.end.status})`)
  throw new Refusal(outcome.error.data.kind, outcome.error.data.message)
}

/** `ctrlz install` replaces this by its own path. */
const PROGRAM = "ctrlz"

/** Returns the path of `ctrlz`. Desktop applications often lack the PATH of the shell. */
function program(): string {
  if (process.env.CTRLZ_BIN) return process.env.CTRLZ_BIN
  if (isAbsolute(PROGRAM) && existsSync(PROGRAM)) return PROGRAM
  const path = (process.env.PATH ?? "").split(process.platform === "win32" ? ";" : ":")
  const usual = [".cargo/bin", ".local/bin"].map((dir) => join(homedir(), dir))
  const name = process.platform === "win32" ? "ctrlz.exe" : "ctrlz"
  return [...path, ...usual, "/usr/local/bin", "/opt/homebrew/bin"]
    // A relative entry could run a program of the project.
    .filter((dir) => isAbsolute(dir))
    .map((dir) => join(dir, name))
    .find((file) => existsSync(file)) ?? name
}

/** The message of an error, of whatever type it is. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** Whether an error is a refusal of one of these kinds. */
export function isKind(error: unknown, ...kinds: (wire.Kind)[]): boolean {
  return error instanceof Refusal && kinds.some((kind) => kind === error.kind)
}
