// The work tree and options that a Snapshot or a Session applies to.

import type { CallSettings, Params, Result } from "./client.js";
import { Ctrlz } from "./client.js";
import { encodePath } from "./path.js";
import type { CallOptions, Disabled, Methods, Path, Place, Profile, WorkTree } from "./wire.js";

export interface PlaceOptions {
  /** Path of the work tree, or of a directory in it. */
  dir: Path;
  /** Directory of all stores. Default: as configured by the user. */
  dataDir?: Path | undefined;
  /** Path of the store to use instead; relative to the work tree. */
  store?: Path | undefined;
  /** `nearest`: the repository that contains `dir` (the default). `dir`: exactly `dir`. */
  workTree?: WorkTree | undefined;
  /** `opencode`: only git work trees, only new files up to 2 MiB, ignored files hidden. */
  profile?: Profile | undefined;
  /** Options such as `exclude` or `require_git`, which override the user's configuration. */
  options?: CallOptions | undefined;
  /** Client to use. Default: `Ctrlz.shared()`. */
  client?: Ctrlz | undefined;
}

/** A client with the place that is added to the parameters of every call. */
export class Bound {
  readonly place: Place;
  readonly #client: Ctrlz | undefined;

  constructor({ dir, dataDir, store, workTree, profile, options, client }: PlaceOptions) {
    this.#client = client;
    this.place = {
      dir,
      ...(dataDir !== undefined && { data_dir: dataDir }),
      ...(store !== undefined && { store }),
      ...(workTree && { work_tree: workTree }),
      ...(profile && { profile }),
      ...(options && { options }),
    };
  }

  get client(): Ctrlz {
    return this.#client ?? Ctrlz.shared();
  }

  call<M extends keyof Methods>(
    method: M,
    params: Omit<Params<M>, keyof Place>,
    settings?: CallSettings,
  ): Promise<Result<M>> {
    return this.client.call(method, { ...this.place, ...params } as Params<M>, settings);
  }
}

/** Whether a result says that snapshots are disabled, which is not an error. */
export function isDisabled<T extends object>(result: T | Disabled): result is Disabled {
  return "disabled" in result && result.disabled === true;
}

/** Yields all pages of a result. `ask` requests one page. Ends early if snapshots are disabled. */
export async function* pages<P extends { next: number | null }>(
  ask: (offset: number) => Promise<P | Disabled>,
): AsyncGenerator<P, void> {
  let offset: number | null = 0;
  while (offset !== null) {
    const page: P | Disabled = await ask(offset);
    if (isDisabled(page)) return;
    yield page;
    offset = page.next;
  }
}

/** Appends `items` to `list`. `push(...items)` would exceed the limit on arguments. */
export function append<T>(list: T[], items: T[]): void {
  for (const item of items) list.push(item);
}

/** Returns the bytes of a path, for `node:fs` if the path may not be UTF-8. */
export function pathBytes(path: Path): Buffer {
  return Buffer.from(encodePath(path));
}
