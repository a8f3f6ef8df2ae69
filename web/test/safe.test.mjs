// Tests for HTML injection, accessibility, and the messages for empty and failed states.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { launch, openPage } from "./browser.mjs";
import { Lab } from "./lab.mjs";
import { play } from "./story.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let browser;
before(async () => (browser = await launch()));
after(async () => browser?.close());

async function withLab(tell, act) {
  const lab = new Lab();
  try {
    await tell(lab);
    await act(lab);
  } finally {
    for (const context of browser.contexts()) await context.close();
    await lab.stop();
  }
}

async function judge(page, what) {
  // Injected through the debugger, which the content security policy does not restrict.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map(({ id, nodes }) => `${what}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary}`).join("\n")}`);
  assert.deepEqual(found, []);
}

test("direction marks in a text do not reorder the text beside it", async () => {
  const tell = async (lab) => {
    lab.write({ a: "1\n" });
    lab.ctrlz("track");
    await lab.serve();
    await lab.step({ session: "s\u202e", message: "m", label: "edit \u202egnp.exe" }, () => lab.write({ a: "2\n" }));
  };
  await withLab(tell, async (lab) => {
    const page = await openPage(browser, lab);
    const row = page.locator(".row", { hasText: "edit" }).first();
    await row.waitFor();
    const loose = await row.evaluate((row) =>
      [...row.querySelectorAll("*")].filter((part) => getComputedStyle(part).unicodeBidi !== "isolate").map((part) => part.outerHTML),
    );
    assert.deepEqual(loose, []);
  });
});

test("axe finds no accessibility problem in any view, theme or width", async () => {
  await withLab(play, async (lab) => {
    lab.write({ "README.md": "Mine\n" });
    for (const [theme, width] of [["dark", 1440], ["light", 1440], ["dark", 390]]) {
      const page = await openPage(browser, lab, { theme, width });
      await page.locator(".row").first().waitFor();
      if (width > 400) await page.locator(".row", { hasText: "Dark colours" }).click();
      await judge(page, `timeline ${theme} ${width}`);
      await page.locator(".row", { hasText: "Make the page dark" }).click();
      await page.locator(".code").first().waitFor();
      await judge(page, `detail ${theme} ${width}`);
      await page.getByRole("button", { name: "Undo prompt" }).click();
      await page.locator("dialog .card .code").first().waitFor();
      await judge(page, `preview ${theme} ${width}`);
      await page.keyboard.press("Escape");
      await page.goto(`${lab.url}/#/${lab.project}/storage`);
      await page.getByRole("heading", { name: "Checkpoints" }).waitFor();
      await judge(page, `storage ${theme} ${width}`);
      const { operations } = await lab.call("timeline");
      await page.goto(`${lab.url}/#/${lab.project}/compare/${operations.at(-1).operation}`);
      await page.locator(".card .code").first().waitFor();
      await judge(page, `compare ${theme} ${width}`);
      assert.deepEqual(page.complaints, []);
    }
  });
});

const EVIL = '<img src=x onerror=alert(1)><script>alert(2)</script>"\'`${alert(3)}{{4}}';
const EVIL_NAME = "<img src=x onerror=alert(1)>.html";

test("names, texts, prompts and labels that are HTML stay text", async () => {
  const tell = async (lab) => {
    lab.write({ "a.txt": "a\n" });
    await lab.serve();
    await lab.step({ message: "m1", label: `Prompt ${EVIL}` }, () => {});
    await lab.step({ message: "m1", part: "p", tool: "<b>tool</b>", label: `Label ${EVIL}`, who: "<i>who</i>" }, () =>
      lab.write({ [EVIL_NAME]: `${EVIL}\n</code></div><h1>broken out</h1>\njavascript:alert(5)\n`, "</bdi>.js": `let a = "${EVIL}";\n`, "line\nend.md": "x\n" }));
    await lab.call("checkpoint", { label: `Checkpoint ${EVIL}` });
    lab.remove(EVIL_NAME);
    await lab.call("track", {});
  };
  await withLab(tell, async (lab) => {
    const page = await openPage(browser, lab);
    const clean = async () => {
      assert.equal(await page.locator("img:not([src='/icon.svg']), #page script, #page b, h1:text('broken out'), i:text('who')").count(), 0);
      assert.deepEqual(page.complaints, []);
    };
    await page.locator(".row-title", { hasText: `Prompt ${EVIL}` }).waitFor();
    await page.locator(".row-title", { hasText: `Label ${EVIL}` }).click();
    await page.locator(".code", { hasText: "<h1>broken out</h1>" }).waitFor();
    await page.locator(".path", { hasText: EVIL_NAME }).first().waitFor();
    await page.locator(".path", { hasText: "line␊end.md" }).first().waitFor();
    await clean();
    await page.getByRole("button", { name: "Undo step" }).click();
    await page.locator("dialog .code", { hasText: "onerror" }).first().waitFor();
    await clean();
    await page.keyboard.press("Escape");
    await page.keyboard.press("3");
    await page.getByText(`Checkpoint ${EVIL}`).first().waitFor();
    await page.getByRole("button", { name: `Recover ${EVIL_NAME}` }).waitFor();
    await clean();
    await page.keyboard.press("2");
    await page.getByRole("heading", { name: "Select two states" }).waitFor();
    await clean();
  });
});

test("an empty work tree shows how to start", async () => {
  await withLab(async (lab) => (lab.write({ "a.txt": "a\n" }), lab.serve()), async (lab) => {
    const page = await openPage(browser, lab);
    await page.getByRole("heading", { name: "Nothing recorded yet" }).waitFor();
    await judge(page, "empty");
    await lab.step({ message: "m1", label: "The first" , tool: "edit" }, () => lab.write({ "a.txt": "b\n" }));
    await page.locator(".row", { hasText: "The first" }).waitFor();
    assert.deepEqual(page.complaints, []);
  });
});

test("an invalid token, an unreachable server and an expired state are reported", async () => {
  await withLab(play, async (lab) => {
    const page = await openPage(browser, lab);
    await page.locator(".row").first().waitFor();
    await lab.call("purge", { path: "scripts/import.py", confirm: true });
    await page.locator(".row", { hasText: "Guard main in import.py" }).click();
    await page.getByRole("heading", { name: "No longer kept" }).waitFor();
    await judge(page, "expired");
    await page.evaluate(() => localStorage.setItem("ctrlz-token", "0".repeat(64)));
    await page.reload();
    await page.getByRole("heading", { name: "You are signed out" }).waitFor();
    await judge(page, "signed out");
    const other = await openPage(browser, lab);
    await other.locator(".row").first().waitFor();
    lab.server.kill("SIGTERM");
    await other.locator(".live:not(.on)").waitFor();
    await other.locator(".row").nth(2).click();
    await other.locator(".row").nth(5).click();
    await other.getByRole("alert").filter({ hasText: "The server does not answer" }).first().waitFor();
  });
});
