/**
 * One `ctrlz rpc` child, asked by promises.
 *
 * In: a method and its parameters. Out: its result, or a `Refusal` that says why not.
 * A call never hangs past its deadline, a dead child is started again by the next call, and the
 * child ends by itself when the agent does: its input closes then.
 */
import { spawn, type ChildProcess } from "node:child_process"
import { existsSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join } from "node:path"

/** Why a call has no result. `kind` is one of docs/rpc.md, or `missing`, `ended` or `timeout`. */
export class Refusal extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(message)
    this.kind = kind
  }
}

type Params = Record<string, unknown>
type Waiting = { resolve(result: any): void; reject(why: Refusal): void; timer: NodeJS.Timeout }

/** How long a call may take if it says nothing else: a bounded wait, never a blocked agent. */
const PATIENCE_MILLIS = 10_000

export class Rpc {
  private child: ChildProcess | undefined
  private readonly waiting = new Map<number, Waiting>()
  private next = 1

  async call(method: string, params: Params, patienceMillis = PATIENCE_MILLIS): Promise<any> {
    const child = (this.child ??= this.start())
    const id = this.next++
    return new Promise((resolve, reject) => {
      // The timer also keeps the agent's event loop alive until the answer is there.
      const timer = setTimeout(() => this.giveUp(id, method), patienceMillis)
      this.waiting.set(id, { resolve, reject, timer })
      child.stdin?.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n")
    })
  }

  /** Lets the child finish what it was asked, and go. A later call starts another one. */
  close(): void {
    this.child?.stdin?.end()
    this.child = undefined
  }

  private start(): ChildProcess {
    const child = spawn(program(), ["rpc"], {
      stdio: ["pipe", "pipe", "ignore"],
      // Ctrl-C goes to the whole group of the terminal; a restore must not die of it.
      detached: process.platform !== "win32",
      windowsHide: true,
    })
    const gone = (why: Refusal) => this.lose(child, why)
    child.on("error", (error: NodeJS.ErrnoException) =>
      gone(error.code === "ENOENT" ? missing() : new Refusal("ended", error.message)),
    )
    child.on("exit", (code, signal) => gone(new Refusal("ended", `ctrlz rpc ended (${signal ?? code})`)))
    // A write to a child that is gone is answered by its `exit`.
    child.stdin?.on("error", () => {})
    child.stdout?.on("data", lines((line) => this.answer(line)))
    // An idle child must not keep the agent from ending.
    for (const held of [child, child.stdin, child.stdout]) (held as { unref?(): void })?.unref?.()
    return child
  }

  private answer(line: string): void {
    const message = JSON.parse(line)
    const waiting = this.take(message.id)
    if (!waiting) return
    const { error } = message
    if (error) waiting.reject(new Refusal(error.data?.kind ?? "internal_error", error.message))
    else waiting.resolve(message.result)
  }

  private giveUp(id: number, method: string): void {
    const cancel = { jsonrpc: "2.0", method: "cancel", params: { id } }
    this.child?.stdin?.write(JSON.stringify(cancel) + "\n")
    this.take(id)?.reject(new Refusal("timeout", `ctrlz took too long over ${method}`))
  }

  private lose(child: ChildProcess, why: Refusal): void {
    if (this.child !== child) return
    this.child = undefined
    for (const id of [...this.waiting.keys()]) this.take(id)?.reject(why)
  }

  private take(id: number): Waiting | undefined {
    const waiting = this.waiting.get(id)
    this.waiting.delete(id)
    clearTimeout(waiting?.timer)
    return waiting
  }
}

/** `ctrlz install` writes its own path here. */
const PROGRAM = "ctrlz"

function missing(): Refusal {
  return new Refusal("missing", "the program `ctrlz` is not in PATH; install it, or set CTRLZ_BIN")
}

/** An agent that a desktop started often lacks the PATH of the shell, so the usual places count too. */
function program(): string {
  if (process.env.CTRLZ_BIN) return process.env.CTRLZ_BIN
  if (isAbsolute(PROGRAM) && existsSync(PROGRAM)) return PROGRAM
  const path = (process.env.PATH ?? "").split(process.platform === "win32" ? ";" : ":")
  const usual = [".cargo/bin", ".local/bin"].map((dir) => join(homedir(), dir))
  const name = process.platform === "win32" ? "ctrlz.exe" : "ctrlz"
  return [...path, ...usual, "/usr/local/bin", "/opt/homebrew/bin"]
    // A relative entry would run what lies in the project.
    .filter((dir) => isAbsolute(dir))
    .map((dir) => join(dir, name))
    .find((file) => existsSync(file)) ?? name
}

/** Cuts bytes into lines at LF alone; a line may come in many pieces. */
function lines(take: (line: string) => void): (piece: Buffer) => void {
  let rest: Buffer[] = []
  return (piece) => {
    let from = 0
    for (let at; (at = piece.indexOf(10, from)) >= 0; from = at + 1) {
      rest.push(piece.subarray(from, at))
      take(Buffer.concat(rest).toString("utf8"))
      rest = []
    }
    if (from < piece.length) rest.push(piece.subarray(from))
  }
}
