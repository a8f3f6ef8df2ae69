// Requests to the server, with the generated types of its methods.

import { encodePath, parseWire, toWire } from "../../clients/typescript/src/path";
import type { Change, Disabled, Hash, LogEntry, Methods, OpenSteps, Place } from "../../clients/typescript/src/wire";
import type { Failure as FailureBody, Hello, LoggedIn, LoginBody, Project, Projects } from "./http";

export type Method = keyof Methods;
/** Parameters of a method. The address selects the work tree. */
export type Params<M extends Method> = Omit<Methods[M]["params"], keyof Place>;
export type Result<M extends Method> = Exclude<Methods[M]["result"], Disabled>;

export type ServerEvent =
  | { name: "hello"; data: Hello }
  | { name: "open_steps"; data: OpenSteps }
  | { name: "operation"; data: LogEntry }
  | { name: "reset" };

/** An error of the server, or of the connection. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
    readonly hint: string | null = null,
    readonly holder: string | null = null,
  ) {
    super(message);
  }

  /** Whether the requested state was recorded once and no longer exists. */
  get expired(): boolean {
    return this.status === 410 || ["unknown_snapshot", "unknown_operation", "purged", "damaged"].includes(this.kind);
  }
}

export const asFailure = (error: unknown) => (error instanceof Failure ? error : new Failure(0, "internal", String(error)));

const TOKEN = "ctrlz-token";
const JSON_HEADERS = { "Content-Type": "application/json" };
let whenSignedOut = () => {};
export const onSignedOut = (then: () => void) => void (whenSignedOut = then);

/** Exchanges the code in the fragment of the address, which `ctrlz ui` adds, for a token. */
export async function signIn(): Promise<boolean> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", "/");
    const body: LoginBody = { code };
    const answer = await fetch("/v1/login", { method: "POST", headers: JSON_HEADERS, body: JSON.stringify(body) });
    if (answer.ok) localStorage.setItem(TOKEN, (await json<LoggedIn>(answer)).token);
  }
  return localStorage.getItem(TOKEN) !== null;
}

async function json<T>(answer: Response): Promise<T> {
  return parseWire(await answer.text()) as T;
}

async function request(address: string, init: RequestInit = {}): Promise<Response> {
  const headers = { ...init.headers, Authorization: `Bearer ${localStorage.getItem(TOKEN)}` };
  const answer = await fetch(address, { ...init, headers }).catch((error: Error) => {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "unreachable", "The server does not answer.", "Run `ctrlz ui` again.");
  });
  if (answer.ok) return answer;
  if (answer.status === 401) {
    localStorage.removeItem(TOKEN);
    whenSignedOut();
  }
  throw await failureOf(answer);
}

async function failureOf(answer: Response): Promise<Failure> {
  const body = await json<FailureBody>(answer).catch(() => undefined);
  if (!body?.error) return new Failure(answer.status, "unknown", `The server answered with status ${answer.status}.`);
  const { kind, message, hint, details } = body.error;
  return new Failure(answer.status, kind, message, hint ?? null, details?.holder ?? null);
}

/** Percent-encodes a value. `encodeURIComponent` throws for a path that is not UTF-8. */
function encoded(value: unknown): string {
  const text = String(value);
  if (!/\p{Surrogate}/u.test(text)) return encodeURIComponent(text);
  return [...encodePath(text)].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

function query(params: object): string {
  const pairs = Object.entries<unknown>({ ...params }).flatMap(([name, value]) => {
    if (value === null || value === undefined) return [];
    return (Array.isArray(value) ? value : [value]).map((one: unknown) => `${name}=${encoded(one)}`);
  });
  return pairs.length ? `?${pairs.join("&")}` : "";
}

export const projects = async (): Promise<Project[]> => (await json<Projects>(await request("/v1/projects"))).projects;

/** The methods of one work tree. */
export class Api {
  constructor(readonly project: string) {}

  private address(method: string): string {
    return `/v1/projects/${encodeURIComponent(this.project)}/${method}`;
  }

  async get<M extends Method>(method: M, params: Params<M>, signal?: AbortSignal): Promise<Result<M>> {
    return resultOf<M>(await request(this.address(method) + query(params), { signal }));
  }

  /** Calls a method that changes something. The server requires `confirm` for those that delete snapshots. */
  async post<M extends Method>(method: M, params: Params<M> & { confirm?: true }): Promise<Result<M>> {
    const body = JSON.stringify(toWire(params));
    return resultOf<M>(await request(this.address(method), { method: "POST", headers: JSON_HEADERS, body }));
  }

  /** Returns all pages of the changes between two snapshots. */
  async changes(from: Hash, to: Hash): Promise<Change[]> {
    let files: Change[] = [];
    for (let offset: number | null = 0; offset !== null; ) {
      const page: Result<"changes"> = await this.get("changes", { from, to, offset });
      files = files.concat(page.files);
      offset = page.next;
    }
    return files;
  }

  /** Reads events until the signal aborts or the connection ends. `EventSource` cannot send the token. */
  async events(heard: (event: ServerEvent) => void, signal: AbortSignal): Promise<void> {
    const answer = await request(this.address("events"), { signal });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (buffered + value).split("\n\n");
      buffered = blocks.pop()!;
      blocks.forEach((block) => dispatch(block, heard));
    }
  }
}

async function resultOf<M extends Method>(answer: Response): Promise<Result<M>> {
  const result = await json<Result<M> | Disabled>(answer);
  if ("disabled" in result) throw new Failure(answer.status, "disabled", "Snapshots are disabled in this work tree.");
  return result;
}

function dispatch(block: string, heard: (event: ServerEvent) => void): void {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) heard({ name, data: parseWire(data) } as ServerEvent);
}
