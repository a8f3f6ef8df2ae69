// `Ctrlz`: calls over one `ctrlz rpc`, started when first needed and again after it ended.

import { Child } from "./child.js";
import type { Answer } from "./child.js";
import { ClosedError, CtrlzError, ProtocolError, RpcError, ServerEndedError, TimeoutError } from "./errors.js";
import { toWire } from "./path.js";
import { ACCESS, PROTOCOL } from "./wire.js";
import type { Initialized, Methods, ProgressParams } from "./wire.js";

export interface ClientOptions {
  /** The program. Default: CTRLZ_BINARY, else `ctrlz` on the PATH. */
  binary?: string | undefined;
  /** Words before `rpc`, such as `["--data-dir", "/var/lib/agent"]`. */
  args?: string[] | undefined;
  /** The environment of the program. Default: that of this one. */
  env?: NodeJS.ProcessEnv | undefined;
  /** How long a call may take; 0 for ever. Default: two minutes. */
  timeoutMs?: number | undefined;
  /** How long a cancelled call, or a client that is closed, may take to end. Default: 5 s. */
  graceMs?: number | undefined;
}

/** What a single call may say about itself. */
export interface CallSettings {
  /** Cancels the call. If it is done nevertheless, its result is given. */
  signal?: AbortSignal | undefined;
  /** How long the call may take; 0 for ever. */
  timeoutMs?: number | undefined;
  /** Is told how far the call has come. */
  onProgress?: ((progress: ProgressParams) => void) | undefined;
}

export type Params<M extends keyof Methods> = Methods[M]["params"];
export type Result<M extends keyof Methods> = Methods[M]["result"];

/** No longer line is read by the server. */
const MAX_LINE_BYTES = 64 * 2 ** 20;

export class Ctrlz implements AsyncDisposable {
  static #shared: Ctrlz | undefined;
  readonly #options: ClientOptions;
  readonly #graceMs: number;
  #child: Promise<Child> | undefined;
  #closed = false;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.#graceMs = options.graceMs ?? 5000;
  }

  /** The client that everybody in this process shares who brings none of their own. */
  static shared(): Ctrlz {
    if (!Ctrlz.#shared || Ctrlz.#shared.#closed) Ctrlz.#shared = new Ctrlz();
    return Ctrlz.#shared;
  }

  /**
   * Calls a method. Any number of calls may run at the same time.
   *
   * If the server ends meanwhile, a call that only reads is made once more; any other one fails with
   * a ServerEndedError, because nobody can tell whether it was done. One that the server had no time to
   * read is made once more in any case.
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

  /** What the server is; starts it if it does not run. */
  async server(): Promise<Initialized> {
    return this.call("initialize", {});
  }

  /** Ends the server, after it has answered everything. No call can be made after this. */
  async close(): Promise<void> {
    this.#closed = true;
    const child = await this.#child?.catch(() => undefined);
    if (!child) return;
    child.finish();
    const kill = (signal: "SIGTERM" | "SIGKILL") => () => child.kill(signal);
    const timers = [
      setTimeout(kill("SIGTERM"), this.#graceMs),
      setTimeout(kill("SIGKILL"), 2 * this.#graceMs),
    ];
    await child.ended;
    timers.forEach(clearTimeout);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #ask(method: string, params: unknown, settings: CallSettings): Promise<Answer> {
    const child = await this.#running(method);
    // Between the start and here somebody may have changed their mind.
    settings.signal?.throwIfAborted();
    const { id, answer } = child.ask(method, params, settings.onProgress);
    return this.#inTime(child, id, answer, method, settings);
  }

  /** The answer, or after a time-out or an abort what can be said instead. */
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

  /** Ends a server that does not even say who it is, so that the next call finds a live one. */
  async #probe(child: Child): Promise<void> {
    const alive = await within(this.#graceMs, child.ask("initialize", {}).answer);
    if (!alive) child.kill("SIGKILL");
  }

  /** The server, started if it does not run. */
  async #running(method: string): Promise<Child> {
    if (this.#closed) throw new ClosedError(method);
    const known = await this.#child?.catch(() => undefined);
    if (known && !known.hasEnded) return known;
    // Of several calls that find it gone, the first one starts the next.
    if (!this.#child || known === (await this.#child.catch(() => undefined))) {
      this.#child = this.#start();
    }
    return this.#child;
  }

  async #start(): Promise<Child> {
    const { binary, args = [], env } = this.#options;
    const program = binary ?? (env ?? process.env)["CTRLZ_BINARY"] ?? "ctrlz";
    const child = await Child.start(program, [...args, "rpc"], env);
    const { answer } = child.ask("initialize", { client: "ctrlz-client (TypeScript)" });
    const first = await within(30_000, answer);
    const problem = whyUnusable(first);
    if (!problem) return child;
    child.kill("SIGKILL");
    throw new ProtocolError(`${program} cannot be used: ${problem}`);
  }
}

/** Whether a call may be repeated without anybody noticing. */
function onlyReads(method: keyof Methods, params: object): boolean {
  const access = ACCESS[method];
  // Comparing two snapshots that are recorded already records nothing.
  const compares = access === "records" && "to" in params && params.to != null;
  return access === "reads" || compares || method === "initialize";
}

function refuseTooLarge(method: string, params: unknown): void {
  // A character has at most three bytes for each unit of its string, so most need no closer look.
  const text = JSON.stringify(params);
  if (text.length * 3 < MAX_LINE_BYTES || Buffer.byteLength(text) < MAX_LINE_BYTES - 1024) return;
  const message = `the parameters have more than ${MAX_LINE_BYTES} bytes`;
  throw new RpcError(method, -32700, { kind: "too_large", fault: "protocol", message });
}

function whyUnusable(first: Answer | undefined): string | undefined {
  if (!first) return "it did not say who it is";
  if ("end" in first) return `it ended (${first.end.status}): ${first.end.stderr.trim()}`;
  if ("error" in first) return first.error.data.message;
  const { protocol } = first.result as Initialized;
  if (protocol === PROTOCOL) return undefined;
  return `it speaks version ${protocol} of the protocol and this client version ${PROTOCOL}; update the older one`;
}

/** What a promise gives, or nothing if that takes too long. */
async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
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

export { CtrlzError };
