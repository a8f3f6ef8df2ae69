// The recorded session for the tests: an agent adds tests, colours and a cache to a small weather
// program, the user edits files, a second agent reviews, and one session is forked.

const lines = (...text) => `${text.join("\n")}\n`;

const FORECAST = lines(
  'import { readFile } from "node:fs/promises";',
  "",
  "export interface Reading {",
  "  city: string;",
  "  celsius: number;",
  "}",
  "",
  "/** Reads what the stations sent, one reading per line. */",
  "export async function readings(file: string): Promise<Reading[]> {",
  '  const text = await readFile(file, "utf8");',
  '  return text.split("\\n").map((line) => {',
  '    const [city, celsius] = line.split(";");',
  "    return { city, celsius: Number(celsius) };",
  "  });",
  "}",
  "",
  "export function warmest(all: Reading[]): Reading {",
  "  let best = all[0];",
  "  for (const one of all) {",
  "    if (one.celsius > best.celsius) best = one;",
  "  }",
  "  return best;",
  "}",
);

const SERVER = lines(
  'import { createServer } from "node:http";',
  'import { readings, warmest } from "./forecast";',
  "",
  "const port = 8080;",
  "",
  "createServer(async (request, response) => {",
  '  const all = await readings("stations.csv");',
  '  response.setHeader("Content-Type", "application/json");',
  "  response.end(JSON.stringify(warmest(all)));",
  "}).listen(port);",
);

const STYLE = lines(":root {", "  --sky: #7db9e8;", "}", "", "body {", "  background: white;", "  font-family: sans-serif;", "}");

export const START = {
  "src/forecast.ts": FORECAST,
  "src/server.ts": SERVER,
  "public/style.css": STYLE,
  "README.md": lines("# Weather", "", "Says where it is warmest.", "", "Run `npm start` and open http://localhost:8080."),
  "package.json": lines("{", '  "name": "weather",', '  "scripts": {', '    "start": "tsx src/server.ts"', "  }", "}"),
  "stations.csv": lines("Lisbon;24", "Oslo;11", "Athens;31"),
  "scripts/import.py": lines("import csv", "import sys", "", "", "def main():", "    for row in csv.reader(sys.stdin):", "        print(row)", "", "", "main()"),
};

export const CACHE = lines(
  "const MINUTE = 60_000;",
  "",
  "/** Keeps what a function gave for a while. */",
  "export function cached<T>(ask: () => Promise<T>, forMillis = 5 * MINUTE): () => Promise<T> {",
  "  let known: { value: T; until: number } | undefined;",
  "  return async () => {",
  "    if (!known || known.until < Date.now()) {",
  "      known = { value: await ask(), until: Date.now() + forMillis };",
  "    }",
  "    return known.value;",
  "  };",
  "}",
);

/** Records the session. Returns the ids of the steps by name. */
export async function play(lab) {
  lab.write(START);
  lab.git("add", ".");
  lab.git("-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "-qm", "first");
  await lab.serve();
  const steps = {};
  const change = (file, ...pairs) => lab.write({ [file]: pairs.reduce((text, [from, to]) => text.replace(from, to), lab.read(file)) });
  const say = (message, label, about = {}) => lab.step({ message, label, ...about }, () => {});

  await say("m1", "Empty lines in stations.csv crash the parser. Fix it and add tests");
  steps.parse = await lab.step({ message: "m1", part: "p1", tool: "edit", label: "Skip empty lines when reading" }, () =>
    change(
      "src/forecast.ts",
      ['  return text.split("\\n").map((line) => {\n', '  return text.split("\\n").filter(Boolean).map((line) => {\n'],
      ["celsius: Number(celsius) };", "celsius: Number.parseFloat(celsius) };"],
    ));
  steps.tests = await lab.step({ message: "m1", part: "p2", tool: "write", label: "Test the parser" }, () =>
    lab.write({
      "test/forecast.test.ts": lines(
        'import test from "node:test";',
        'import assert from "node:assert/strict";',
        'import { readings, warmest } from "../src/forecast";',
        "",
        'test("empty lines are no stations", async () => {',
        '  const all = await readings("test/gaps.csv");',
        "  assert.equal(all.length, 2);",
        "});",
        "",
        'test("the warmest city wins", () => {',
        '  const all = [{ city: "Oslo", celsius: 11 }, { city: "Athens", celsius: 31 }];',
        '  assert.equal(warmest(all).city, "Athens");',
        "});",
      ),
      "test/gaps.csv": "Lisbon;24\n\nOslo;11\n",
    }));
  steps.run = await lab.step({ message: "m1", part: "p3", tool: "bash", label: "npm pkg set scripts.test" }, () =>
    change("package.json", ['"start": "tsx src/server.ts"', '"start": "tsx src/server.ts",\n    "test": "tsx --test test/*.test.ts"']));

  change("README.md", ["Says where it is warmest.", "Says where it is warmest right now."]);

  await say("m2", "Make the page dark at night");
  steps.dark = await lab.step({ message: "m2", part: "p1", tool: "edit", label: "Dark colours in style.css" }, () =>
    change(
      "public/style.css",
      ["  --sky: #7db9e8;\n", "  --sky: #7db9e8;\n  --night: #10151f;\n"],
      ["  background: white;", "  background: light-dark(white, var(--night));"],
    ));
  steps.readme = await lab.step({ message: "m2", part: "p2", tool: "edit", label: "Mention the night in the README" }, () =>
    change("README.md", ["right now.", "right now, by day and by night."]));

  await lab.call("checkpoint", { label: "Before the cache", pinned: true });
  const reviewer = { session: "review-1", who: "codex" };
  await say("r1", "Review the import script", reviewer);
  steps.review = await lab.step({ ...reviewer, message: "r1", part: "p1", tool: "edit", label: "Guard main in import.py" }, () =>
    change("scripts/import.py", ["\n\nmain()\n", '\n\nif __name__ == "__main__":\n    main()\n']));

  await say("m3", "Cache the readings for five minutes");
  steps.cache = await lab.step({ message: "m3", part: "p1", tool: "write", label: "Write src/cache.ts" }, () => lab.write({ "src/cache.ts": CACHE }));
  steps.use = await lab.step({ message: "m3", part: "p2", tool: "edit", label: "Use the cache in the server" }, () =>
    change(
      "src/server.ts",
      ['import { readings, warmest } from "./forecast";', 'import { cached } from "./cache";\nimport { readings, warmest } from "./forecast";'],
      ["const port = 8080;", 'const port = Number(process.env.PORT ?? 8080);\nconst stations = cached(() => readings("stations.csv"));'],
      ['await readings("stations.csv")', "await stations()"],
    ));
  steps.clean = await lab.step({ message: "m3", part: "p3", tool: "bash", label: "rm stations.csv test/gaps.csv" }, () => {
    lab.remove("stations.csv");
    lab.remove("test/gaps.csv");
  });
  await lab.call("fork", { session: "s1", id: "s1-try" });
  const tried = { session: "s1-try", who: "claude" };
  await say("f1", "Try it with Redis instead", tried);
  steps.redis = await lab.step({ ...tried, message: "f1", part: "p1", tool: "write", label: "Add a Redis adapter" }, () =>
    lab.write({ "src/redis.ts": lines('import { createClient } from "redis";', "", "export const client = createClient();") }));
  return steps;
}
