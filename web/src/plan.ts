// Plans of undo, redo, restore and recover. A plan is shown first, and then applied exactly or not at all.

import { applyPatch, structuredPatch } from "diff";
import type {
  Action, ActionKind, Change, ChangeStatus, Conflict, FileDiff, Hash, Kept, Path, Plan, RestoreReport, StepRecord, UndoReport,
} from "../../clients/typescript/src/wire";
import type { Api, Params } from "./api";
import type { Source } from "./diff";

/** An action that the user asked for. `target` is the snapshot to restore. */
export type Intent = {
  title: string;
  /** Confirmations that the user gave in the preview. */
  confirmed?: { allow_mass_removal?: boolean; force?: boolean };
} & (
  | { verb: "undo"; params: Params<"plan_undo">; target?: undefined }
  | { verb: "redo"; params: Params<"plan_redo">; target?: undefined }
  | { verb: "restore"; params: Params<"plan_restore">; target: Hash }
  | { verb: "recover"; params: Params<"plan_recover">; target: Hash }
);

/** A file that the plan does not change, with the reason. */
type Skipped = Pick<Conflict, "path" | "why">;

export interface Planned {
  hash: Hash;
  actions: Action[];
  conflicts: Skipped[];
  kept: Skipped[];
  steps: string[];
  /** Snapshot of the current state, which was recorded for the plan. */
  now: Hash;
}

const keptOf = (kept: Kept[]): Skipped[] => kept.map(({ path, text }) => ({ path, why: text }));

function requestPlan(api: Api, intent: Intent): Promise<UndoReport | Plan> {
  const { confirmed } = intent;
  switch (intent.verb) {
    case "undo":
      return api.post("plan_undo", { ...intent.params, ...confirmed });
    case "redo":
      return api.post("plan_redo", { ...intent.params, ...confirmed });
    case "restore":
      return api.post("plan_restore", { ...intent.params, ...massRemoval(intent) });
    case "recover":
      return api.post("plan_recover", intent.params);
  }
}

const massRemoval = ({ confirmed }: Intent) => (confirmed?.allow_mass_removal ? { allow_mass_removal: true } : {});

export async function planFor(api: Api, intent: Intent): Promise<Planned> {
  const plan = await requestPlan(api, intent);
  const { operations } = await api.get("timeline", { limit: 1, files: 0 });
  const now = operations[0]?.after ?? "";
  if ("hash" in plan) return { hash: plan.hash, actions: plan.actions, conflicts: [], kept: keptOf(plan.kept), steps: [], now };
  const kept = [...keptOf(plan.kept), ...plan.ignored];
  return { hash: plan.plan, actions: plan.done, conflicts: plan.conflicts, kept, steps: plan.steps, now };
}

export function apply(api: Api, intent: Intent, { hash: plan }: Planned): Promise<UndoReport | RestoreReport> {
  if (intent.verb === "restore") return api.post("restore", { ...intent.params, ...massRemoval(intent), plan });
  if (intent.verb === "recover") return api.post("recover", { ...intent.params, plan });
  return api.post("apply", { plan, ...massRemoval(intent) });
}

const STATUS: Record<ActionKind, ChangeStatus> = {
  create: "added", create_directory: "added", overwrite: "modified", set_mode: "modified", remove: "deleted", remove_directory: "deleted",
};

export const changesOf = (plan: Planned): Change[] => plan.actions.map(({ path, action }) => ({ path, status: STATUS[action] }));

/** Provides the texts before and after the plan, for each file that it changes. */
export function sourceOf(api: Api, intent: Intent, plan: Planned): Source {
  const actions = new Map(plan.actions.map(({ path, action }) => [path, action]));
  const load = (path: Path) => textsOf(api, intent, plan, path, actions.get(path) ?? "overwrite");
  return { key: plan.hash, load };
}

/** Maximum size of a file to show, in bytes. */
const MAX_SHOWN_BYTES = 2_000_000;

const NOT_TEXT = Symbol("not text");
type Text = string | typeof NOT_TEXT;

async function textAt(api: Api, hash: Hash, path: Path): Promise<Text> {
  const { file } = await api.get("get_file_at", { hash, path, max_bytes: MAX_SHOWN_BYTES });
  if (!file) return "";
  return file.encoding !== "utf-8" || file.truncated ? NOT_TEXT : file.content;
}

async function textsOf(api: Api, intent: Intent, plan: Planned, path: Path, action: ActionKind): Promise<FileDiff | null> {
  if (intent.target) {
    return (await api.get("diff_full", { from: plan.now, to: intent.target, paths: [path] })).files[0] ?? null;
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

/** Returns the expected text of a file after the steps are undone or redone in it. */
async function expected(api: Api, intent: Intent, plan: Planned, path: Path, now: Text): Promise<Text> {
  const span = await spanOf(api, plan.steps, path);
  if (!span) return NOT_TEXT;
  const texts = await Promise.all([textAt(api, span.before, path), textAt(api, span.after, path)]);
  const [from, to] = intent.verb === "undo" ? texts.reverse() : texts;
  if (from === now || now === "") return to;
  if (from === NOT_TEXT || to === NOT_TEXT || now === NOT_TEXT) return NOT_TEXT;
  const merged = applyPatch(now, structuredPatch("", "", from, to, "", "", { context: 1 }));
  return merged === false ? NOT_TEXT : merged;
}

/** Returns the snapshots before the first and after the last of the steps that changed a file. */
async function spanOf(api: Api, steps: string[], path: Path): Promise<{ before: Hash; after: Hash } | null> {
  const touched: StepRecord[] = [];
  for (const step of steps) {
    const { files, records } = await api.get("step", { step });
    if (files.length === 0 || files.some((file) => file.path === path)) touched.push(...records);
  }
  touched.sort((a, b) => a.at_millis - b.at_millis);
  const last = touched[touched.length - 1];
  return last ? { before: touched[0].before, after: last.after } : null;
}
