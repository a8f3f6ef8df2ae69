// `Snapshot`: states of a work tree by hash, with the names that OpenCode uses.

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

/** Files that changed since a snapshot: what `patch` gives and `revert` takes. */
export interface Patch {
  hash: Hash;
  /** Absolute paths. */
  files: Path[];
}

export interface SnapshotOptions extends PlaceOptions {
  /**
   * Is told of every failure, and methods give `undefined`, `""` or nothing changed instead of
   * throwing, so that a failed snapshot never stops an agent. Default: they throw.
   */
  onError?: ((error: unknown, method: string) => void) | undefined;
}

export interface TrackSettings extends CallSettings {
  /** Look only at these paths; what is named here is captured even if it is ignored or large. */
  paths?: Path[];
  /** Read every file instead of trusting timestamps. */
  rehash?: boolean;
}

export interface RestoreSettings extends CallSettings {
  /** Also remove files created since, where the snapshot proves that they did not exist. */
  exact?: boolean;
  /** Only these paths and what is below them. */
  paths?: Path[];
  allowMassRemoval?: boolean;
}

export class Snapshot {
  /** Every other method, with this place filled in. */
  readonly api: Bound;
  readonly #onError: SnapshotOptions["onError"];

  constructor(options: SnapshotOptions) {
    this.api = new Bound(options);
    this.#onError = options.onError;
  }

  /** Starts the server, so that the first snapshot need not wait for it. */
  async init(): Promise<void> {
    await this.#attempt("init", undefined, () => this.api.client.server());
  }

  /** Drops what need not be kept any longer. */
  async cleanup(settings?: CallSettings): Promise<void> {
    await this.#attempt("gc", undefined, () => this.api.call("gc", {}, settings));
  }

  /** Records the work tree and gives the hash; `undefined` where snapshots are switched off. */
  async track(settings: TrackSettings = {}): Promise<Hash | undefined> {
    return (await this.record(settings))?.hash;
  }

  /** The same with everything that is known about the snapshot: what it lacks, and why. */
  record(settings: TrackSettings = {}): Promise<Recorded | undefined> {
    const { paths, rehash, ...call } = settings;
    return this.#attempt("track", undefined, async () => {
      const params = { ...(paths && { paths }), ...(rehash && { rehash }) };
      const result = await this.api.call("track", params, call);
      return isDisabled(result) ? undefined : result;
    });
  }

  /** The files that changed since a snapshot, up to now or up to another one. */
  patch(hash: Hash, to?: Hash, settings?: CallSettings): Promise<Patch> {
    return this.#attempt("patch", { hash, files: [] }, async () => {
      const result = await this.api.call("patch", { hash, ...(to && { to }) }, settings);
      return isDisabled(result) ? { hash, files: [] } : { hash: result.hash, files: result.files };
    });
  }

  /**
   * Brings files back to a snapshot and keeps those created since, unless `exact` is asked for.
   * What is overwritten is recorded first: `safety` of the report brings it back.
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

  /** Takes single files back, each to the first patch that names it. */
  revert(patches: Patch[], settings?: CallSettings): Promise<RestoreReport | undefined> {
    return this.#attempt("revert", undefined, () => this.api.call("revert", { patches }, settings));
  }

  /** What differs from a snapshot, as text that `git apply` accepts. */
  diff(hash: Hash, to?: Hash, settings?: CallSettings): Promise<string> {
    return this.#attempt("diff", "", async () => {
      let text = "";
      for await (const page of this.#compare("diff", hash, to, settings)) text += page.text;
      return text;
    });
  }

  /** Every file that differs, with both its texts and its line counts. */
  diffFull(from: Hash, to?: Hash, settings?: CallSettings): Promise<FileDiff[]> {
    return this.#attempt("diff_full", [], async () => {
      const files: FileDiff[] = [];
      for await (const page of this.#compare("diff_full", from, to, settings)) append(files, page.files);
      return files;
    });
  }

  /** What differs, by path and status. */
  changes(from: Hash, to?: Hash, settings?: CallSettings): Promise<Change[]> {
    return this.#attempt("changes", [], async () => {
      const files: Change[] = [];
      for await (const page of this.#compare("changes", from, to, settings)) append(files, page.files);
      return files;
    });
  }

  /** The bytes of a file of a snapshot; `undefined` if the snapshot does not have it. */
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

  /** The paths of a snapshot, sorted, relative to the work tree. */
  listFiles(hash: Hash, settings?: CallSettings): Promise<Path[]> {
    return this.#attempt("list_files", [], async () => {
      const paths: Path[] = [];
      const ask = (offset: number) => this.api.call("list_files", { hash, offset }, settings);
      for await (const page of pages(ask)) append(paths, page.files.map((file) => file.path));
      return paths;
    });
  }

  /** Whether a snapshot has a file. */
  fileExistsAt(hash: Hash, path: Path, settings?: CallSettings): Promise<boolean> {
    return this.#attempt("file_exists_at", false, async () => {
      const result = await this.api.call("file_exists_at", { hash, path }, settings);
      return !isDisabled(result) && result.exists;
    });
  }

  /** Every page of a comparison, always about the same two snapshots. */
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

/** How a file that is not there is said. */
const NOTHING: Disabled = { disabled: true, hash: "" };

function contentBytes({ content, encoding }: FileContent): Buffer {
  return Buffer.from(content, encoding === "base64" ? "base64" : "utf8");
}
