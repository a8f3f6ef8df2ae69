import { writeFileSync } from "node:fs";
import { Session } from "ctrlz-client";

const dir = process.argv[2] ?? ".";
const session = new Session({ id: "session-1", dir });
const turns = [
  { message: "m1", tool: "write", run: () => writeFileSync(`${dir}/notes.txt`, "a plan\n") },
  { message: "m2", tool: "bash", run: () => writeFileSync(`${dir}/notes.txt`, "oops\n") },
];
for (const { run, ...about } of turns) {
  await session.step(about, run); // recorded before and after, even if it throws
}
for (const { file, before, after } of await session.diff()) {
  console.log(`${file}: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`);
}
const { done } = await session.undo(); // undoes only the last turn; later changes by others stay
console.log(`undone: ${done.map(({ action, path }) => `${action} ${path}`).join(", ")}`);
