// Where a Snapshot or a Session acts, as a caller says it and as the wire wants it.

import type { CallSettings, Params, Result } from "./client.js";
import { Ctrlz } from "./client.js";
import type { CallOptions, Disabled, Methods, Path, Place, Profile, WorkTree } from "./wire.js";

export interface PlaceOptions {
  /** The work tree, or a directory in it. */
  dir: Path;
  /** Where stores lie. Default: as the user's configuration says. */
  dataDir?: Path | undefined;
  /** Use this store instead; a relative path starts at the work tree. */
  store?: Path | undefined;
  /** `nearest` repository around `dir` (the default), or `dir` itself. */
  workTree?: WorkTree | undefined;
  /** `opencode`: only git work trees, new files up to 2 MiB, ignored files hidden. */
  profile?: Profile | undefined;
  /** `exclude`, `require_git`, `max_new_file_bytes` and so on, over the user's configuration. */
  options?: CallOptions | undefined;
  /** Default: the one that this process shares. */
  client?: Ctrlz | undefined;
}

/** A client and a place: what every method of the API needs. */
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

/** Whether snapshots are switched off, which is no failure. */
export function isDisabled<T extends object>(result: T | Disabled): result is Disabled {
  return "disabled" in result && result.disabled === true;
}

/** Every page of a long answer. `ask` gives one page, or nothing where snapshots are switched off. */
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

/** Adds one list to another; a call with every item as an argument would have a limit. */
export function append<T>(list: T[], items: T[]): void {
  for (const item of items) list.push(item);
}
