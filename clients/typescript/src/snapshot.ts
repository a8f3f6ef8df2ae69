// `Snapshot`: snapshots of a work tree by hash, with the method names of OpenCode.

import type { CallSettings, Result } from "./client.js";
import { Bound, append, isDisabled, pages } from "./place.js";
import type { PlaceOptions } from "./place.js";
import type {
  Change,
  Disabled,
  FileContent,
  FileDiff,
  Hash,
  Path,
  RestoreReport,
  Snapshot as Recorded,
} from "./wire.js";

/** Files that changed since a snapshot: the result of `patch` and the argument of `revert`. */
export interface Patch {
  hash: Hash;
  /** Absolute paths. */
  files: Path[];
}

export interface SnapshotOptions extends PlaceOptions {
  /**
   * Receives every error. Methods then return `undefined`, `""` or an empty list instead of
   * throwing, so that a failed snapshot never stops an agent. Default: methods throw.
   */
  onError?: ((error: unknown, method: string) => void) | undefined;
}

export interface TrackSettings extends CallSettings {
  /** Paths to record. They are captured even if they are ignored or large. Default: everything. */
  paths?: Path[];
  /** Whether to read every file instead of trusting timestamps. */
  rehash?: boolean;
}

export interface RestoreSettings extends CallSettings {
  /** Whether to remove files created since, if the snapshot proves that they did not exist. */
  exact?: boolean;
  /** Paths to restore, including everything below them. Default: everything. */
  paths?: Path[];
  allowMassRemoval?: boolean;
}

export class Snapshot {
  /** All other methods, for this work tree. */
  readonly api: Bound;
  readonly #onError: SnapshotOptions["onError"];

  constructor(options: SnapshotOptions) {
    this.api = new Bound(options);
    this.#onError = options.onError;
  }

  /** Starts the server, so that the first snapshot does not wait for it. */
  async init(): Promise<void> {
    await this.#attempt("init", undefined, () => this.api.client.server());
  }

  /** Drops expired snapshots. */
  async cleanup(settings?: CallSettings): Promise<void> {
    await this.#attempt("gc", undefined, () => this.api.call("gc", {}, settings));
  }

  /** Records the work tree and returns the hash; `undefined` if snapshots are disabled. */
  async track(settings: TrackSettings = {}): Promise<Hash | undefined> {
    return (await this.record(settings))?.hash;
  }

  /** Like `track`, but returns all details, including the skipped paths with reasons. */
  record(settings: TrackSettings = {}): Promise<Recorded | undefined> {
    const { paths, rehash, ...call } = settings;
    return this.#attempt("track", undefined, async () => {
      const params = { ...(paths && { paths }), ...(rehash && { rehash }) };
      const result = await this.api.call("track", params, call);
      return isDisabled(result) ? undefined : result;
    });
  }

  /** Returns the files that changed between a snapshot and now, or another snapshot. */
  patch(hash: Hash, to?: Hash, settings?: CallSettings): Promise<Patch> {
    return this.#attempt("patch", { hash, files: [] }, async () => {
      const result = await this.api.call("patch", { hash, ...(to && { to }) }, settings);
      return isDisabled(result) ? { hash, files: [] } : { hash: result.hash, files: result.files };
    });
  }

  /**
   * Restores files from a snapshot and keeps files created since, unless `exact` is set.
   * The current state is recorded first, as `safety` in the report.
   */
  restore(hash: Hash, settings: RestoreSettings = {}): Promise<RestoreReport | undefined> {
    const { exact, paths, allowMassRemoval, ...call } = settings;
    return this.#attempt("restore", undefined, async () => {
      const params = {
        hash,
        ...(exact && { exact }),
        ...(paths && { paths }),
        ...(allowMassRemoval && { allow_mass_removal: true }),
      };
      const result = await this.api.call("restore", params, call);
      return isDisabled(result) ? undefined : result;
    });
  }

  /** Restores single files, each to the hash of the first patch that lists it. */
  revert(patches: Patch[], settings?: CallSettings): Promise<RestoreReport | undefined> {
    return this.#attempt("revert", undefined, () => this.api.call("revert", { patches }, settings));
  }

  /** Returns the difference from a snapshot as a patch that `git apply` accepts. */
  diff(hash: Hash, to?: Hash, settings?: CallSettings): Promise<string> {
    return this.#attempt("diff", "", async () => {
      let text = "";
      for await (const page of this.#compare("diff", hash, to, settings)) text += page.text;
      return text;
    });
  }

  /** Returns every changed file with both texts and line counts. */
  diffFull(from: Hash, to?: Hash, settings?: CallSettings): Promise<FileDiff[]> {
    return this.#attempt("diff_full", [], async () => {
      const files: FileDiff[] = [];
      for await (const page of this.#compare("diff_full", from, to, settings)) append(files, page.files);
      return files;
    });
  }

  /** Returns every changed file by path and status. */
  changes(from: Hash, to?: Hash, settings?: CallSettings): Promise<Change[]> {
    return this.#attempt("changes", [], async () => {
      const files: Change[] = [];
      for await (const page of this.#compare("changes", from, to, settings)) append(files, page.files);
      return files;
    });
  }

  /** Returns the content of a file in a snapshot; `undefined` if the snapshot does not contain it. */
  getFileAt(hash: Hash, path: Path, settings?: CallSettings): Promise<Buffer | undefined> {
    return this.#attempt("get_file_at", undefined, async () => {
      const parts: Buffer[] = [];
      const ask = async (offset: number) => {
        const result = await this.api.call("get_file_at", { hash, path, offset }, settings);
        return (isDisabled(result) ? undefined : result.file) ?? NOTHING;
      };
      for await (const part of pages(ask)) parts.push(contentBytes(part));
      return parts.length ? Buffer.concat(parts) : undefined;
    });
  }

  /** Returns the paths in a snapshot, sorted, relative to the work tree. */
  listFiles(hash: Hash, settings?: CallSettings): Promise<Path[]> {
    return this.#attempt("list_files", [], async () => {
      const paths: Path[] = [];
      const ask = (offset: number) => this.api.call("list_files", { hash, offset }, settings);
      for await (const page of pages(ask)) append(paths, page.files.map((file) => file.path));
      return paths;
    });
  }

  /** Whether a snapshot contains a file. */
  fileExistsAt(hash: Hash, path: Path, settings?: CallSettings): Promise<boolean> {
    return this.#attempt("file_exists_at", false, async () => {
      const result = await this.api.call("file_exists_at", { hash, path }, settings);
      return !isDisabled(result) && result.exists;
    });
  }

  /** Yields all pages of a comparison, all of the same two snapshots. */
  #compare<M extends Comparison>(
    method: M,
    from: Hash,
    to: Hash | undefined,
    settings: CallSettings | undefined,
  ): AsyncGenerator<Page<M>, void> {
    return pages(async (offset) => {
      const params = { from, offset, ...(to && { to }) };
      const page = (await this.api.call<Comparison>(method, params, settings)) as Page<M> | Disabled;
      if (!isDisabled(page)) to = page.to;
      return page;
    });
  }

  async #attempt<T>(method: string, otherwise: T, run: () => Promise<T | unknown>): Promise<T> {
    try {
      return (await run()) as T;
    } catch (error) {
      if (!this.#onError) throw error;
      this.#onError(error, method);
      return otherwise;
    }
  }
}

type Comparison = "diff" | "diff_full" | "changes";
type Page<M extends Comparison> = Exclude<Result<M>, Disabled>;

/** Ends `pages`: the file does not exist. */
const NOTHING: Disabled = { disabled: true, hash: "" };

function contentBytes({ content, encoding }: FileContent): Buffer {
  return Buffer.from(content, encoding === "base64" ? "base64" : "utf8");
}
