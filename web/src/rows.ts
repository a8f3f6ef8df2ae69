// The rows of the timeline: log entries, grouped by turn below their prompt.

import { pathText } from "../../clients/typescript/src/path";
import type { LogEntry, LoggedStep } from "../../clients/typescript/src/wire";

export interface PromptRow {
  type: "prompt";
  key: string;
  session: string;
  message: string;
  title: string;
  who: string | null;
  /** Newest first, like the log. */
  entries: LogEntry[];
  steps: LoggedStep[];
  files: number;
  additions: number;
  deletions: number;
  undone: boolean;
  at: number;
  day: string | null;
}

export interface EntryRow {
  type: "entry";
  key: string;
  entry: LogEntry;
  at: number;
  day: string | null;
  /** Whether the row is below a prompt. */
  nested: boolean;
}

export type Row = PromptRow | EntryRow;

/** Whether an entry is the prompt of a turn: a step without a tool and without changes. */
const isPrompt = (entry: LogEntry) =>
  entry.kind === "step" && entry.files === 0 && entry.steps.length === 1 && !entry.steps[0].tool && Boolean(entry.steps[0].label);

const turnOf = (entry: LogEntry): string | null => {
  const step = entry.kind === "step" ? entry.steps[0] : undefined;
  return step?.message ? `${step.session}\u0000${step.message}` : null;
};

export const sessionOf = (entry: LogEntry): string | null => entry.steps[0]?.session ?? entry.session;

export function rowsOf(entries: LogEntry[], search: string, session: string | null, textHits: Set<string> | null): Row[] {
  const rows: Row[] = [];
  const wanted = entries.filter((entry) => !session || sessionOf(entry) === session || entry.steps.some((s) => s.session === session));
  for (let index = 0; index < wanted.length; ) {
    const turn = turnOf(wanted[index]);
    let end = index + 1;
    while (turn && end < wanted.length && turnOf(wanted[end]) === turn) end++;
    rows.push(...group(wanted.slice(index, end), turn));
    index = end;
  }
  return dated(textHits ? rows.filter((row) => entriesOf(row).some((e) => textHits.has(e.operation))) : filtered(rows, search));
}

function group(entries: LogEntry[], turn: string | null): Row[] {
  const inside = entries.filter((entry) => !isPrompt(entry));
  const single = inside.map((entry): EntryRow => ({ type: "entry", key: entry.operation, entry, at: entry.at_millis, day: null, nested: false }));
  if (!turn) return single;
  const prompt = entries.find(isPrompt);
  if (!prompt && single.length === 1) return single;
  return [promptRow(entries, prompt), ...single.map((row) => ({ ...row, nested: true }))];
}

function promptRow(entries: LogEntry[], prompt: LogEntry | undefined): PromptRow {
  const steps = entries.flatMap((entry) => entry.steps);
  const sum = (of: (entry: LogEntry) => number | null) => entries.reduce((total, entry) => total + (of(entry) ?? 0), 0);
  const working = steps.filter((step) => step.step !== prompt?.steps[0].step);
  return {
    type: "prompt",
    key: `p-${entries[entries.length - 1].operation}`,
    session: steps[0].session,
    message: steps[0].message!,
    title: prompt?.steps[0].label ?? steps[0].message!,
    who: steps[0].who,
    entries,
    steps,
    files: new Set(entries.flatMap((entry) => entry.changes.map(({ path }) => pathText(path)))).size,
    additions: sum((entry) => entry.additions),
    deletions: sum((entry) => entry.deletions),
    undone: working.length > 0 && working.every((step) => step.undone),
    at: entries[entries.length - 1].at_millis,
    day: null,
  };
}

export const entriesOf = (row: Row): LogEntry[] => (row.type === "prompt" ? row.entries : [row.entry]);

/** Keeps rows that contain all words, in a label, a prompt, a tool, a session or the name of a file. */
function filtered(rows: Row[], search: string): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  const fits = (row: Row) => words.every((word) => haystack(row).includes(word));
  const kept: Row[] = [];
  let prompt: PromptRow | null = null;
  for (const row of rows) {
    if (row.type === "prompt") {
      prompt = row;
      if (fits(row)) kept.push(row);
    } else if (fits(row)) {
      if (row.nested && prompt && kept[kept.length - 1] !== prompt && !kept.includes(prompt)) kept.push(prompt);
      kept.push(row);
    }
  }
  return kept;
}

function haystack(row: Row): string {
  const own = row.type === "prompt" ? [row.title, row.session, row.who] : textsOf(row.entry);
  return own.filter(Boolean).join("\n").toLowerCase();
}

const textsOf = (entry: LogEntry): (string | null)[] => [
  entry.kind,
  entry.label,
  ...entry.steps.flatMap((step) => [step.label, step.tool, step.session, step.who]),
  ...entry.changes.map(({ path }) => pathText(path)),
];

function dated(rows: Row[]): Row[] {
  let last = "";
  return rows.map((row) => {
    const day = new Date(row.at).toDateString();
    const first = day !== last;
    last = day;
    return first ? { ...row, day: dayName(row.at) } : row;
  });
}

function dayName(at: number): string {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return new Date(at).toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short", year: "numeric" });
}

const KINDS: Record<string, string> = {
  baseline: "First snapshot",
  outside: "Edited outside",
  restore: "Restored",
  undo: "Undo",
  redo: "Redo",
  revert: "Reverted",
  unrevert: "Revert reversed",
  checkpoint: "Checkpoint",
  fork: "Fork",
  step: "Step",
};

export const kindName = (kind: string) => KINDS[kind] ?? kind;

/** Returns the title of an entry. `nameOf` returns the name of a step by its id. */
export function titleOf(entry: LogEntry, nameOf: (step: string) => string | null): string {
  const subjects = () => {
    const names = [...new Set(entry.subjects.map(nameOf).filter(Boolean))];
    const more = names.length > 1 ? ` and ${names.length - 1} more` : "";
    return names.length ? `${names[0]}${more}` : `${entry.subjects.length} steps`;
  };
  switch (entry.kind) {
    case "step":
      return entry.steps.map(stepName).join(", ") || "Step";
    case "undo":
      return `Undid: ${subjects()}`;
    case "redo":
      return `Redid: ${subjects()}`;
    case "revert":
      return `Reverted the session to before ${entry.boundary?.message ?? "a message"}`;
    case "checkpoint":
      return entry.label ?? "Checkpoint";
    case "fork":
      return `${entry.session ?? "A session"} forked from ${entry.forked?.session ?? "another session"}`;
    default:
      return entry.gap ? `Not recorded: ${entry.gap.why}` : (entry.label ?? kindName(entry.kind));
  }
}

export const stepName = (step: { label: string | null; tool: string | null }) => step.label ?? step.tool ?? "Step";
export const isUndone = (row: Row) =>
  row.type === "prompt" ? row.undone : row.entry.taken_back || (row.entry.steps.length > 0 && row.entry.steps.every((step) => step.undone));
