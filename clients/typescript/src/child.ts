// The child process `ctrlz rpc`: one request and one answer per line. Restarts, time limits and
// error classes are up to the caller. The plugins in integrations/ are built with this module too.

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";

import { parseWire } from "./path.js";
import type * as wire from "./wire.js";

/** How a process ended. */
export interface End {
  status: number | string | null;
  stderr: string;
}

/** The outcome of a request. */
export type Answer =
  | { result: unknown }
  | { error: { code: number; data: wire.Error } }
  /** The process ended first; `unread` if it cannot have read the whole request. */
  | { end: End; unread: boolean };

export interface StartOptions {
  /** Environment of the process. Default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /** Whether the process gets its own process group, which Ctrl-C in the terminal does not reach. */
  detached?: boolean | undefined;
}

interface Pending {
  unread: boolean;
  answer: (answer: Answer) => void;
  progress: ((progress: wire.ProgressParams) => void) | undefined;
}

/** Length of the end of standard error that is kept, in UTF-16 code units. */
const STDERR_LENGTH = 4096;
/**
 * Time between the exit of the process and the end of waiting for its output, in milliseconds. A
 * process that inherited the pipes can keep them open.
 */
const DRAIN_MS = 1000;

export class Child {
  /** Resolves once the process has ended and its output has been read. */
  readonly ended: Promise<End>;
  readonly #process: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #stderr = "";
  #end: End | undefined;

  private constructor(process: ChildProcess) {
    this.#process = process;
    this.ended = new Promise((resolve) => {
      const finish = (status: number | string | null) => {
        this.#end ??= { status, stderr: this.#stderr };
        for (const { answer, unread } of this.#take()) answer({ end: this.#end, unread });
        resolve(this.#end);
      };
      process.once("close", (code, signal) => finish(code ?? signal));
      process.once("exit", (code, signal) => {
        setTimeout(() => finish(code ?? signal), DRAIN_MS).unref();
      });
    });
    // Ignores EPIPE: `ended` reports that the process has exited.
    process.stdin?.on("error", () => {});
    readLines(process, (line) => this.#receive(line));
    process.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_LENGTH);
    });
    this.#hold();
  }

  /** Starts `binary` with these arguments. Rejects with the error of `spawn`. */
  static start(binary: string, args: string[], options: StartOptions = {}): Promise<Child> {
    const { env, detached = false } = options;
    return new Promise((resolve, reject) => {
      const process = spawn(binary, args, { stdio: "pipe", windowsHide: true, detached, ...(env && { env }) });
      const child = new Child(process);
      process.on("error", reject);
      process.once("spawn", () => resolve(child));
    });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get hasEnded(): boolean {
    const { exitCode, signalCode } = this.#process;
    return this.#end !== undefined || exitCode !== null || signalCode !== null;
  }

  /** Sends a request. The answer always resolves, at the latest when the process ends. */
  ask(
    method: string,
    params: unknown,
    progress?: (progress: wire.ProgressParams) => void,
  ): { id: number; answer: Promise<Answer> } {
    const id = this.#nextId++;
    const answer = new Promise<Answer>((resolve) => {
      if (this.#end) return resolve({ end: this.#end, unread: true });
      const pending = { answer: resolve, progress, unread: false };
      // A request that was not written completely cannot have been read.
      this.#write({ jsonrpc: "2.0", id, method, params }, (error) => (pending.unread = error != null));
      this.#pending.set(id, pending);
      this.#hold();
    });
    return { id, answer };
  }

  /** Asks the process to cancel a request. */
  cancel(id: number): void {
    this.#write({ jsonrpc: "2.0", method: "cancel", params: { id } });
  }

  /** Cancels a request and stops waiting: its answer never resolves. */
  abandon(id: number): void {
    this.#take(id);
    this.cancel(id);
  }

  /** Closes standard input: the process answers all pending requests and exits. */
  finish(): void {
    this.#process.stdin?.end();
  }

  /** Keeps this program running until the process has exited. */
  ref(): void {
    this.#process.ref();
  }

  kill(signal: "SIGTERM" | "SIGKILL"): void {
    this.#process.kill(signal);
  }

  #write(message: unknown, written?: (error?: Error | null) => void): void {
    this.#process.stdin?.write(`${JSON.stringify(message)}\n`, written);
  }

  #receive(line: string): void {
    const message = parse(line);
    if (!message) {
      // The program is not ctrlz.
      this.#stderr += `it printed ${JSON.stringify(line.slice(0, 100))}, which is not a message`;
      return this.kill("SIGKILL");
    }
    if (message.method === "progress" && message.params) {
      this.#pending.get(Number(message.params.id))?.progress?.(message.params);
      return;
    }
    // An answer without an id means that a request could not be parsed. It does not say which one,
    // so all of them fail.
    const pending = message.id == null ? this.#take() : this.#take(message.id);
    for (const { answer } of pending) answer(message as unknown as Answer);
  }

  /** Removes and returns the pending request with this id, or all pending requests. */
  #take(id?: number): Pending[] {
    const found = id === undefined ? [...this.#pending.values()] : [this.#pending.get(id)];
    if (id === undefined) this.#pending.clear();
    else this.#pending.delete(id);
    this.#hold();
    return found.filter((pending) => pending !== undefined);
  }

  /** Keeps this program running exactly while requests are pending. */
  #hold(): void {
    const { stdin, stdout, stderr } = this.#process;
    const busy = this.#pending.size > 0;
    for (const handle of [this.#process, stdin, stdout, stderr]) {
      const held = handle as unknown as { ref?: () => void; unref?: () => void } | null;
      if (busy) held?.ref?.();
      else held?.unref?.();
    }
  }
}

/** Starts a process when it is first needed, and again after it has ended. */
export class Supervisor {
  readonly #start: () => Promise<Child>;
  #child: Promise<Child> | undefined;

  constructor(start: () => Promise<Child>) {
    this.#start = start;
  }

  /** Returns the running process. Concurrent callers get the same one. */
  async running(): Promise<Child> {
    const known = this.#child;
    const child = await known?.catch(() => undefined);
    if (child && !child.hasEnded) return child;
    // Another caller may have started one meanwhile.
    if (this.#child === known) this.#child = undefined;
    return (this.#child ??= this.#start());
  }

  /** Returns the last process that was started, if there is one, and forgets it. */
  async release(): Promise<Child | undefined> {
    const known = this.#child;
    this.#child = undefined;
    return known?.catch(() => undefined);
  }
}

/** Resolves like `promise`, or to `undefined` after a time limit. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

interface Incoming {
  id?: number | null;
  method?: string;
  params?: wire.ProgressParams;
}

function parse(line: string): Incoming | undefined {
  try {
    const message = parseWire(line);
    return typeof message === "object" && message !== null ? message : undefined;
  } catch {
    return undefined;
  }
}

/** Splits standard output at LF. A line may arrive in several chunks. */
function readLines(process: ChildProcess, receive: (line: string) => void): void {
  let parts: Buffer[] = [];
  process.stdout?.on("data", (chunk: Buffer) => {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      parts.push(chunk.subarray(start, end));
      receive(Buffer.concat(parts).toString("utf8"));
      parts = [];
      start = end + 1;
    }
    if (start < chunk.length) parts.push(chunk.subarray(start));
  });
}
