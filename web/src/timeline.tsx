// The timeline: recorded operations, newest first, with a graph of the sessions.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { pathText } from "../../clients/typescript/src/path";
import { placesOf, type Place } from "./lanes";
import { isUndone, sessionOf, stepName, titleOf, type EntryRow, type PromptRow, type Row } from "./rows";
import {
  choose, chosen, entries, loading, loadOlder, narrow, older, onlySession, openSteps, rangeEnd, rowIndex, rows, search, sessions, stepIndex,
  textHits, unseen,
} from "./state";
import { Count, Note, plural, Time } from "./parts";
import { useVirtual } from "./virtual";

const LANE = 14;
const DAY = 30;
const heightOf = (row: Row) => (row.type === "prompt" ? 58 : 52) + (row.day ? DAY : 0);

export const nameOfStep = (id: string) => {
  const found = stepIndex.value.get(id);
  return found ? stepName(found.step) : null;
};

export function Timeline() {
  const scroller = useRef<HTMLDivElement>(null);
  const list = rows.value;
  const { places, lanes } = useMemo(() => placesOf(list, sessions.value), [list, sessions.value]);
  const virtual = useVirtual({ count: list.length, scroller, size: (i) => heightOf(list[i]), keyOf: (i) => list[i].key, overscan: 12 });
  useEffect(() => virtual.measure(), [list]);
  const current = rowIndex.value.get(chosen.value ?? "") ?? -1;
  useEffect(() => {
    if (current >= 0) virtual.scrollToIndex(current, { align: "auto" });
  }, [chosen.value]);
  const items = virtual.getVirtualItems();
  const last = items[items.length - 1]?.index ?? 0;
  useEffect(() => {
    if (older.value && last > list.length - 60) void loadOlder();
  }, [last, list.length, loading.value]);
  const scrolled = (scroller.current?.scrollTop ?? 0) > 80;
  if (!scrolled && unseen.value) queueMicrotask(() => (unseen.value = 0));
  return (
    <section class="timeline" aria-label="Timeline">
      <Filters />
      <Working />
      {scrolled && unseen.value > 0 && (
        <div class="news-slot"><button class="news" onClick={() => virtual.scrollToIndex(0)}>{`↑ ${unseen.value} new`}</button></div>
      )}
      {list.length === 0 ? <Nothing /> : null}
      <div
        class="rows"
        ref={scroller}
        role="listbox"
        aria-label="Operations, newest first"
        aria-activedescendant={current >= 0 ? `row-${list[current].key}` : undefined}
        tabIndex={0}
        hidden={list.length === 0}
        id="rows"
      >
        <div role="presentation" style={{ height: `${virtual.getTotalSize()}px` }} class={`rows-inner lanes-${lanes}`}>
          {items.map(({ index, key, start }) => (
            <RowView key={key} row={list[index]} place={places[index]} index={index} top={start} lanes={lanes} />
          ))}
        </div>
      </div>
      <p class="timeline-foot" role="status">
        {older.value ? (loading.value ? "Loading…" : `${plural(entries.value.length, "entry", "entries")}, more below`) : plural(entries.value.length, "entry", "entries")}
      </p>
    </section>
  );
}

function Filters() {
  if (sessions.value.length < 2) return null;
  return (
    <div class="filters">
      <label class="visually-hidden" for="session">Session</label>
      <select id="session" value={onlySession.value ?? ""} onChange={(e) => (onlySession.value = e.currentTarget.value || null)}>
        <option value="">All sessions</option>
        {sessions.value.map(({ session, who, steps }) => (
          <option key={session} value={session}>{`${session}${who ? ` · ${who}` : ""} · ${plural(steps, "step")}`}</option>
        ))}
      </select>
    </div>
  );
}

function Working() {
  if (!openSteps.value.length) return null;
  return (
    <ul class="working" aria-label="Open steps">
      {openSteps.value.slice(0, 3).map((step) => (
        <li key={step.step}>
          <span class="pulse" aria-hidden="true" />
          <span class="working-what">{`${step.who ?? step.session} is working: ${stepName(step)}`}</span>
        </li>
      ))}
    </ul>
  );
}

function Nothing() {
  if (search.value || onlySession.value || textHits.value) {
    return (
      <Note icon="search" title="Nothing found">
        <p>The search covers file names, prompts, labels, tools and sessions. Start with <code>text:</code> to search the changed lines.</p>
      </Note>
    );
  }
  return (
    <Note icon="empty" title="Nothing recorded yet">
      <p>Changes by agents in this directory appear here while they work. To try it:</p>
      <p><code>ctrlz run -- sed -i s/a/b/ notes.txt</code></p>
    </Note>
  );
}

interface RowProps {
  row: Row;
  place: Place;
  index: number;
  top: number;
  lanes: number;
}

function RowView({ row, place, index, top, lanes }: RowProps) {
  const inRange = isInRange(index);
  const press = (event: MouseEvent) => {
    choose(row.key, event.shiftKey ? "extend" : narrow.value ? "open" : "show");
  };
  const classes = ["row", row.type, row.key === chosen.value && "current", isUndone(row) && "undone", row.type === "entry" && row.entry.kind, row.type === "entry" && row.nested && "nested"];
  return (
    <div
      class={classes.filter(Boolean).join(" ")}
      id={`row-${row.key}`}
      role="option"
      aria-selected={inRange}
      aria-posinset={index + 1}
      aria-setsize={older.value ? -1 : rows.value.length}
      style={{ transform: `translateY(${top}px)`, height: `${heightOf(row)}px` }}
      onClick={press}
    >
      {row.day && <div class="day">{row.day}</div>}
      <div class="row-body">
        <Graph place={place} lanes={lanes} row={row} />
        {row.type === "prompt" ? <Prompt row={row} /> : <EntryText row={row} />}
      </div>
    </div>
  );
}

export function rangeOf(): [number, number] | null {
  const a = rowIndex.value.get(chosen.value ?? "");
  const b = rowIndex.value.get(rangeEnd.value ?? chosen.value ?? "");
  return a === undefined || b === undefined ? null : [Math.min(a, b), Math.max(a, b)];
}

function isInRange(index: number): boolean {
  const range = rangeOf();
  return range !== null && index >= range[0] && index <= range[1];
}

const Prompt = ({ row }: { row: PromptRow }) => (
  <div class="row-text">
    <div class="row-title">{row.title}</div>
    <div class="row-side">
      {row.undone && <span class="tag">undone</span>}
      <Count additions={row.additions} deletions={row.deletions} />
      <Time at={row.at} />
    </div>
    <div class="row-sub">{[row.who ?? row.session, plural(row.entries.filter((e) => e.files !== 0).length, "step"), plural(row.files, "file")].join(" · ")}</div>
  </div>
);

function EntryText({ row: { entry } }: { row: EntryRow }) {
  const names = entry.changes.slice(0, 3).map(({ path }) => pathText(path).split("/").pop());
  const more = (entry.files ?? 0) - names.length;
  const tool = entry.steps[0]?.tool;
  const undone = entry.taken_back || (entry.steps.length > 0 && entry.steps.every((step) => step.undone));
  return (
    <div class="row-text">
      <div class="row-title">{titleOf(entry, nameOfStep)}</div>
      <div class="row-side">
        {entry.pinned && <span class="tag">kept</span>}
        {undone && <span class="tag">undone</span>}
        {entry.files ? <Count additions={entry.additions} deletions={entry.deletions} /> : null}
        <Time at={entry.at_millis} />
      </div>
      <div class="row-sub">
        <span class={`chip ${entry.kind}`}>{tool ?? entry.kind}</span>
        {entry.damaged ? <span class="bad">damaged</span> : <span class="files">{names.join(", ")}{more > 0 ? ` +${more}` : ""}</span>}
        {names.length === 0 && entry.session && <span>{sessionOf(entry)}</span>}
      </div>
    </div>
  );
}

function Graph({ place, lanes, row }: { place: Place; lanes: number; row: Row }) {
  const height = heightOf(row);
  const skip = row.day ? DAY : 0;
  const middle = skip + (row.type === "prompt" ? 24 : 18);
  const x = (lane: number) => 11 + lane * LANE;
  return (
    <svg class="graph" width={x(lanes - 1) + 13} height={height} aria-hidden="true">
      {place.lines.map(({ lane, colour, up, down }) => (
        <path key={lane} class={`lane c${colour}`} d={`M${x(lane)} ${up ? 0 : middle}V${down ? height : middle}`} />
      ))}
      {place.from !== null && (
        <path class={`lane c${place.colour}`} d={`M${x(place.lane)} ${middle}C${x(place.lane)} ${height - 4},${x(place.from)} ${middle + 8},${x(place.from)} ${height}`} />
      )}
      <Node x={x(place.lane)} y={middle} row={row} colour={place.colour} />
    </svg>
  );
}

function Node({ x, y, row, colour }: { x: number; y: number; row: Row; colour: number }) {
  const tone = `node c${colour}${isUndone(row) ? " hollow" : ""}`;
  if (row.type === "prompt") {
    return <><circle class={`halo c${colour}`} cx={x} cy={y} r="8" /><circle class={tone} cx={x} cy={y} r="4.5" /></>;
  }
  switch (row.entry.kind) {
    case "outside":
      return <path class={`${tone} outside`} d={`M${x} ${y - 6}l6 6-6 6-6-6z`} />;
    case "checkpoint":
      return <path class={`${tone} flag`} d={`M${x - 4} ${y + 7}v-14h10l-3 4 3 4h-7`} />;
    case "undo":
    case "revert":
    case "restore":
      return <><circle class="node c0 back" cx={x} cy={y} r="7" /><path class="glyph" d={`M${x + 2.5} ${y - 3}l-4 3 4 3`} /></>;
    case "redo":
    case "unrevert":
      return <><circle class="node c0 back" cx={x} cy={y} r="7" /><path class="glyph" d={`M${x - 2} ${y - 3}l4 3-4 3`} /></>;
    case "baseline":
      return <circle class={`${tone} hollow`} cx={x} cy={y} r="5" />;
    case "fork":
      return <><circle class={`${tone} hollow`} cx={x} cy={y} r="6" /><circle class={`node c${colour}`} cx={x} cy={y} r="2.5" /></>;
    default:
      return <circle class={tone} cx={x} cy={y} r="4.5" />;
  }
}

