// Times calls through the TypeScript client: reads `CALL COUNT`, prints microseconds as a JSON list.

import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Ctrlz, Session, Snapshot } from "../../clients/typescript/dist/src/index.js";

const dir = process.argv[2];
const client = new Ctrlz();
const place = { dir, store: ".agent/snapshots", workTree: "dir", client };
const snapshot = new Snapshot(place);
const session = new Session({ id: "bench", ...place });
const known = await snapshot.track();
const calls = {
  initialize: () => client.server(),
  file_exists_at: () => snapshot.fileExistsAt(known, "f0"),
  track: () => snapshot.track(),
  step: () => session.step({ message: "m" }, () => writeFileSync(`${dir}/changing`, String(performance.now()))),
};
for await (const line of createInterface({ input: process.stdin })) {
  const [name, count] = line.split(" ");
  const found = [];
  for (let turn = 0; turn < Number(count); turn++) {
    const start = performance.now();
    await calls[name]();
    found.push((performance.now() - start) * 1000);
  }
  console.log(JSON.stringify(found));
}
await client.close();
