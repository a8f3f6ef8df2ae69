// Debian's chromium, and a page that is signed in.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";

// With the signal handlers of the browser, the test process would survive SIGTERM and SIGHUP.
export const launch = () =>
  chromium.launch({ executablePath: EXECUTABLE, args: ["--no-sandbox", "--disable-gpu"], handleSIGTERM: false, handleSIGHUP: false });

/** Opens the page like `ctrlz ui`. `page.complaints` collects errors, console errors and dialogs. */
export async function openPage(browser, lab, { width = 1440, height = 900, theme = "dark", path = "" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, locale: "en-GB", reducedMotion: "reduce" });
  const page = await context.newPage();
  // Large, because the machine may be busy.
  page.setDefaultTimeout(180_000);
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  // The browser logs every failed request. The tests check how the page handles it.
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

/** Serves the files from the directory PAGE_ASSETS, to test changes without building the program. */
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
