// Search in names and prompts, which are loaded, or with `text:` in the changed lines, newest first.

import { useEffect, useRef } from "preact/hooks";
import type { LogEntry } from "../../clients/typescript/src/wire";
import { api, choose, entries, loadAll, rows, search, stage, textHits, textProgress } from "./state";
import { Icon } from "./parts";

const PREFIX = "text:";
const CONCURRENCY = 4;

export function Search() {
  const running = useRef<AbortController | null>(null);
  useEffect(() => {
    running.current?.abort();
    textHits.value = null;
    textProgress.value = null;
    const typed = search.value;
    // Text typed while the page loads is searched for once the log is loaded.
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
      <label class="visually-hidden" for="search">Search files, prompts and labels; text: searches the changed lines</label>
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
      const found = await contains(entry, text, signal).catch(() => false);
      if (signal.aborted) return;
      if (found) hits.add(entry.operation);
      if (found) textHits.value = new Set(hits);
      textProgress.value = { done: ++done, of: done + queue.length };
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  if (!signal.aborted) textProgress.value = null;
}

/** Whether an added or removed line contains the text. */
async function contains(entry: LogEntry, text: string, signal: AbortSignal): Promise<boolean> {
  if (!entry.before) return false;
  const diff = await api.value.get("diff", { from: entry.before, to: entry.after }, signal);
  return diff.text.split("\n").some((line) => /^[+-](?![+-]{2} )/.test(line) && line.slice(1).toLowerCase().includes(text));
}
