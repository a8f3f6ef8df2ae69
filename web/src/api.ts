// What the server is asked, and how. The types are those of schema/ctrlz.schema.json, as far as the
// page reads them.

export type Path = string | { bytes: number[] };
export type ChangeStatus = "added" | "deleted" | "modified";

export interface Step {
  step: string;
  session: string;
  message: string | null;
  part: string | null;
  tool: string | null;
  label: string | null;
  who: string | null;
  parent: { session: string; message: string | null } | null;
}

export interface LoggedStep extends Step {
  inferred: boolean;
  undone: boolean;
}

export interface Change {
  path: Path;
  status: ChangeStatus;
  additions?: number;
  deletions?: number;
}

export interface Entry {
  operation: string;
  kind: string;
  at_millis: number;
  before: string | null;
  after: string;
  label: string | null;
  session: string | null;
  steps: LoggedStep[];
  subjects: string[];
  takes_back: string | null;
  taken_back: boolean;
  boundary: { message: string; part: string | null } | null;
  forked: { session: string; message: string | null; operation: string } | null;
  /** Set if an agent worked here without its steps being recorded. */
  gap?: { why: string } | null;
  pinned: boolean;
  files: number | null;
  additions: number | null;
  deletions: number | null;
  changes: Change[];
  damaged: boolean;
}

export interface SessionInfo {
  session: string;
  who: string | null;
  parent: string | null;
  forked: Entry["forked"];
  steps: number;
  undone: number;
  first_at_millis: number;
  last_at_millis: number;
}

export interface Project {
  project: string;
  path: Path;
  name: string;
  present: boolean;
}

export interface FileDiff {
  file: Path;
  before: string;
  after: string;
  additions: number;
  deletions: number;
  status: ChangeStatus;
  binary: boolean;
  omitted: boolean;
}

export interface Action {
  action: "create" | "overwrite" | "remove" | "set_mode" | "create_directory" | "remove_directory";
  path: Path;
}

export interface Checkpoint {
  name: string;
  label: string | null;
  operation: string;
  snapshot: string;
  at_millis: number;
  pinned: boolean;
  session: string | null;
}

export interface Status {
  root: Path;
  enabled: boolean;
  git: boolean;
  store: Path | null;
  store_bytes: number;
  last: string | null;
  last_at_millis: number | null;
  skipped: { path: Path; text: string; failure: boolean; bytes?: number | null }[];
  borrowed: number;
  interrupted_files: number | null;
  damaged_packs: { path: Path; why: string }[];
  watcher: { state: string; why?: string | null };
}

export interface LostFile {
  path: Path;
  at_millis: number;
  kind: string;
  snapshot: string;
  step: Step | null;
}

/** A failure as every interface of ctrlz tells it. */
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

  /** What was asked for was recorded once and is no longer kept. */
  get expired(): boolean {
    return this.status === 410 || ["unknown_snapshot", "unknown_operation", "purged", "damaged"].includes(this.kind);
  }
}

const TOKEN = "ctrlz-token";
let whenSignedOut = () => {};
export const onSignedOut = (then: () => void) => void (whenSignedOut = then);

/** Takes the code behind the `#`, if `ctrlz ui` put one there, for a token. */
export async function signIn(): Promise<boolean> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", "/");
    const answer = await fetch("/v1/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) });
    if (answer.ok) localStorage.setItem(TOKEN, (await answer.json()).token);
  }
  return localStorage.getItem(TOKEN) !== null;
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
  throw await failure(answer);
}

async function failure(answer: Response): Promise<Failure> {
  const { error } = await answer.json().catch(() => ({ error: {} }));
  const message = error.message ?? `The server answered ${answer.status}.`;
  return new Failure(answer.status, error.kind ?? "unknown", message, error.hint ?? null, error.details?.holder ?? null);
}

type Value = string | number | boolean | Path | Path[] | object | null | undefined;

/** A path that is not text is its bytes, %-encoded. */
function encoded(value: Value): string {
  if (typeof value === "object" && value && "bytes" in value) {
    return value.bytes.map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  }
  return encodeURIComponent(typeof value === "object" ? JSON.stringify(value) : String(value));
}

function query(params: Record<string, Value>): string {
  const pairs = Object.entries(params).flatMap(([name, value]) => {
    if (value === null || value === undefined) return [];
    return (Array.isArray(value) ? value : [value]).map((one) => `${name}=${encoded(one)}`);
  });
  return pairs.length ? `?${pairs.join("&")}` : "";
}

export const projects = async (): Promise<Project[]> => (await (await request("/v1/projects")).json()).projects;

/** Everything that is asked of one work tree. */
export class Api {
  constructor(readonly project: string) {}

  private address(method: string): string {
    return `/v1/projects/${encodeURIComponent(this.project)}/${method}`;
  }

  async get<T>(method: string, params: Record<string, Value> = {}, signal?: AbortSignal): Promise<T> {
    return (await request(this.address(method) + query(params), { signal })).json();
  }

  async post<T>(method: string, body: object): Promise<T> {
    const headers = { "Content-Type": "application/json" };
    return (await request(this.address(method), { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  /** All entries of a list that comes in pages. */
  async all<T>(method: string, field: string, params: Record<string, Value>, most = Infinity): Promise<T[]> {
    const found: T[] = [];
    for (let offset: number | null = 0; offset !== null && found.length < most; ) {
      const page: { next: number | null } & Record<string, unknown> = await this.get(method, { ...params, offset });
      found.push(...(page[field] as T[]));
      offset = page.next;
    }
    return found;
  }

  /** Reads events until the signal says stop or the connection ends. `EventSource` cannot send the token. */
  async events(heard: (name: string, data: any) => void, signal: AbortSignal): Promise<void> {
    const answer = await request(this.address("events"), { signal });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffered = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (buffered + value).split("\n\n");
      buffered = blocks.pop()!;
      blocks.forEach((block) => tell(block, heard));
    }
  }
}

function tell(block: string, heard: (name: string, data: any) => void): void {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) heard(name, JSON.parse(data));
}

/** A path as people read it; bytes that are no text become marks. */
export const shown = (path: Path): string => (typeof path === "string" ? path : new TextDecoder().decode(new Uint8Array(path.bytes)));
