// `Session`: what an agent did, in steps, and taking it back.

import type { CallSettings } from "./client.js";
import { Bound, append, isDisabled, pages } from "./place.js";
import type { PlaceOptions } from "./place.js";
import type {
  BeginParams,
  CheckpointMade,
  FileDiff,
  Fork,
  Hash,
  Log,
  Path,
  RevertState,
  Scope,
  StepBegun,
  StepEnded,
  StepRecord,
  UndoReport,
} from "./wire.js";

export interface SessionOptions extends PlaceOptions {
  /** The session's id, as the agent has it. */
  id: string;
}

/** What a step is about: message, part, tool, label, the paths its tool names, and so on. */
export type About = Omit<BeginParams, "session">;

export interface UndoSettings extends CallSettings {
  /** What to take back. Default: the newest turn that is not taken back yet. */
  scope?: Scope;
  /** Only these paths. */
  paths?: Path[];
  /** Take a step's state where a change cannot be merged out. */
  force?: boolean;
  /** The hash of a plan that was shown; nothing else is done. */
  plan?: Hash;
  allowMassRemoval?: boolean;
}

export class Session {
  readonly id: string;
  /** Every other method, with this place filled in. */
  readonly api: Bound;

  constructor(options: SessionOptions) {
    this.id = options.id;
    this.api = new Bound(options);
  }

  /** Records the state before a tool runs; from now on changes are the step's. */
  async begin(about: About = {}, settings?: CallSettings): Promise<Step> {
    const result = await this.api.call("begin_step", { session: this.id, ...about }, settings);
    return new Step(this, isDisabled(result) ? undefined : result);
  }

  /** Runs `work` as one step, which ends also if it throws. */
  async step<T>(about: About, work: (step: Step) => Promise<T> | T): Promise<T> {
    const step = await this.begin(about);
    try {
      return await work(step);
    } finally {
      await step.end();
    }
  }

  /** Tells what `undo` would do now, and changes no file. */
  planUndo(settings: UndoSettings = {}): Promise<UndoReport> {
    return this.api.call("plan_undo", this.#undoParams(settings), settings);
  }

  /** Takes steps back and keeps what others did since. */
  undo(settings: UndoSettings = {}): Promise<UndoReport> {
    return this.api.call("undo", this.#undoParams(settings), settings);
  }

  /** Brings back what the last undo or revert took back. */
  redo(settings?: CallSettings): Promise<UndoReport> {
    return this.api.call("redo", { session: this.id }, settings);
  }

  /** Takes the session back to before a message, or a part of it; not final yet. */
  revert(message: string, part?: string, settings?: CallSettings): Promise<UndoReport> {
    const params = { session: this.id, message, ...(part && { part }) };
    return this.api.call("revert_to", params, settings);
  }

  /** Takes the revert back, and keeps what others did since. */
  unrevert(settings?: CallSettings): Promise<UndoReport> {
    return this.api.call("unrevert", { session: this.id }, settings);
  }

  /** Makes the revert final, and tells which messages are gone with it. */
  commitRevert(settings?: CallSettings): Promise<RevertState> {
    return this.api.call("commit_revert", { session: this.id }, settings);
  }

  /** The revert, as long as it can be moved or taken back. */
  async revertState(settings?: CallSettings): Promise<RevertState | undefined> {
    const result = await this.api.call("revert_state", { session: this.id }, settings);
    return result.reverted ?? undefined;
  }

  /** Every file the session changed, unless that is taken back, with both its texts. */
  async diff(settings?: CallSettings): Promise<FileDiff[]> {
    const files: FileDiff[] = [];
    const of = { session: this.id };
    const ask = (offset: number) => this.api.call("deeds_full", { of, offset }, settings);
    for await (const page of pages(ask)) append(files, page.files);
    return files;
  }

  /** The steps, oldest first. */
  async steps(settings?: CallSettings): Promise<StepRecord[]> {
    const steps: StepRecord[] = [];
    const ask = (offset: number) => this.api.call("steps", { session: this.id, offset }, settings);
    for await (const page of pages(ask)) append(steps, page.steps);
    return steps;
  }

  /** What happened, newest first; `next` goes on as `before`. */
  timeline(before?: string, settings?: CallSettings): Promise<Log> {
    return this.api.call("timeline", { session: this.id, ...(before && { before }) }, settings);
  }

  /** Records the present state under a name of its own; `undefined` where snapshots are off. */
  async checkpoint(label?: string, settings?: CallSettings): Promise<CheckpointMade | undefined> {
    const params = { session: this.id, ...(label !== undefined && { label }) };
    const result = await this.api.call("checkpoint", params, settings);
    return isDisabled(result) ? undefined : result;
  }

  /** Makes a session that shares this one's history up to a message, with `into` in files of its own. */
  fork(options: { at?: string; into?: Path; id?: string } = {}, settings?: CallSettings): Promise<Fork> {
    return this.api.call("fork", { session: this.id, ...options }, settings);
  }

  /** Lets go of the session: what only it did need not be kept any longer. */
  async release(settings?: CallSettings): Promise<void> {
    await this.api.call("release_session", { session: this.id }, settings);
  }

  #undoParams({ scope, paths, force, plan, allowMassRemoval }: UndoSettings) {
    return {
      session: this.id,
      ...(scope && { scope }),
      ...(paths && { paths }),
      ...(force && { force }),
      ...(plan && { plan }),
      ...(allowMassRemoval && { allow_mass_removal: true }),
    };
  }
}

/** A step that is open. `await using` ends it, too. */
export class Step implements AsyncDisposable {
  readonly #session: Session;
  #ended: Promise<StepEnded | undefined> | undefined;

  constructor(
    session: Session,
    /** What was recorded at its beginning; `undefined` where snapshots are switched off. */
    readonly begun: StepBegun | undefined,
  ) {
    this.#session = session;
  }

  /** Its id; empty where snapshots are switched off. */
  get id(): string {
    return this.begun?.step ?? "";
  }

  /** Records the state after the tool ran, also if it failed. Ends only once. */
  end(settings?: CallSettings): Promise<StepEnded | undefined> {
    this.#ended ??= this.#end(settings);
    return this.#ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  async #end(settings?: CallSettings): Promise<StepEnded | undefined> {
    if (!this.begun) return undefined;
    const result = await this.#session.api.call("end_step", { step: this.begun.step }, settings);
    return isDisabled(result) ? undefined : result;
  }
}
