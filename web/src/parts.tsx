// Components that several views share.

import type { ComponentChildren } from "preact";
import { pathText } from "../../clients/typescript/src/path";
import type { ChangeStatus, Path } from "../../clients/typescript/src/wire";
import type { Failure } from "./api";

export function Count({ additions, deletions }: { additions?: number | null; deletions?: number | null }) {
  if (additions == null || deletions == null) return null;
  return (
    <span class="count">
      <span class="visually-hidden">{`${additions} lines added, ${deletions} removed`}</span>
      <span class="plus" aria-hidden="true">{`+${additions}`}</span>
      <span class="minus" aria-hidden="true">{`−${deletions}`}</span>
    </span>
  );
}

const SIGNS: Record<ChangeStatus, string> = { added: "A", deleted: "D", modified: "M" };

export const StatusMark = ({ status }: { status: ChangeStatus }) => (
  <span class={`mark ${status}`} title={status}>
    <span aria-hidden="true">{SIGNS[status]}</span>
    <span class="visually-hidden">{status}</span>
  </span>
);

/** A path with its directory dimmed. `bdi` isolates direction marks in names. */
export function PathName({ path }: { path: Path }) {
  const text = visible(pathText(path));
  const cut = text.lastIndexOf("/") + 1;
  return (
    <bdi class="path" title={text}>
      <span class="dir">{text.slice(0, cut)}</span>
      {text.slice(cut)}
    </bdi>
  );
}

/** Replaces control characters in names by visible symbols. */
const visible = (text: string) => text.replace(/[\u0000-\u001f]/g, (sign) => String.fromCodePoint(0x2400 + sign.charCodeAt(0)));

export function Time({ at }: { at: number }) {
  const date = new Date(at);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false })}
    </time>
  );
}

export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; count >= 1000 && unit < units.length - 1; unit++) count /= 1000;
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

export const plural = (count: number, one: string, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

interface NoteProps {
  tone?: "calm" | "bad";
  icon: string;
  title: string;
  children?: ComponentChildren;
}

/** A message in place of content: empty, failed, expired or signed out. */
export const Note = ({ tone = "calm", icon, title, children }: NoteProps) => (
  <div class={`note ${tone}`} role={tone === "bad" ? "alert" : undefined}>
    <Icon name={icon} />
    <h2>{title}</h2>
    {children}
  </div>
);

export function FailureNote({ failure, retry }: { failure: Failure; retry?: () => void }) {
  if (failure.expired) {
    return (
      <Note icon="clock" title="No longer kept">
        <p>This state was recorded, but it has expired or was purged.</p>
        <p class="dim">{failure.message}</p>
      </Note>
    );
  }
  return (
    <Note tone="bad" icon="warn" title={failure.status === 409 ? "Busy" : "Failed"}>
      <p>{failure.message}</p>
      {failure.holder && <p class="dim">Held by {failure.holder}</p>}
      {failure.hint && <p class="dim">{failure.hint}</p>}
      {retry && <button class="button" onClick={retry}>Try again</button>}
    </Note>
  );
}

export const Skeleton = ({ lines }: { lines: number }) => (
  <div class="skeleton" role="status" aria-label="Loading">
    {Array.from({ length: lines }, (_, index) => <div class={`bar w${index % 4}`} key={index} />)}
  </div>
);

const ICONS: Record<string, string> = {
  undo: "M9 14 4 9l5-5M4 9h10.5a5.5 5.5 0 0 1 0 11H11",
  redo: "m15 14 5-5-5-5M20 9H9.5a5.5 5.5 0 0 0 0 11H13",
  restore: "M3 12a9 9 0 1 0 3-6.7L3 8M3 3v5h5M12 7v5l4 2",
  search: "m21 21-4.3-4.3M11 19a8 8 0 1 0 0-16 8 8 0 0 0 0 16Z",
  sun: "M12 17a5 5 0 1 0 0-10 5 5 0 0 0 0 10ZM12 1v2m0 18v2M4.2 4.2l1.4 1.4m12.8 12.8 1.4 1.4M1 12h2m18 0h2M4.2 19.8l1.4-1.4M18.4 5.6l1.4-1.4",
  moon: "M21 12.8A9 9 0 1 1 11.2 3a7 7 0 0 0 9.8 9.8Z",
  help: "M9.1 9a3 3 0 0 1 5.8 1c0 2-3 3-3 3m.1 4h.01M12 22a10 10 0 1 0 0-20 10 10 0 0 0 0 20Z",
  clock: "M12 22a10 10 0 1 0 0-20 10 10 0 0 0 0 20ZM12 6v6l4 2",
  warn: "M12 9v4m0 4h.01M10.3 3.9 1.8 18a2 2 0 0 0 1.7 3h17a2 2 0 0 0 1.7-3L13.7 3.9a2 2 0 0 0-3.4 0Z",
  key: "m21 2-2 2m-7.6 7.6a5.5 5.5 0 1 1-7.8 7.8 5.5 5.5 0 0 1 7.8-7.8Zm0 0L15.5 7.5m0 0 3 3L22 7l-3-3m-3.5 3.5L19 4",
  empty: "M22 12h-6l-2 3h-4l-2-3H2M5.5 5.1 2 12v6a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2v-6l-3.5-6.9A2 2 0 0 0 16.8 4H7.2a2 2 0 0 0-1.7 1.1Z",
  compare: "M16 3h5v5M8 21H3v-5M21 3l-7 7M3 21l7-7",
  timeline: "M6 3v18M6 7h6m-6 5h11M6 17h8M6 7a0 0 0 1 1 0 0",
  disk: "M12 8c5 0 9-1.3 9-3s-4-3-9-3-9 1.3-9 3 4 3 9 3ZM21 12c0 1.7-4 3-9 3s-9-1.3-9-3M3 5v14c0 1.7 4 3 9 3s9-1.3 9-3V5",
  flag: "M4 15s1-1 4-1 5 2 8 2 4-1 4-1V3s-1 1-4 1-5-2-8-2-4 1-4 1v19",
  fork: "M6 3v12M18 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM6 21a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm12-12a9 9 0 0 1-9 9",
  back: "m15 18-6-6 6-6",
  down: "m6 9 6 6 6-6",
  close: "M18 6 6 18M6 6l12 12",
  check: "M20 6 9 17l-5-5",
  split: "M12 3v18M3 5h18v14H3z",
  rows: "M3 5h18v14H3zM3 12h18",
};

export const Icon = ({ name }: { name: string }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={ICONS[name]} />
  </svg>
);
