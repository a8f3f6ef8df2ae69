// Everything that a call can fail with. All of it is a CtrlzError, except an abort, which is the
// reason of the caller's own signal.

import type { Error as Failure, ErrorDetails, Fault, Kind, Path } from "./wire.js";

export class CtrlzError extends Error {
  override name = "CtrlzError";
}

/** What is known about a call that was not answered. */
export type Outcome =
  /** Nothing was recorded and no file changed. */
  | "not done"
  /** It may have been done. Look before you repeat it. */
  | "unknown";

/** The server's answer was a failure. */
export class RpcError extends CtrlzError {
  override name = "RpcError";
  /** What failed, to act on. Treat one you do not know by its fault. */
  readonly kind: Kind | (string & {});
  /** Who can do something about it. */
  readonly fault: Fault;
  /** What to do next, where there is something to say. */
  readonly hint: string | undefined;
  readonly path: Path | undefined;
  readonly details: ErrorDetails;

  constructor(
    /** The method that was called. */
    readonly method: string,
    /** The number that JSON-RPC wants. */
    readonly code: number,
    failure: Failure,
  ) {
    super(failure.message);
    this.kind = failure.kind;
    this.fault = failure.fault;
    this.hint = failure.hint ?? undefined;
    this.path = failure.path ?? undefined;
    this.details = failure.details ?? {};
  }
}

/** There is no `ctrlz` to start. */
export class BinaryNotFoundError extends CtrlzError {
  override name = "BinaryNotFoundError";
  constructor(
    /** Where it was looked for. */
    readonly tried: string,
    options?: ErrorOptions,
  ) {
    const next = "install ctrlz, or name it with the option `binary` or in CTRLZ_BINARY";
    super(`cannot start ${tried}: no such program; ${next}`, options);
  }
}

/** The program that was started speaks another version of the protocol, or is not ctrlz. */
export class ProtocolError extends CtrlzError {
  override name = "ProtocolError";
}

/** The server ended before it answered. The next call starts another one. */
export class ServerEndedError extends CtrlzError {
  override name = "ServerEndedError";
  /** The call was sent and cannot be taken back. One that only reads has been tried twice. */
  readonly outcome: Outcome = "unknown";
  constructor(
    readonly method: string,
    /** How it ended: an exit code or the name of a signal. */
    readonly status: number | string | null,
    /** What it said last on standard error. */
    readonly stderr: string,
  ) {
    const said = stderr.trim();
    super(`ctrlz ended (${status ?? "unknown"}) before it answered ${method}${said && `: ${said}`}`);
  }
}

/** No answer came in time, and the call was cancelled. */
export class TimeoutError extends CtrlzError {
  override name = "TimeoutError";
  constructor(
    readonly method: string,
    readonly timeoutMs: number,
    readonly outcome: Outcome,
  ) {
    super(`no answer to ${method} within ${timeoutMs} ms (outcome: ${outcome})`);
  }
}

/** The client was closed. */
export class ClosedError extends CtrlzError {
  override name = "ClosedError";
  constructor(readonly method: string) {
    super(`${method} was called on a closed client`);
  }
}
