// `Session`: records the tool calls of an agent as steps, and undoes them.

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
  /** Id of the session, chosen by the agent. */
  id: string;
}

/** Description of a step: message, part, tool, label, paths and so on. */
export type About = Omit<BeginParams, "session">;

export interface UndoSettings extends CallSettings {
  /** Changes to undo. Default: those of the newest turn that is not undone. */
  scope?: Scope;
  /** Paths to undo. Default: all. */
  paths?: Path[];
  /** Whether conflicting files are overwritten with their state before the step. */
  force?: boolean;
  /** Hash of a plan. Fails if the undo would no longer do exactly that. */
  plan?: Hash;
  allowMassRemoval?: boolean;
}

export class Session {
  readonly id: string;
  /** All other methods, for this work tree. */
  readonly api: Bound;

  constructor(options: SessionOptions) {
    this.id = options.id;
    this.api = new Bound(options);
  }

  /** Begins a step: records the state before a tool runs. */
  async begin(about: About = {}, settings?: CallSettings): Promise<Step> {
    const result = await this.api.call("begin_step", { session: this.id, ...about }, settings);
    return new Step(this, isDisabled(result) ? undefined : result);
  }

  /** Runs `work` as one step. The step also ends if `work` throws. */
  async step<T>(about: About, work: (step: Step) => Promise<T> | T): Promise<T> {
    const step = await this.begin(about);
    try {
      return await work(step);
    } finally {
      await step.end();
    }
  }

  /** Returns what `undo` would do now, without changing any file. */
  planUndo(settings: UndoSettings = {}): Promise<UndoReport> {
    return this.api.call("plan_undo", this.#undoParams(settings), settings);
  }

  /** Undoes steps and keeps later changes by others. */
  undo(settings: UndoSettings = {}): Promise<UndoReport> {
    return this.api.call("undo", this.#undoParams(settings), settings);
  }

  /** Reverses the last undo or revert. */
  redo(settings?: CallSettings): Promise<UndoReport> {
    return this.api.call("redo", { session: this.id }, settings);
  }

  /** Reverts the session to before a message, or a part of it, until it is committed. */
  revert(message: string, part?: string, settings?: CallSettings): Promise<UndoReport> {
    const params = { session: this.id, message, ...(part && { part }) };
    return this.api.call("revert_to", params, settings);
  }

  /** Reverses the revert and keeps later changes by others. */
  unrevert(settings?: CallSettings): Promise<UndoReport> {
    return this.api.call("unrevert", { session: this.id }, settings);
  }

  /** Makes the revert final, and returns the messages that it removed. */
  commitRevert(settings?: CallSettings): Promise<RevertState> {
    return this.api.call("commit_revert", { session: this.id }, settings);
  }

  /** Returns the revert that is not final yet, if there is one. */
  async revertState(settings?: CallSettings): Promise<RevertState | undefined> {
    const result = await this.api.call("revert_state", { session: this.id }, settings);
    return result.reverted ?? undefined;
  }

  /** Returns the files that the session changed, with both texts, without undone changes. */
  async diff(settings?: CallSettings): Promise<FileDiff[]> {
    const files: FileDiff[] = [];
    const of = { session: this.id };
    const ask = (offset: number) => this.api.call("step_diff_full", { of, offset }, settings);
    for await (const page of pages(ask)) append(files, page.files);
    return files;
  }

  /** Returns the steps, oldest first. */
  async steps(settings?: CallSettings): Promise<StepRecord[]> {
    const steps: StepRecord[] = [];
    const ask = (offset: number) => this.api.call("steps", { session: this.id, offset }, settings);
    for await (const page of pages(ask)) append(steps, page.steps);
    return steps;
  }

  /** Returns the recorded operations, newest first. Pass `next` as `before` for the next page. */
  timeline(before?: string, settings?: CallSettings): Promise<Log> {
    return this.api.call("timeline", { session: this.id, ...(before && { before }) }, settings);
  }

  /** Creates a checkpoint of the current state. Returns `undefined` if snapshots are disabled. */
  async checkpoint(label?: string, settings?: CallSettings): Promise<CheckpointMade | undefined> {
    const params = { session: this.id, ...(label !== undefined && { label }) };
    const result = await this.api.call("checkpoint", params, settings);
    return isDisabled(result) ? undefined : result;
  }

  /** Creates a session that shares the history of this one up to a message, with `into` in another directory. */
  fork(options: { at?: string; into?: Path; id?: string } = {}, settings?: CallSettings): Promise<Fork> {
    return this.api.call("fork", { session: this.id, ...options }, settings);
  }

  /** Releases the session, so that its snapshots may be dropped. */
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

/** An open step. `await using` ends it as well. */
export class Step implements AsyncDisposable {
  readonly #session: Session;
  #ended: Promise<StepEnded | undefined> | undefined;

  constructor(
    session: Session,
    /** Result of `begin_step`; `undefined` if snapshots are disabled. */
    readonly begun: StepBegun | undefined,
  ) {
    this.#session = session;
  }

  /** Id of the step; empty if snapshots are disabled. */
  get id(): string {
    return this.begun?.step ?? "";
  }

  /** Ends the step: records the state after the tool. Idempotent. */
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
