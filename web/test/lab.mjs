// A real server on a temporary work tree, and a scripted agent.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { request } from "node:http";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync, existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const BINARY = process.env.CTRLZ_BIN ?? "ctrlz";

export class Lab {
  constructor() {
    this.base = mkdtempSync(join(tmpdir(), "ctrlz-page-"));
    this.tree = join(this.base, "weather-app");
    for (const dir of ["weather-app", "home", "tmp"]) mkdirSync(join(this.base, dir));
    this.env = {
      PATH: process.env.PATH,
      HOME: join(this.base, "home"),
      TMPDIR: join(this.base, "tmp"),
      CTRLZ_DATA_DIR: join(this.base, "data"),
      GIT_CONFIG_GLOBAL: "/dev/null",
      GIT_CONFIG_SYSTEM: "/dev/null",
    };
    this.git("init", "-q", "-b", "main");
  }

  git(...args) {
    return execFileSync("git", args, { cwd: this.tree, env: this.env, encoding: "utf8" });
  }

  ctrlz(...args) {
    return execFileSync(BINARY, args, { cwd: this.tree, env: this.env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  }

  path(file) {
    return join(this.tree, file);
  }

  write(files) {
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(dirname(this.path(file)), { recursive: true });
      writeFileSync(this.path(file), text);
    }
  }

  read(file) {
    return readFileSync(this.path(file), "utf8");
  }

  has(file) {
    return existsSync(this.path(file));
  }

  remove(file) {
    rmSync(this.path(file));
  }

  async serve() {
    this.server = spawn(BINARY, ["serve", "--port", "0"], { cwd: this.tree, env: this.env, stdio: ["ignore", "ignore", "pipe"] });
    this.stderr = "";
    this.server.stderr.on("data", (text) => (this.stderr += text));
    for (let wait = 0; !existsSync(join(this.env.CTRLZ_DATA_DIR, "serve/url")); wait++) {
      if (wait > 600 || this.hasEnded()) throw new Error(`the server did not start: ${this.serverState()}`);
      await new Promise((done) => setTimeout(done, 50));
    }
    const content = (name) => readFileSync(join(this.env.CTRLZ_DATA_DIR, "serve", name), "utf8").trim();
    this.url = content("url").replace(/\/$/, "");
    this.token = content("token");
    const { projects } = await this.ask("/v1/projects");
    this.project = projects[0].project;
  }

  hasEnded() {
    return this.server.exitCode !== null || this.server.signalCode !== null;
  }

  /** Describes the state of the server, for error messages. */
  serverState() {
    const { exitCode, signalCode } = this.server;
    return `${this.hasEnded() ? `ended (${signalCode ?? exitCode})` : "running"}, stderr: ${this.stderr}`;
  }

  async ask(address, body) {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (body) headers["Content-Type"] = "application/json";
    // A new connection, because a kept-alive one may have timed out while files were written.
    const asking = request(this.url + address, { method: body ? "POST" : "GET", headers, agent: false });
    asking.end(body && JSON.stringify(body));
    const [answer] = await once(asking, "response").catch((error) => {
      throw new Error(`${address}: ${error.message}; the server: ${this.serverState()}`);
    });
    const text = (await answer.toArray()).join("");
    if (answer.statusCode >= 300) throw new Error(`${address}: ${text}`);
    return JSON.parse(text);
  }

  call(method, params) {
    return this.ask(`/v1/projects/${this.project}/${method}`, params);
  }

  /** Acts like an agent: begins a step, changes files and ends the step. */
  async step(about, act) {
    const { step } = await this.call("begin_step", { session: "s1", who: "claude", ...about });
    await act();
    await this.call("end_step", { step });
    return step;
  }

  /** Returns an address like `ctrlz ui` opens, which is valid once. */
  async link() {
    const { code } = await this.ask("/v1/codes", {});
    return `${this.url}/#code=${code}`;
  }

  async stop() {
    if (this.server && !this.hasEnded()) {
      this.server.kill("SIGTERM");
      await once(this.server, "exit");
    }
    rmSync(this.base, { recursive: true, force: true });
  }
}
