// `Ctrlz`: typed calls over one `ctrlz rpc` process.

import { Child, Supervisor, within } from "./child.js";
import type { Answer } from "./child.js";
import {
  BinaryNotFoundError,
  ClosedError,
  CtrlzError,
  ProtocolError,
  RpcError,
  ServerEndedError,
  TimeoutError,
} from "./errors.js";
import { toWire } from "./path.js";
import { ACCESS, PROTOCOL } from "./wire.js";
import type { Initialized, Methods, ProgressParams } from "./wire.js";

export interface ClientOptions {
  /** Path of the program. Default: CTRLZ_BINARY, else `ctrlz` on the PATH. */
  binary?: string | undefined;
  /** Arguments before `rpc`, such as `["--data-dir", "/var/lib/agent"]`. */
  args?: string[] | undefined;
  /** Environment of the program. Default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /** Time limit of a call in milliseconds; 0 for none. Default: two minutes. */
  timeoutMs?: number | undefined;
  /** Time limit for a cancelled call to end, and for `close`, in milliseconds. Default: 5000. */
  graceMs?: number | undefined;
}

/** Settings of a single call. */
export interface CallSettings {
  /** Cancels the call. If the call finishes anyway, its result is returned. */
  signal?: AbortSignal | undefined;
  /** Time limit of the call in milliseconds; 0 for none. */
  timeoutMs?: number | undefined;
  /** Receives the progress of the call. */
  onProgress?: ((progress: ProgressParams) => void) | undefined;
}

export type Params<M extends keyof Methods> = Methods[M]["params"];
export type Result<M extends keyof Methods> = Methods[M]["result"];

/** Maximum length of a line that the server reads. */
const MAX_LINE_BYTES = 64 * 2 ** 20;

export class Ctrlz implements AsyncDisposable {
  static #shared: Ctrlz | undefined;
  readonly #options: ClientOptions;
  readonly #graceMs: number;
  readonly #server = new Supervisor(() => this.#start());
  #closing: Promise<void> | undefined;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.#graceMs = options.graceMs ?? 5000;
  }

  /** Returns the client that is used where no other one is given. */
  static shared(): Ctrlz {
    if (!Ctrlz.#shared || Ctrlz.#shared.#closing) Ctrlz.#shared = new Ctrlz();
    return Ctrlz.#shared;
  }

  /**
   * Calls a method. Any number of calls may run concurrently.
   *
   * If the server dies, a call that only reads is repeated once. Any other call fails with a
   * ServerEndedError, because it is unknown whether it was executed, unless the server cannot have
   * read the request: then it is repeated once, too.
   */
  async call<M extends keyof Methods>(
    method: M,
    params: Params<M>,
    settings: CallSettings = {},
  ): Promise<Result<M>> {
    settings.signal?.throwIfAborted();
    const wire = toWire(settings.onProgress ? { ...params, progress: true } : params);
    refuseTooLarge(method, wire);
    let answer = await this.#ask(method, wire, settings);
    if ("end" in answer && (answer.unread || onlyReads(method, params))) {
      answer = await this.#ask(method, wire, settings);
    }
    if ("end" in answer) throw new ServerEndedError(method, answer.end.status, answer.end.stderr);
    if ("error" in answer) throw new RpcError(method, answer.error.code, answer.error.data);
    return answer.result as Result<M>;
  }

  /** Returns information about the server, and starts it if necessary. */
  async server(): Promise<Initialized> {
    return this.call("initialize", {});
  }

  /** Ends the server after it has answered all pending calls. Later calls fail. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    const child = await this.#server.release();
    if (!child) return;
    child.finish();
    child.ref();
    const kill = (signal: "SIGTERM" | "SIGKILL") => () => child.kill(signal);
    const timers = [
      setTimeout(kill("SIGTERM"), this.#graceMs),
      setTimeout(kill("SIGKILL"), 2 * this.#graceMs),
    ];
    await child.ended;
    timers.forEach(clearTimeout);
  }

  async #ask(method: string, params: unknown, settings: CallSettings): Promise<Answer> {
    if (this.#closing) throw new ClosedError(method);
    const child = await this.#server.running();
    // The call may have been aborted while the server started.
    settings.signal?.throwIfAborted();
    const { id, answer } = child.ask(method, params, settings.onProgress);
    return this.#inTime(child, id, answer, method, settings);
  }

  /** Returns the answer. After a timeout or an abort, cancels the call and throws. */
  async #inTime(
    child: Child,
    id: number,
    answer: Promise<Answer>,
    method: string,
    settings: CallSettings,
  ): Promise<Answer> {
    const timeoutMs = settings.timeoutMs ?? this.#options.timeoutMs ?? 120_000;
    const late = Symbol("late");
    const { signal } = settings;
    let wake = () => {};
    const given = new Promise<typeof late>((resolve) => {
      wake = () => resolve(late);
    });
    const timer = timeoutMs > 0 && timeoutMs < Infinity ? setTimeout(wake, timeoutMs) : undefined;
    signal?.addEventListener("abort", wake, { once: true });
    try {
      const first = await Promise.race([answer, given]);
      if (first !== late) return first;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", wake);
    }
    child.cancel(id);
    const last = await within(this.#graceMs, answer);
    const cancelled = last && "error" in last && last.error.data.kind === "cancelled";
    if (last && !cancelled) return last;
    if (!last) void this.#probe(child);
    signal?.throwIfAborted();
    throw new TimeoutError(method, timeoutMs, cancelled ? "not done" : "unknown");
  }

  /** Kills the server if it does not answer `initialize`, so that the next call starts another one. */
  async #probe(child: Child): Promise<void> {
    const alive = await within(this.#graceMs, child.ask("initialize", {}).answer);
    if (!alive) child.kill("SIGKILL");
  }

  async #start(): Promise<Child> {
    const { binary, args = [], env } = this.#options;
    const program = binary ?? (env ?? process.env)["CTRLZ_BINARY"] ?? "ctrlz";
    const child = await Child.start(program, [...args, "rpc"], { env }).catch((cause: NodeJS.ErrnoException) => {
      const missing = cause.code === "ENOENT" || cause.code === "EACCES";
      if (missing) throw new BinaryNotFoundError(program, { cause });
      throw new CtrlzError(`cannot start ${program}: ${cause.message}`, { cause });
    });
    const { answer } = child.ask("initialize", { client: "ctrlz-client (TypeScript)" });
    const first = await within(30_000, answer);
    const problem = whyUnusable(first);
    if (!problem) return child;
    child.kill("SIGKILL");
    throw new ProtocolError(`${program} cannot be used: ${problem}`);
  }
}

/** Whether repeating the call has no side effect. */
function onlyReads(method: keyof Methods, params: object): boolean {
  const access = ACCESS[method];
  // With `to`, two existing snapshots are compared and nothing is recorded.
  const compares = access === "records" && "to" in params && params.to != null;
  return access === "reads" || compares || method === "initialize";
}

function refuseTooLarge(method: string, params: unknown): void {
  // UTF-8 needs at most three bytes per UTF-16 code unit, so short texts need not be measured.
  const text = JSON.stringify(params);
  if (text.length * 3 < MAX_LINE_BYTES || Buffer.byteLength(text) < MAX_LINE_BYTES - 1024) return;
  const message = `the parameters have more than ${MAX_LINE_BYTES} bytes`;
  throw new RpcError(method, -32700, { kind: "too_large", fault: "protocol", message });
}

function whyUnusable(first: Answer | undefined): string | undefined {
  if (!first) return "it did not answer `initialize`";
  if ("end" in first) return `it ended (${first.end.status}): ${first.end.stderr.trim()}`;
  if ("error" in first) return first.error.data.message;
  const { protocol } = first.result as Initialized;
  if (protocol === PROTOCOL) return undefined;
  return `it uses version ${protocol} of the protocol and this client version ${PROTOCOL}; update the older one`;
}
