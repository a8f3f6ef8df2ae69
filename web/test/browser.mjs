// Debian's chromium, and a page in it that is signed in.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";

// A run that is told to end must end: with the browser's own handlers it went on without browser and server.
export const launch = () =>
  chromium.launch({ executablePath: EXECUTABLE, args: ["--no-sandbox", "--disable-gpu"], handleSIGTERM: false, handleSIGHUP: false });

/** Opens the page as `ctrlz ui` does. Whatever the page complains about is in `page.complaints`. */
export async function openPage(browser, lab, { width = 1440, height = 900, theme = "dark", path = "" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, locale: "en-GB", reducedMotion: "reduce" });
  const page = await context.newPage();
  // Long enough for a machine with much else to do.
  page.setDefaultTimeout(180_000);
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  // The browser logs every answer that is no success; the tests look at what the page makes of it.
  const isAnswer = (text) => text.startsWith("Failed to load resource");
  page.on("console", (message) => message.type() === "error" && !isAnswer(message.text()) && page.complaints.push(message.text()));
  page.on("dialog", (dialog) => {
    page.complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await useOwnAssets(page);
  await page.goto(await lab.link());
  await page.waitForSelector(".frame, .alone");
  if (path) await page.goto(`${lab.url}/#/${lab.project}/${path}`);
  return page;
}

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

/** With PAGE_ASSETS, files come from that directory: for trying changes without building the program. */
async function useOwnAssets(page) {
  const dir = process.env.PAGE_ASSETS;
  if (!dir) return;
  const isFile = ({ pathname }) => !pathname.startsWith("/v1/") && existsSync(join(dir, pathname));
  await page.route(isFile, async (route) => {
    const { pathname } = new URL(route.request().url());
    const file = join(dir, pathname === "/" ? "index.html" : pathname);
    const served = await route.fetch();
    if (pathname === "/" && served.status() !== 200) return route.fulfill({ response: served });
    const contentType = TYPES[file.split(".").pop()];
    const policy = served.headers()["content-security-policy"];
    return route.fulfill({ body: readFileSync(file), contentType, headers: { ...(policy ? { "content-security-policy": policy } : {}) } });
  });
}
