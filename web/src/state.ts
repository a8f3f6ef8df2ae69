// The state of the page, as signals. Components that read a signal are rendered again when it changes.

import { batch, computed, signal } from "@preact/signals";
import type { LogEntry, SessionInfo, StepInfo } from "../../clients/typescript/src/wire";
import { Api, asFailure, onSignedOut, projects as loadProjects, signIn, type Failure, type ServerEvent } from "./api";
import type { Project } from "./http";
import { rowsOf, type Row } from "./rows";

export type Stage = "starting" | "signed out" | "ready" | "failed";
export type View = "timeline" | "compare" | "storage";

export const stage = signal<Stage>("starting");
export const failed = signal<Failure | null>(null);
export const projectList = signal<Project[]>([]);
export const api = signal<Api>(new Api(""));
export const entries = signal<LogEntry[]>([]);
export const older = signal<string | null>(null);
export const loading = signal(false);
export const sessions = signal<SessionInfo[]>([]);
export const openSteps = signal<StepInfo[]>([]);
export const live = signal(false);
export const view = signal<View>("timeline");
/** Keys of the selected rows: the focused one, and the other end of a range. */
export const chosen = signal<string | null>(null);
export const rangeEnd = signal<string | null>(null);
/** Whether the detail covers the timeline, on a narrow screen. */
export const detailOpen = signal(false);
export const search = signal("");
export const onlySession = signal<string | null>(null);
/** Operations that added or removed the searched text; null without a text search. */
export const textHits = signal<Set<string> | null>(null);
export const textProgress = signal<{ done: number; of: number } | null>(null);
export const compareFrom = signal<string | null>(null);
export const compareTo = signal<string | null>(null);
export const split = signal(localStorage.getItem("ctrlz-diff") !== "unified");
export const unseen = signal(0);

const phone = matchMedia("(max-width: 800px)");
/** Whether the screen is too narrow for two columns. */
export const narrow = signal(phone.matches);
phone.addEventListener("change", () => (narrow.value = phone.matches));

export const stepIndex = computed(() => {
  const index = new Map<string, { step: LogEntry["steps"][number]; entry: LogEntry }>();
  for (const entry of entries.value) for (const step of entry.steps) index.set(step.step, { step, entry });
  return index;
});

export const rows = computed<Row[]>(() => rowsOf(entries.value, search.value, onlySession.value, textHits.value));
export const rowIndex = computed(() => new Map(rows.value.map((row, index) => [row.key, index])));
export const chosenRow = computed(() => rows.value[rowIndex.value.get(chosen.value ?? "") ?? -1] ?? null);
export const redoable = computed(() => entries.value.some((e) => ["undo", "revert"].includes(e.kind) && !e.taken_back));

const PAGE = 200;
/** Page size for loading the whole log, where fewer requests are faster. */
const LARGE_PAGE = 1000;
let stopEvents = new AbortController();

export async function start(): Promise<void> {
  onSignedOut(() => {
    stopEvents.abort();
    stage.value = "signed out";
  });
  try {
    if (!(await signIn())) return void (stage.value = "signed out");
    projectList.value = await loadProjects();
    readPlace();
    const named = placeProject();
    await open(projectList.value.find(({ project }) => project === named) ?? projectList.value[0]);
    window.addEventListener("hashchange", readPlace);
  } catch (error) {
    fail(error);
  }
}

async function open(project: Project | undefined): Promise<void> {
  if (!project) return void (stage.value = "ready");
  stopEvents.abort();
  api.value = new Api(project.project);
  await reload();
  void listen();
}

/** Opens another work tree. Unlike `start`, this resets the selection and the search. */
export async function change(project: Project | undefined): Promise<void> {
  batch(() => {
    entries.value = [];
    older.value = null;
    chosen.value = rangeEnd.value = null;
    onlySession.value = null;
    search.value = "";
  });
  await open(project);
}

export async function reload(): Promise<void> {
  failed.value = null;
  try {
    const [log] = await Promise.all([page(null), refreshSessions()]);
    batch(() => {
      entries.value = log.operations;
      older.value = log.next;
      stage.value = "ready";
      if (!rowIndex.value.has(chosen.value ?? "")) chosen.value = rows.value[0]?.key ?? null;
    });
    if (search.value) void loadAll();
  } catch (error) {
    fail(error);
  }
}

const page = (before: string | null, limit = PAGE) =>
  api.value.get("timeline", { limit, files: 20, before });

export async function loadOlder(limit = PAGE): Promise<void> {
  if (loading.value || !older.value) return;
  loading.value = true;
  try {
    const log = await page(older.value, limit);
    batch(() => {
      entries.value = [...entries.value, ...log.operations];
      older.value = log.next;
    });
  } catch (error) {
    fail(error);
  } finally {
    loading.value = false;
  }
}

/** Loads the whole log, so that a search is complete. */
export async function loadAll(): Promise<void> {
  while (older.value && stage.value === "ready") {
    if (loading.value) await new Promise((later) => setTimeout(later, 50));
    else await loadOlder(LARGE_PAGE);
  }
}

function fail(error: unknown): void {
  if (stage.value === "signed out") return;
  failed.value = asFailure(error);
  stage.value = "failed";
}

async function refreshSessions(): Promise<void> {
  sessions.value = (await api.value.get("sessions", {})).sessions;
}

/** Receives events while the page is open, and reconnects with exponential backoff. */
async function listen(): Promise<void> {
  const stop = (stopEvents = new AbortController());
  void awaitFirst(stop.signal);
  for (let wait = 500; !stop.signal.aborted; wait = Math.min(wait * 2, 15_000)) {
    const heard = (event: ServerEvent) => {
      wait = 500;
      hear(event);
    };
    await api.value.events(heard, stop.signal).catch(() => {});
    live.value = false;
    if (!stop.signal.aborted) await new Promise((later) => setTimeout(later, wait));
  }
}

/** Polls until the first snapshot exists. Before that, the server has no log to watch. */
async function awaitFirst(stop: AbortSignal): Promise<void> {
  while (!stop.aborted && entries.value.length === 0) {
    await new Promise((later) => setTimeout(later, 2000));
    if (!stop.aborted && stage.value === "ready" && entries.value.length === 0) await catchUp().catch(() => {});
  }
}

function hear(event: ServerEvent): void {
  switch (event.name) {
    case "hello":
      live.value = true;
      openSteps.value = event.data.open_steps.steps;
      if (event.data.newest && event.data.newest !== entries.value[0]?.operation) void reload();
      break;
    case "open_steps":
      openSteps.value = event.data.steps;
      break;
    case "operation":
      add(event.data);
      break;
    case "reset":
      void reload();
  }
}

let sessionsTimer: ReturnType<typeof setTimeout> | undefined;

function add(entry: LogEntry): void {
  if (entries.value.some(({ operation }) => operation === entry.operation)) return;
  const wasNewest = chosen.value === rows.value[0]?.key;
  batch(() => {
    entries.value = [entry, ...entries.value.map((old) => after(old, entry))];
    unseen.value += 1;
    if (wasNewest && !detailOpen.value && !rangeEnd.value) chosen.value = rows.value[0]?.key ?? null;
  });
  clearTimeout(sessionsTimer);
  sessionsTimer = setTimeout(() => void refreshSessions().catch(() => {}), 400);
}

/** Returns an older entry with its state after a newer one undid or redid it. */
function after(old: LogEntry, news: LogEntry): LogEntry {
  const back = ["undo", "revert"].includes(news.kind);
  const forth = ["redo", "unrevert"].includes(news.kind);
  if (!back && !forth) return old;
  const touched = old.steps.some(({ step }) => news.subjects.includes(step));
  const taken_back = old.taken_back || old.operation === news.takes_back;
  if (!touched && taken_back === old.taken_back) return old;
  const steps = old.steps.map((step) => (news.subjects.includes(step.step) ? { ...step, undone: back } : step));
  return { ...old, steps, taken_back };
}

/** Loads new entries without waiting for their events. */
export async function catchUp(): Promise<void> {
  const { operations } = await api.value.get("timeline", { limit: 20, files: 20 });
  operations.reverse().forEach(add);
}

const placeProject = () => location.hash.split("/")[1] ?? "";

/** Reads `#/PROJECT/VIEW/…` from the address, so that links and the back button work. */
function readPlace(): void {
  const [, , name = "timeline", from, to] = location.hash.split("/");
  batch(() => {
    view.value = name === "compare" || name === "storage" ? name : "timeline";
    if (name === "compare") [compareFrom.value, compareTo.value] = [from || null, to || null];
    if (name === "timeline") {
      if (from) chosen.value = decodeURIComponent(from);
      detailOpen.value = Boolean(from) && to === "open";
    }
  });
}

export function go(to: View, ...rest: string[]): void {
  const hash = ["#", api.value.project, to, ...rest].join("/");
  if (location.hash !== hash) location.hash = hash;
}

export function choose(key: string, how: "show" | "open" | "extend" = "show"): void {
  batch(() => {
    if (how === "extend") rangeEnd.value ??= chosen.value;
    else rangeEnd.value = null;
    chosen.value = key;
  });
  if (how === "open") go("timeline", encodeURIComponent(key), "open");
}

export function closeDetail(): void {
  detailOpen.value = false;
  go("timeline");
}

export function setSplit(on: boolean): void {
  split.value = on;
  localStorage.setItem("ctrlz-diff", on ? "split" : "unified");
}
