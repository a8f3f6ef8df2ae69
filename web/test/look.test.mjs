// Tests the views: the timeline, diffs, search, comparison and live updates.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { Lab } from "./lab.mjs";
import { play } from "./story.mjs";

let browser, lab, page;

before(async () => {
  browser = await launch();
  lab = new Lab();
  await play(lab);
});
beforeEach(async () => {
  page = await openPage(browser, lab, { height: 1400 });
  await page.locator(".row").first().waitFor();
});
afterEach(async () => {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
after(async () => {
  await browser?.close();
  await lab?.stop();
});

const titles = () => page.locator(".row-title").allInnerTexts();

test("the timeline shows prompts, steps, outside edits, checkpoints and forks, newest first", async () => {
  assert.deepEqual(await titles(), [
    "Try it with Redis instead",
    "Add a Redis adapter",
    "s1-try forked from s1",
    "Cache the readings for five minutes",
    "rm stations.csv test/gaps.csv",
    "Use the cache in the server",
    "Write src/cache.ts",
    "Review the import script",
    "Guard main in import.py",
    "Before the cache",
    "Make the page dark at night",
    "Mention the night in the README",
    "Dark colours in style.css",
    "Edited outside",
    "Empty lines in stations.csv crash the parser. Fix it and add tests",
    "npm pkg set scripts.test",
    "Test the parser",
    "Skip empty lines when reading",
    "First snapshot",
  ]);
  const use = page.locator(".row", { hasText: "Use the cache in the server" });
  assert.deepEqual(await use.locator(".count [aria-hidden]").allInnerTexts(), ["+4", "−2"]);
  assert.match(await use.innerText(), /server\.ts/);
});

test("a diff has syntax colours and highlighted words, in split and unified layout", async () => {
  await page.locator(".row", { hasText: "Dark colours in style.css" }).click();
  await page.locator(".lines.two .side.new .hljs-attr, .lines.two .side.new .hljs-attribute").first().waitFor();
  await page.locator(".side.new .differs", { hasText: "light-dark" }).waitFor();
  await page.getByRole("button", { name: "Unified" }).click();
  await page.locator(".lines.one .side.old", { hasText: "background: white;" }).waitFor();
  await page.reload();
  await page.locator(".lines.one").first().waitFor();
});

test("a click expands unchanged lines", async () => {
  await page.locator(".row", { hasText: "Skip empty lines" }).click();
  await page.getByRole("button", { name: "7 unchanged lines" }).first().click();
  await page.locator(".side.same", { hasText: "export interface Reading" }).first().waitFor();
});

test("a range of rows is shown as one diff", async () => {
  await page.locator(".row", { hasText: "Write src/cache.ts" }).click();
  await page.locator(".row", { hasText: "rm stations.csv" }).click({ modifiers: ["Shift"] });
  await page.locator(".detail-title h2", { hasText: "3 rows combined" }).waitFor();
  await page.locator(".detail-meta", { hasText: "4 files" }).waitFor();
});

test("search finds prompts, files and changed lines", async () => {
  const search = page.getByRole("searchbox");
  await search.fill("redis instead");
  await page.waitForFunction(() => document.querySelectorAll(".row").length === 1);
  await search.fill("import.py");
  await page.waitForFunction(() => document.querySelectorAll(".row").length === 2);
  assert.deepEqual(await titles(), ["Review the import script", "Guard main in import.py"]);
  await search.fill("text: process.env.PORT");
  await page.waitForFunction(() => document.querySelectorAll(".row").length === 2 && !document.querySelector(".progress"));
  assert.deepEqual(await titles(), ["Cache the readings for five minutes", "Use the cache in the server"]);
  await search.fill("no such thing");
  await page.getByRole("heading", { name: "Nothing found" }).waitFor();
});

for (const typed of ["server.ts", "text: process.env.PORT"]) {
  test(`text typed into the search while the page loads is kept: ${typed}`, async () => {
    let answer;
    const waiting = new Promise((done) => (answer = done));
    await page.route(/\/v1\/projects/, async (route) => {
      await waiting;
      await route.continue();
    });
    await page.reload();
    await page.getByRole("searchbox").fill(typed);
    // Longer than the debounce interval of the search.
    await page.waitForTimeout(600);
    answer();
    await page.locator(".row", { hasText: "Use the cache in the server" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".row").length === 2 && !document.querySelector(".progress"));
    assert.equal(await page.getByRole("searchbox").inputValue(), typed);
    assert.deepEqual(await titles(), ["Cache the readings for five minutes", "Use the cache in the server"]);
  });
}

test("a link to a row selects that row, also after a reload", async () => {
  const id = await page.locator(".row", { hasText: "Dark colours in style.css" }).getAttribute("id");
  await page.goto(`${lab.url}/#/${lab.project}/timeline/${encodeURIComponent(id.slice("row-".length))}`);
  await page.locator(".row.current", { hasText: "Dark colours in style.css" }).waitFor();
  await page.reload();
  await page.locator(".row.current", { hasText: "Dark colours in style.css" }).waitFor();
  await page.getByRole("region", { name: "style.css" }).waitFor();
});

test("the timeline can be filtered by session", async () => {
  await page.getByLabel("Session").selectOption("review-1");
  await page.waitForFunction(() => document.querySelectorAll(".row").length === 2);
});

test("any two states can be compared", async () => {
  await page.locator(".row", { hasText: "First snapshot" }).click();
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.getByRole("region", { name: "src/server.ts" }).waitFor();
  await page.locator(".picker select").nth(1).selectOption({ label: await optionOf("Dark colours in style.css") });
  await page.getByText("6 files differ.").waitFor();
  await page.goBack();
  await page.getByRole("region", { name: "src/server.ts" }).waitFor();
});

test("an operation that is not in the log is reported as no longer kept", async () => {
  await page.goto(`${lab.url}/#/${lab.project}/compare/01AAAAAAAAAAAAAAAAAAAAAAAA`);
  await page.getByRole("heading", { name: "No longer kept" }).waitFor();
});

const optionOf = (name) => page.locator(".picker").nth(1).locator("option", { hasText: name }).first().innerText();

test("open steps and new operations appear without a reload", async () => {
  await page.locator(".live.on").waitFor();
  const { step } = await lab.call("begin_step", { session: "s1", who: "claude", message: "m7", tool: "edit", label: "Count the stations" });
  await page.locator(".working", { hasText: "claude is working: Count the stations" }).waitFor();
  lab.write({ "count.txt": "3\n" });
  await lab.call("end_step", { step });
  await page.locator(".row", { hasText: "Count the stations" }).waitFor();
  await page.locator(".working").waitFor({ state: "detached" });
  await page.locator(".code", { hasText: "3" }).first().waitFor();
});
