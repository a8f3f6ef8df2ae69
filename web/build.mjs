// Builds the files that the server embeds, into the directory given as the first argument.

import { cpSync, mkdirSync, rmSync, writeFileSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) throw new Error("usage: node build.mjs DIRECTORY");
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

await build({
  absWorkingDir: here,
  entryPoints: { page: "src/page.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
cpSync(join(here, "index.html"), join(out, "index.html"));
cpSync(join(here, "src/icon.svg"), join(out, "icon.svg"));
writeFileSync(join(out, "licences.txt"), licences());

/** Returns the licences of the bundled packages, all of which require redistribution. */
function licences() {
  const { packages } = JSON.parse(readFileSync(join(here, "package-lock.json"), "utf8"));
  const bundled = Object.entries(packages).filter(([path, { dev }]) => path && !dev && !path.includes("@types/"));
  return bundled.map(([path]) => licence(join(here, path), path.replace(/^.*node_modules\//, ""))).join("\n");
}

function licence(dir, name) {
  const file = readdirSync(dir).find((entry) => /^licen[sc]e/i.test(entry));
  const text = file ? readFileSync(join(dir, file), "utf8") : JSON.parse(readFileSync(join(dir, "package.json"), "utf8")).license;
  return `${name}\n\n${text.trim()}\n`;
}
