// Searching: names and prompts at once; `text:` looks through what was changed, newest first.

import { useEffect, useRef } from "preact/hooks";
import type { Entry } from "./api";
import { api, choose, entries, loadAll, rows, search, stage, textHits, textProgress } from "./state";
import { Icon } from "./parts";

const PREFIX = "text:";
const AT_ONCE = 4;

export function Search() {
  const running = useRef<AbortController | null>(null);
  useEffect(() => {
    running.current?.abort();
    textHits.value = null;
    textProgress.value = null;
    const typed = search.value;
    // What is typed while the page loads is looked for once there is something to look through.
    if (!typed || stage.value !== "ready") return;
    const stop = (running.current = new AbortController());
    const timer = setTimeout(() => void find(typed, stop.signal), 250);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [search.value, stage.value]);
  return (
    <div class="search" role="search">
      <Icon name="search" />
      <label class="visually-hidden" for="search">Search files, prompts, labels; text: searches what was changed</label>
      <input
        id="search"
        type="search"
        placeholder="Search files, prompts, text:…"
        value={search.value}
        onInput={(event) => (search.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") search.value = "";
          if (event.key === "Escape" || event.key === "Enter") event.currentTarget.blur();
          if (event.key === "Enter" && rows.value[0]) choose(rows.value[0].key);
        }}
      />
      {textProgress.value && <span class="progress" role="status">{`${textProgress.value.done}/${textProgress.value.of}`}</span>}
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}

async function find(typed: string, signal: AbortSignal): Promise<void> {
  await loadAll();
  if (!typed.startsWith(PREFIX) || signal.aborted) return;
  const text = typed.slice(PREFIX.length).trim().toLowerCase();
  if (text) await searchTexts(text, signal);
}

async function searchTexts(text: string, signal: AbortSignal): Promise<void> {
  const queue = entries.value.filter((entry) => entry.before && entry.files);
  const hits = new Set<string>();
  let done = 0;
  textHits.value = new Set();
  const worker = async () => {
    for (let entry = queue.shift(); entry && !signal.aborted; entry = queue.shift()) {
      const found = await holds(entry, text, signal).catch(() => false);
      if (signal.aborted) return;
      if (found) hits.add(entry.operation);
      if (found) textHits.value = new Set(hits);
      textProgress.value = { done: ++done, of: done + queue.length };
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (!signal.aborted) textProgress.value = null;
}

/** Whether a line that was added or removed holds the text. */
async function holds(entry: Entry, text: string, signal: AbortSignal): Promise<boolean> {
  const diff = await api.value.get<{ text: string }>("diff", { from: entry.before, to: entry.after }, signal);
  return diff.text.split("\n").some((line) => /^[+-](?![+-]{2} )/.test(line) && line.slice(1).toLowerCase().includes(text));
}
