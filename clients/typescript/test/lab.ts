// A temporary work tree for each test, and a client whose server runs in a clean environment.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestContext } from "node:test";

import { Ctrlz, Session, Snapshot } from "../src/index.js";
import type { ClientOptions, SnapshotOptions } from "../src/index.js";

/** Path of `clients/`, relative to the compiled test. */
export const CLIENTS = resolve(dirname(fileURLToPath(import.meta.url)), "../../..");
export const BAD_SERVER = join(CLIENTS, "conformance/bad_server.py");

export function hermetic(home: string): NodeJS.ProcessEnv {
  const { PATH, CTRLZ_BINARY } = process.env;
  return { PATH, CTRLZ_BINARY, HOME: home, TMPDIR: home, GIT_CONFIG_GLOBAL: "/dev/null" };
}

export class Lab {
  readonly home = mkdtempSync(join(tmpdir(), "ctrlz-ts-"));
  readonly dir = mkdtempSync(join(this.home, "tree-"));
  readonly client: Ctrlz;

  constructor(test: TestContext, options: ClientOptions = {}) {
    this.client = new Ctrlz({ env: hermetic(this.home), ...options });
    test.after(async () => {
      await this.client.close();
      rmSync(this.home, { recursive: true });
    });
  }

  snapshot(options: Partial<SnapshotOptions> = {}): Snapshot {
    return new Snapshot({ dir: this.dir, client: this.client, ...options });
  }

  session(id = "s1"): Session {
    return new Session({ id, dir: this.dir, client: this.client });
  }

  path(name: string): string {
    return join(this.dir, name);
  }
}

/** Creates a client of a misbehaving server. */
export function badLab(test: TestContext, options: ClientOptions = {}, env: NodeJS.ProcessEnv = {}): Lab {
  const lab: Lab = new Lab(test, { binary: BAD_SERVER, env: { PATH: process.env["PATH"], ...env }, ...options });
  return lab;
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Waits until a condition holds. Fails after ten seconds. */
export async function until(what: string, holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 500; turn++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not within ten seconds: ${what}`);
}
