// What is about to be done: first a plan, then exactly that or nothing.

import { applyPatch, structuredPatch } from "diff";
import { shown, type Action, type Api, type Change, type Entry, type FileDiff, type Path } from "./api";
import type { Source } from "./diff";

export type Verb = "undo" | "redo" | "restore" | "recover";

export interface Intent {
  verb: Verb;
  title: string;
  /** What the plan is asked with. */
  params: Record<string, unknown>;
  /** The snapshot that a restore brings back. */
  target?: string;
}

interface Blocked {
  path: Path;
  why: string;
}

export interface Plan {
  hash: string;
  actions: Action[];
  conflicts: Blocked[];
  kept: Blocked[];
  steps: string[];
  /** The present state, as it was recorded for the plan. */
  now: string;
}

interface Kept {
  path: Path;
  text: string;
}

interface UndoReport {
  plan: string;
  done: Action[];
  conflicts: Blocked[];
  ignored: Blocked[];
  kept: Kept[];
  steps: string[];
}

interface RestorePlan {
  hash: string;
  actions: Action[];
  kept: Kept[];
}

const keptOf = (kept: Kept[]): Blocked[] => kept.map(({ path, text }) => ({ path, why: text }));
const merges = (verb: Verb) => verb === "undo" || verb === "redo";

export async function planFor(api: Api, { verb, params }: Intent): Promise<Plan> {
  const said = await api.post<UndoReport | RestorePlan>(`plan_${verb}`, params);
  const { operations } = await api.get<{ operations: Entry[] }>("timeline", { limit: 1, files: 0 });
  const now = operations[0]?.after ?? "";
  if ("hash" in said) return { hash: said.hash, actions: said.actions, conflicts: [], kept: keptOf(said.kept), steps: [], now };
  const kept = [...keptOf(said.kept), ...said.ignored];
  return { hash: said.plan, actions: said.done, conflicts: said.conflicts, kept, steps: said.steps, now };
}

export interface Outcome {
  done: Action[];
  complete: boolean;
  git_hint?: string | null;
}

export function carryOut(api: Api, { verb, params }: Intent, plan: Plan): Promise<Outcome> {
  const agreed = params.allow_mass_removal ? { allow_mass_removal: true } : {};
  if (merges(verb)) return api.post("apply", { plan: plan.hash, ...agreed });
  return api.post(verb, { ...params, plan: plan.hash });
}

const STATUS: Record<Action["action"], Change["status"]> = {
  create: "added", create_directory: "added", overwrite: "modified", set_mode: "modified", remove: "deleted", remove_directory: "deleted",
};

export const changesOf = (plan: Plan): Change[] => plan.actions.map(({ path, action }) => ({ path, status: STATUS[action] }));

/** The texts before and after, for each file that the plan touches. */
export function sourceOf(api: Api, intent: Intent, plan: Plan): Source {
  const actions = new Map(plan.actions.map((action) => [shown(action.path), action.action]));
  const load = (path: Path) => textsOf(api, intent, plan, path, actions.get(shown(path)) ?? "overwrite");
  return { key: plan.hash, load };
}

const READABLE = 2_000_000;

interface FileAt {
  file: { content: string; encoding: string; truncated: boolean } | null;
}

const NOT_TEXT = Symbol("not text");

async function textAt(api: Api, hash: string, path: Path): Promise<string | typeof NOT_TEXT> {
  const { file } = await api.get<FileAt>("get_file_at", { hash, path, max_bytes: READABLE });
  if (!file) return "";
  return file.encoding !== "utf-8" || file.truncated ? NOT_TEXT : file.content;
}

async function textsOf(api: Api, intent: Intent, plan: Plan, path: Path, action: Action["action"]): Promise<FileDiff | null> {
  if (intent.target) {
    return (await api.get<{ files: FileDiff[] }>("diff_full", { from: plan.now, to: intent.target, paths: [path] })).files[0] ?? null;
  }
  const before = await textAt(api, plan.now, path);
  const after = action === "remove" ? "" : await expected(api, intent, plan, path, before);
  const diff = { file: path, additions: 0, deletions: 0, status: STATUS[action], omitted: false };
  if (before === NOT_TEXT || after === NOT_TEXT) return { ...diff, before: "", after: "", binary: true };
  return { ...diff, ...lineCounts(before, after), before, after, binary: false };
}

function lineCounts(before: string, after: string): { additions: number; deletions: number } {
  const lines = structuredPatch("", "", before, after, "", "", { context: 0, timeout: 1500 })?.hunks.flatMap((hunk) => hunk.lines) ?? [];
  const count = (sign: string) => lines.filter((line) => line[0] === sign).length;
  return { additions: count("+"), deletions: count("-") };
}

interface StepRecord {
  before: string;
  after: string;
  at_millis: number;
  paths: Path[] | null;
}

/** What a file will be once the steps are merged out of it, or back into it. */
async function expected(api: Api, intent: Intent, plan: Plan, path: Path, now: string | typeof NOT_TEXT): Promise<string | typeof NOT_TEXT> {
  const span = await spanOf(api, plan.steps, path);
  if (!span) return NOT_TEXT;
  const texts = await Promise.all([textAt(api, span.before, path), textAt(api, span.after, path)]);
  const [from, to] = intent.verb === "undo" ? texts.reverse() : texts;
  if (from === now || now === "") return to;
  if (from === NOT_TEXT || to === NOT_TEXT || now === NOT_TEXT) return NOT_TEXT;
  const merged = applyPatch(now, structuredPatch("", "", from, to, "", "", { context: 1 }));
  return merged === false ? NOT_TEXT : merged;
}

async function spanOf(api: Api, steps: string[], path: Path): Promise<{ before: string; after: string } | null> {
  const touched: StepRecord[] = [];
  for (const step of steps) {
    const { files, records } = await api.get<{ files: Change[]; records: StepRecord[] }>("step", { step });
    if (files.length === 0 || files.some((file) => shown(file.path) === shown(path))) touched.push(...records);
  }
  touched.sort((a, b) => a.at_millis - b.at_millis);
  const last = touched[touched.length - 1];
  return last ? { before: touched[0].before, after: last.after } : null;
}
