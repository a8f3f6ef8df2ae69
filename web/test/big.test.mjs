// Tests large histories: the document contains only visible items.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { Lab } from "./lab.mjs";

let browser, lab;
before(async () => {
  browser = await launch();
  lab = new Lab();
  lab.write({ "a.txt": "a\n" });
  await lab.serve();
});
after(async () => {
  await browser?.close();
  await lab?.stop();
});

test("a step with 5,000 files can be scrolled to its end", async () => {
  const files = Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`src/part-${n % 50}/file-${String(n).padStart(4, "0")}.ts`, `export const n = ${n};\n`]));
  await lab.step({ message: "m1", tool: "write", label: "Five thousand files" }, () => lab.write(files));
  const page = await openPage(browser, lab);
  await page.locator(".detail-meta", { hasText: "5,000 files" }).waitFor();
  await page.locator(".card .code").first().waitFor();
  const cards = await page.locator(".card").count();
  assert.ok(cards < 40, `${cards} cards are in the document`);
  await page.locator(".detail-body").evaluate((body) => body.scrollTo(0, body.scrollHeight));
  await page.locator(".card", { hasText: "file-4959.ts" }).locator(".code", { hasText: "4959" }).waitFor();
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});

/** Recording 10,000 real steps takes 15 minutes, so the entries are copies of a real one. */
test("10,000 steps can be scrolled and searched", async () => {
  await lab.step({ message: "m0", tool: "edit", label: "A model" }, () => lab.write({ "a.txt": "b\n" }));
  const { operations } = await lab.call("timeline");
  const model = operations.find(({ kind }) => kind === "step");
  const name = (n) => `01${String(99_999_999 - n).padStart(24, "0")}`;
  const copy = (n) => ({
    ...model,
    operation: name(n),
    at_millis: model.at_millis - n * 60_000,
    files: 1,
    changes: [{ path: `src/file-${n}.ts`, status: "modified", additions: 1, deletions: 1 }],
    steps: [{ ...model.steps[0], step: `s${n}`, message: `m${Math.floor(n / 4)}`, session: `s${Math.floor(n / 2500)}`, label: `Step number ${n}` }],
  });
  const page = await openPage(browser, lab);
  await page.route(/\/timeline\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = query.get("before") ? Number(query.get("before").slice(1)) : 0;
    const limit = Number(query.get("limit"));
    const page = Array.from({ length: Math.min(limit, 10_000 - from) }, (_, n) => copy(from + n));
    const next = from + limit < 10_000 ? `n${from + limit}` : null;
    return route.fulfill({ json: { operations: page, next } });
  });
  // Without this, the events of the server would make the page load the real log.
  await page.route(/\/events/, (route) => route.abort());
  await page.reload();
  await page.locator(".row", { hasText: "Step number 0" }).first().waitFor();
  const began = Date.now();
  await page.getByRole("searchbox").fill("number 9997");
  await page.locator(".row", { hasText: "Step number 9997" }).waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByText("10,000 entries").waitFor();
  const took = Date.now() - began;
  assert.ok(took < 30_000, `loading and searching everything took ${took} ms`);
  await page.locator("#rows").focus();
  await page.keyboard.press("End");
  await page.locator(".row.current", { hasText: "Step number 9999" }).waitFor();
  const rows = await page.locator(".row").count();
  assert.ok(rows < 80, `${rows} rows are in the document`);
  const frame = await page.evaluate(async () => {
    const list = document.getElementById("rows");
    const frames = [];
    for (let n = 0; n < 60; n++) {
      const began = performance.now();
      list.scrollTo(0, (list.scrollHeight / 60) * n);
      await new Promise(requestAnimationFrame);
      frames.push(performance.now() - began);
    }
    return frames.sort((a, b) => a - b)[30];
  });
  // The median, because the slowest frame depends on the load of the machine.
  assert.ok(frame < 1000, `the median frame took ${frame} ms`);
  console.log(`# loaded and searched in ${took} ms, median frame ${Math.round(frame)} ms`);
});
