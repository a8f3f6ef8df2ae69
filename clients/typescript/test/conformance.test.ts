// The conformance suite of all clients. clients/conformance/README.md describes the vectors.

import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";

import { RpcError } from "../src/index.js";
import type { Ctrlz } from "../src/index.js";
import { toWire } from "../src/path.js";
import type { Methods } from "../src/wire.js";
import { CLIENTS, Lab } from "./lab.js";

const FOLDER = join(CLIENTS, "conformance");
const VOLATILE = new Set<string>(readJson(join(FOLDER, "volatile.json")) as string[]);
const MADE_UP = /^[0-9A-HJKMNP-TV-Z]{26}$/;

type Fields = { [key: string]: unknown };

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, "utf8"));
}

const vectors = readdirSync(join(FOLDER, "vectors")).filter((name) => name.endsWith(".json"));
assert.ok(vectors.length > 0, "no vectors found");

for (const name of vectors) {
  test(`${name} returns the expected results`, async (t) => {
    const path = join(FOLDER, "vectors", name);
    const { steps } = readJson(path) as { steps: Fields[] };
    const lab = new Lab(t);
    const found = await new Runner(lab.client, realpathSync(lab.home)).run(steps);
    const wanted = readFileSync(path.replace(/json$/, "expected.jsonl"), "utf8");
    assert.deepEqual(found, wanted.trimEnd().split("\n"));
  });
}

class Runner {
  readonly #client: Ctrlz;
  readonly #lab: string;
  readonly #names: Fields = {};
  readonly #ids: string[] = [];

  constructor(client: Ctrlz, home: string) {
    this.#client = client;
    this.#lab = join(home, "lab");
    mkdirSync(join(this.#lab, "tree"), { recursive: true });
  }

  async run(steps: Fields[]): Promise<string[]> {
    const lines: string[] = [];
    for (const step of steps) {
      const line = "call" in step ? await this.#call(step) : this.#touch(step);
      if (line) lines.push(JSON.stringify(this.#plain("", line)));
    }
    return lines;
  }

  #touch(step: Fields): Fields | undefined {
    const at = (path: unknown) => Buffer.concat([Buffer.from(`${this.#lab}/tree/`), raw(path)]);
    if ("write" in step) {
      mkdirSync(dirname(at(step["write"]).toString("latin1")), { recursive: true });
      writeFileSync(at(step["write"]), content(step));
    } else if ("remove" in step) rmSync(at(step["remove"]).toString());
    else if ("symlink" in step) symlinkSync(String(step["target"]), at(step["symlink"]));
    else if ("mode" in step) chmodSync(at(step["mode"]), Number(step["bits"]));
    else {
      const path = at(step["read"]);
      return { read: step["read"], base64: existsSync(path) ? readFileSync(path, "base64") : null };
    }
    return undefined;
  }

  async #call(step: Fields): Promise<Fields> {
    const method = step["call"] as keyof Methods;
    const place = { dir: `${this.#lab}/tree`, data_dir: `${this.#lab}/data` };
    const params = { ...place, ...(this.#filled(step["params"]) as Fields) };
    try {
      const result = toWire(await this.#client.call(method, params as never));
      if ("as" in step) this.#names[String(step["as"])] = result;
      return { call: method, result };
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      const { kind, fault, message, hint, path, details } = error;
      const known = { kind, fault, message, hint, path, details: Object.keys(details).length ? details : undefined };
      const there = Object.entries(known).filter(([, value]) => value !== undefined);
      return { call: method, error: toWire(Object.fromEntries(there)) };
    }
  }

  #filled(value: unknown): unknown {
    if (typeof value === "string") return value.replace(/^\$LAB/, this.#lab);
    if (Array.isArray(value)) return value.map((item) => this.#filled(item));
    if (typeof value !== "object" || value === null) return value;
    if ("$" in value) {
      const parts = String(value.$).split(".");
      return parts.reduce((found: unknown, part) => (found as Fields)[part], this.#names);
    }
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#filled(item)]));
  }

  #plain(key: string, value: unknown): unknown {
    if (VOLATILE.has(key) && value !== null) return "*";
    if (typeof value === "string") return MADE_UP.test(value) ? this.#number(value) : value.replaceAll(this.#lab, "$LAB");
    if (Array.isArray(value)) return value.map((item) => this.#plain("", item));
    if (typeof value !== "object" || value === null) return value;
    const sorted = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(sorted.map(([name, item]) => [name, this.#plain(name, item)]));
  }

  #number(id: string): string {
    if (!this.#ids.includes(id)) this.#ids.push(id);
    return `<id ${this.#ids.indexOf(id) + 1}>`;
  }
}

function raw(path: unknown): Buffer {
  return typeof path === "string" ? Buffer.from(path) : Buffer.from((path as { bytes: number[] }).bytes);
}

function content(step: Fields): Buffer {
  return "base64" in step ? Buffer.from(String(step["base64"]), "base64") : Buffer.from(String(step["text"]));
}
