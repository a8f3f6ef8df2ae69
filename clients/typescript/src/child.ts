// One running `ctrlz rpc`: lines out, lines in. Knows nothing of restarts, time-outs or methods.

import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";

import { BinaryNotFoundError, CtrlzError } from "./errors.js";
import { fromWire } from "./path.js";
import type { Error as Failure, ProgressParams } from "./wire.js";

/** How a process ended. */
export interface End {
  status: number | string | null;
  stderr: string;
}

/** What became of a request. */
export type Answer =
  | { result: unknown }
  | { error: { code: number; data: Failure } }
  /** The process ended first; `unread` if that was before it could read the whole request. */
  | { end: End; unread: boolean };

interface Waiting {
  unread: boolean;
  answer: (answer: Answer) => void;
  progress: ((progress: ProgressParams) => void) | undefined;
}

/** How much of standard error is kept. */
const STDERR_CHARACTERS = 4096;
/** How long to wait for the rest of the output of a process that has ended. */
const LAST_WORDS_MS = 1000;

export class Child {
  /** Resolves once the process has ended and everything it said was read. */
  readonly ended: Promise<End>;
  readonly #process: ChildProcess;
  readonly #waiting = new Map<number, Waiting>();
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
        setTimeout(() => finish(code ?? signal), LAST_WORDS_MS).unref();
      });
    });
    // Writing to a process that has just ended fails; that it ended is said by `ended`.
    process.stdin?.on("error", () => {});
    readLines(process, (line) => this.#receive(line));
    process.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_CHARACTERS);
    });
    this.#hold();
  }

  /** Starts a process. */
  static start(binary: string, words: string[], env: NodeJS.ProcessEnv | undefined): Promise<Child> {
    return new Promise((resolve, reject) => {
      const refuse = (cause: NodeJS.ErrnoException) => {
        const missing = cause.code === "ENOENT" || cause.code === "EACCES";
        reject(
          missing
            ? new BinaryNotFoundError(binary, { cause })
            : new CtrlzError(`cannot start ${binary}: ${cause.message}`, { cause }),
        );
      };
      try {
        const options = { stdio: "pipe", windowsHide: true, ...(env && { env }) } as const;
        const process = spawn(binary, words, options);
        const child = new Child(process);
        process.once("error", refuse);
        process.once("spawn", () => resolve(child));
      } catch (error) {
        refuse(error as NodeJS.ErrnoException);
      }
    });
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get hasEnded(): boolean {
    const { exitCode, signalCode } = this.#process;
    return this.#end !== undefined || exitCode !== null || signalCode !== null;
  }

  /** Sends a request. The answer always comes, if only that the process ended. */
  ask(
    method: string,
    params: unknown,
    progress?: (progress: ProgressParams) => void,
  ): { id: number; answer: Promise<Answer> } {
    const id = this.#nextId++;
    const answer = new Promise<Answer>((resolve) => {
      if (this.#end) return resolve({ end: this.#end, unread: true });
      const waiting = { answer: resolve, progress, unread: false };
      this.#waiting.set(id, waiting);
      this.#hold();
      // What could not be written whole, nobody can have read.
      this.#write({ jsonrpc: "2.0", id, method, params }, (error) => (waiting.unread = error != null));
    });
    return { id, answer };
  }

  cancel(id: number): void {
    this.#write({ jsonrpc: "2.0", method: "cancel", params: { id } });
  }

  /** No more requests: everything that was asked for is answered, then the process ends. */
  finish(): void {
    this.#process.ref();
    this.#process.stdin?.end();
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
      // Whatever this is, it is not ctrlz.
      this.#stderr += `it printed ${JSON.stringify(line.slice(0, 100))}, which is no message`;
      return this.kill("SIGKILL");
    }
    if (message.method === "progress" && message.params) {
      this.#waiting.get(Number(message.params.id))?.progress?.(message.params);
      return;
    }
    // An answer to no request of ours means that one of ours was not understood: nobody can tell
    // which, so all of them fail.
    const waiting = message.id == null ? this.#take() : this.#take(message.id);
    for (const { answer } of waiting) answer(message as unknown as Answer);
  }

  /** Those who wait for an id, or all of them. */
  #take(id?: number): Waiting[] {
    const found = id === undefined ? [...this.#waiting.values()] : [this.#waiting.get(id)];
    if (id === undefined) this.#waiting.clear();
    else this.#waiting.delete(id);
    this.#hold();
    return found.filter((waiting) => waiting !== undefined);
  }

  /** Keeps the program alive while it waits for an answer, and only then. */
  #hold(): void {
    const { stdin, stdout, stderr } = this.#process;
    const busy = this.#waiting.size > 0;
    for (const handle of [this.#process, stdin, stdout, stderr]) {
      const held = handle as unknown as { ref?: () => void; unref?: () => void } | null;
      if (busy) held?.ref?.();
      else held?.unref?.();
    }
  }
}

interface Message {
  id?: number | null;
  method?: string;
  params?: ProgressParams;
}

function parse(line: string): Message | undefined {
  try {
    const parsed: unknown = JSON.parse(line);
    if (typeof parsed !== "object" || parsed === null) return undefined;
    // Most answers have no such path, and looking for them takes longer than parsing.
    return (line.includes('{"bytes":[') ? fromWire(parsed) : parsed) as Message;
  } catch {
    return undefined;
  }
}

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
