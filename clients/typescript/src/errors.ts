// The errors of calls. All are CtrlzErrors, except that an aborted call throws the reason of the
// caller's signal.

import type { Error as Failure, ErrorDetails, Fault, Kind, Path } from "./wire.js";

export class CtrlzError extends Error {
  override name = "CtrlzError";
}

/** Whether a call that was not answered was executed. */
export type Outcome =
  /** Nothing was recorded and no file changed. */
  | "not done"
  /** It may have been executed. Check before repeating it. */
  | "unknown";

/** The server answered with an error. */
export class RpcError extends CtrlzError {
  override name = "RpcError";
  /** Kind of the error, for programs. Handle unknown kinds by their `fault`. */
  readonly kind: Kind | (string & {});
  /** Who can fix the cause. */
  readonly fault: Fault;
  /** Suggested next step, if there is one. */
  readonly hint: string | undefined;
  readonly path: Path | undefined;
  readonly details: ErrorDetails;

  constructor(
    /** Name of the method. */
    readonly method: string,
    /** Error code of JSON-RPC. */
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

/** The program `ctrlz` was not found. */
export class BinaryNotFoundError extends CtrlzError {
  override name = "BinaryNotFoundError";
  constructor(
    /** Name or path that was tried. */
    readonly tried: string,
    options?: ErrorOptions,
  ) {
    const next = "install ctrlz, or set the option `binary` or CTRLZ_BINARY";
    super(`cannot start ${tried}: program not found; ${next}`, options);
  }
}

/** The program uses another version of the protocol, or is not ctrlz. */
export class ProtocolError extends CtrlzError {
  override name = "ProtocolError";
}

/** The server ended before it answered. The next call starts another server. */
export class ServerEndedError extends CtrlzError {
  override name = "ServerEndedError";
  /** The call was sent and may have been executed. A call that only reads was tried twice. */
  readonly outcome: Outcome = "unknown";
  constructor(
    readonly method: string,
    /** Exit code or name of the signal. */
    readonly status: number | string | null,
    /** Last output on standard error. */
    readonly stderr: string,
  ) {
    const said = stderr.trim();
    super(`ctrlz ended (${status ?? "unknown"}) before it answered ${method}${said && `: ${said}`}`);
  }
}

/** The call was not answered in time and was cancelled. */
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

/** The client is closed. */
export class ClosedError extends CtrlzError {
  override name = "ClosedError";
  constructor(readonly method: string) {
    super(`${method} was called on a closed client`);
  }
}
