// Tests every action in a real browser, and checks the files afterwards.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { Lab } from "./lab.mjs";
import { CACHE, play, START } from "./story.mjs";

let browser, lab, page, steps;

before(async () => {
  browser = await launch();
  lab = new Lab();
  steps = await play(lab);
});
beforeEach(async () => (page = await openPage(browser, lab)));
afterEach(async () => {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
after(async () => {
  await browser?.close();
  await lab?.stop();
});

const row = (name) => page.locator('[role="option"]:not(.undo, .redo)', { hasText: name });

/** Searches for a row, because the list contains only visible rows, and clicks it. */
async function pick(name) {
  await dismiss();
  await page.getByRole("searchbox").fill(name);
  await row(name).first().click();
}

const button = (name) => page.getByRole("button", { name, exact: true });
const toast = (text) => page.locator(".toast", { hasText: text });
const preview = () => page.locator("dialog[open] .card").first().waitFor();

async function apply(message) {
  await page.locator("#apply:enabled").click();
  await toast(message).waitFor();
}

async function dismiss() {
  if (await page.locator(".toast").count()) await button("Dismiss").click();
}

async function redo() {
  await page.locator(".toast").getByRole("button", { name: "Redo" }).click();
  await toast("Redone").waitFor();
}

test("undo of a step applies exactly the preview, and one click redoes it", async () => {
  await pick("Use the cache in the server");
  const now = lab.read("src/server.ts");
  await button("Undo step").click();
  await preview();
  await page.locator("dialog .side.old", { hasText: "await stations()" }).waitFor();
  await page.locator("dialog .side.new", { hasText: 'await readings("stations.csv")' }).waitFor();
  assert.equal(lab.read("src/server.ts"), now, "a preview must not change files");
  await apply("Undone: 1 file");
  assert.equal(lab.read("src/server.ts"), START["src/server.ts"]);
  assert.equal(lab.read("src/cache.ts"), CACHE, "other steps must stay");
  await row(/Use the cache in the server.*undone/s).first().waitFor();
  await redo();
  assert.equal(lab.read("src/server.ts"), now);
});

test("cancelling a preview by button or Escape changes no file", async () => {
  await pick("Write src/cache.ts");
  await button("Undo step").click();
  await preview();
  await button("Cancel").click();
  await page.keyboard.press("u");
  await preview();
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(lab.read("src/cache.ts"), CACHE);
});

test("undo of a single file keeps the other files of the step", async () => {
  await pick("rm stations.csv");
  await page.getByRole("button", { name: "Undo file: stations.csv" }).click();
  await preview();
  await apply("Undone: 1 file");
  assert.equal(lab.read("stations.csv"), START["stations.csv"]);
  assert.ok(!lab.has("test/gaps.csv"));
  await redo();
  assert.ok(!lab.has("stations.csv"));
});

test("undo of a prompt undoes all of its steps", async () => {
  const server = lab.read("src/server.ts");
  await pick("Cache the readings for five minutes");
  await button("Undo prompt").click();
  await preview();
  assert.equal(await page.locator("#apply").innerText(), "Undo · 4 files");
  await apply("Undone: 4 files");
  assert.equal(lab.read("src/server.ts"), START["src/server.ts"]);
  assert.equal(lab.read("stations.csv"), START["stations.csv"]);
  assert.ok(!lab.has("src/cache.ts"));
  await redo();
  assert.equal(lab.read("src/server.ts"), server);
  assert.ok(lab.has("src/cache.ts") && !lab.has("stations.csv"));
});

test("undo from here undoes all later steps of the session and keeps changes by others", async () => {
  const readme = lab.read("README.md");
  await pick("Test the parser");
  await button("Undo from here").click();
  await preview();
  await apply("Undone:");
  assert.ok(!lab.has("test/forecast.test.ts") && !lab.has("src/cache.ts"));
  assert.equal(lab.read("public/style.css"), START["public/style.css"]);
  assert.match(lab.read("src/forecast.ts"), /filter\(Boolean\)/, "the earlier step must stay");
  assert.match(lab.read("README.md"), /right now\.\n/, "the edit from outside must stay");
  assert.match(lab.read("scripts/import.py"), /__main__/, "the changes of the other session must stay");
  await redo();
  assert.equal(lab.read("README.md"), readme);
});

test("restore recreates exactly the selected state, and restoring the newest state reverses it", async () => {
  await pick("Before the cache");
  const server = lab.read("src/server.ts");
  await button("Restore this state").click();
  await preview();
  await apply("Restored");
  assert.ok(!lab.has("src/cache.ts") && !lab.has("src/redis.ts"));
  assert.equal(lab.read("src/server.ts"), START["src/server.ts"]);
  assert.equal(lab.read("stations.csv"), START["stations.csv"]);
  await pick("Add a Redis adapter");
  await button("Restore this state").click();
  await preview();
  await apply("Restored");
  assert.equal(lab.read("src/server.ts"), server);
  assert.ok(lab.has("src/redis.ts") && !lab.has("stations.csv"));
});

test("the preview shows the merged text, and undo keeps later edits in the same file", async () => {
  const forecast = lab.read("src/forecast.ts");
  lab.write({ "src/forecast.ts": forecast.replace("  return best;", "  return best; // mine") });
  await pick("Skip empty lines");
  await button("Undo step").click();
  await preview();
  await page.locator("dialog .side.old", { hasText: "filter(Boolean)" }).waitFor();
  assert.equal(await page.locator("dialog .side.old, dialog .side.new").filter({ hasText: "// mine" }).count(), 0);
  await apply("Undone: 1 file");
  assert.equal(lab.read("src/forecast.ts"), START["src/forecast.ts"].replace("  return best;", "  return best; // mine"));
  await redo();
  lab.write({ "src/forecast.ts": forecast });
});

test("a conflict is shown and skipped unless the user forces it", async () => {
  const readme = lab.read("README.md");
  lab.write({ "README.md": readme.replace("by day and by night", "whenever you ask") });
  await pick("Mention the night");
  await button("Undo step").click();
  await page.locator(".conflicts", { hasText: "README.md" }).waitFor();
  assert.ok(await page.locator("#apply").isDisabled(), "the step has no other changes");
  await button("Undo these too, including later changes").click();
  await preview();
  await apply("Undone: 1 file");
  assert.doesNotMatch(lab.read("README.md"), /night|whenever/);
  await redo();
  assert.match(lab.read("README.md"), /whenever you ask/);
  lab.write({ "README.md": readme });
});

test("a stale preview is replaced by a new one instead of being applied", async () => {
  await pick("Write src/cache.ts");
  await button("Undo step").click();
  await preview();
  lab.write({ "src/cache.ts": `// mine\n${CACHE}` });
  await page.locator("#apply").click();
  await page.getByText("The files have changed meanwhile").waitFor();
  assert.equal(lab.read("src/cache.ts"), `// mine\n${CACHE}`);
  await page.keyboard.press("Escape");
  lab.write({ "src/cache.ts": CACHE });
});

test("all actions have keyboard shortcuts", async () => {
  const server = lab.read("src/server.ts");
  await page.keyboard.press("/");
  await page.keyboard.type("use the cache");
  await page.keyboard.press("Enter");
  // The number of rows above it depends on the events received so far.
  const wanted = page.locator(".detail-title h2", { hasText: "Use the cache in the server" });
  for (let row = 0; row < 8 && !(await wanted.isVisible()); row++) {
    await page.keyboard.press("j");
    await wanted.waitFor({ timeout: 2000 }).catch(() => {});
  }
  await wanted.waitFor();
  await page.keyboard.press("s");
  await page.locator(".lines.one").waitFor();
  await page.keyboard.press("s");
  await page.locator(".lines.two").waitFor();
  await page.keyboard.press("u");
  await preview();
  await page.locator("#apply:focus").waitFor();
  await page.keyboard.press("Enter");
  await toast("Undone: 1 file").waitFor();
  assert.equal(lab.read("src/server.ts"), START["src/server.ts"]);
  await page.keyboard.press("Shift+Z");
  await toast("Redone").waitFor();
  assert.equal(lab.read("src/server.ts"), server);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
});

test("Ctrl+Z undoes the last turn", async () => {
  const last = await lab.step({ message: "m9", tool: "write", label: "One more" }, () => lab.write({ "more.txt": "more\n" }));
  assert.ok(last);
  await row(/One more/).waitFor();
  await page.keyboard.press("Control+z");
  await preview();
  await apply("Undone: 1 file");
  assert.ok(!lab.has("more.txt"));
});

test("the storage view recovers a lost file, creates a checkpoint and frees up space", async () => {
  await lab.step({ message: "m10", tool: "write", label: "Write a note" }, () => lab.write({ "note.txt": "precious\n" }));
  await lab.step({ message: "m11", tool: "bash", label: "rm note.txt" }, () => lab.remove("note.txt"));
  await page.keyboard.press("3");
  await page.getByRole("button", { name: "Recover note.txt" }).click();
  await preview();
  await apply("Recovered");
  assert.equal(lab.read("note.txt"), "precious\n");
  await page.getByLabel("Name of the new checkpoint").fill("By hand");
  await button("Create checkpoint").click();
  await page.locator(".panel li", { hasText: "By hand" }).waitFor();
  await button("Free up space…").click();
  await button("Free up space").click();
  await toast("freed").waitFor();
  const { checkpoints } = await lab.call("checkpoints");
  assert.ok(checkpoints.some(({ label }) => label === "By hand"));
});
