// Layout of the graph: the work tree is the trunk, and each session is a branch.

import type { SessionInfo } from "../../clients/typescript/src/wire";
import { sessionOf, type Row } from "./rows";

export interface Place {
  lane: number;
  colour: number;
  /** Lines through this row: their lanes, and whether they continue upwards and downwards. */
  lines: { lane: number; colour: number; up: boolean; down: boolean }[];
  /** Lane of the parent, if a session begins in this row. */
  from: number | null;
}

interface Span {
  session: string;
  top: number;
  bottom: number;
  lane: number;
  colour: number;
}

export const MAX_LANES = 5;

const sessionOfRow = (row: Row) => (row.type === "prompt" ? row.session : sessionOf(row.entry));

export function placesOf(rows: Row[], sessions: SessionInfo[]): { places: Place[]; lanes: number } {
  const parents = new Map(sessions.map((info) => [info.session, info.forked?.session ?? info.parent]));
  const spans = spansOf(rows, parents);
  const laneOf = (session: string | null | undefined) => spans.get(session ?? "")?.lane ?? 0;
  const active = new Set<Span>();
  const starting = groupBy([...spans.values()], (span) => span.top);
  const places = rows.map((row, index): Place => {
    starting.get(index)?.forEach((span) => active.add(span));
    const own = spans.get(sessionOfRow(row) ?? "");
    const lines = [{ lane: 0, colour: 0, up: index > 0, down: index < rows.length - 1 }];
    for (const span of active) {
      // The branch ends at the lower edge of this row, where another one forks from it.
      if (index === span.top && span !== own) continue;
      lines.push({ lane: span.lane, colour: span.colour, up: index > span.top, down: index < span.bottom });
    }
    const from = own?.bottom === index ? laneOf(parents.get(own.session)) : null;
    for (const span of [...active]) if (span.bottom === index) active.delete(span);
    return { lane: own?.lane ?? 0, colour: own?.colour ?? 0, lines, from };
  });
  return { places, lanes: 1 + Math.max(0, ...[...spans.values()].map(({ lane }) => lane)) };
}

function spansOf(rows: Row[], parents: Map<string, string | null>): Map<string, Span> {
  const spans = new Map<string, Span>();
  rows.forEach((row, index) => {
    const session = sessionOfRow(row);
    if (!session) return;
    const span = spans.get(session);
    if (span) span.bottom = index;
    else spans.set(session, { session, top: index, bottom: index, lane: 0, colour: 0 });
  });
  // A session extends to the start of the last session that forked from it.
  for (const child of spans.values()) {
    const parent = spans.get(parents.get(child.session) ?? "");
    if (parent) parent.top = Math.min(parent.top, child.bottom);
  }
  // The oldest session is next to the trunk. Later ones use the first free lane.
  const tops: number[] = [];
  let colour = 0;
  for (const span of [...spans.values()].sort((a, b) => b.bottom - a.bottom)) {
    const free = tops.findIndex((top) => top > span.bottom);
    const lane = Math.min(free < 0 ? tops.length : free, MAX_LANES - 1);
    tops[lane] = Math.min(tops[lane] ?? Infinity, span.top);
    span.lane = lane + 1;
    span.colour = 1 + (colour++ % 6);
  }
  return spans;
}

function groupBy<T>(items: T[], by: (item: T) => number): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) groups.set(by(item), [...(groups.get(by(item)) ?? []), item]);
  return groups;
}
