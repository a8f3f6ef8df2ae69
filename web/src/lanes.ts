// Where each row stands in the graph: the work tree is the trunk, each session a branch beside it.

import { sessionOf, type Row } from "./rows";
import type { SessionInfo } from "./api";

export interface Place {
  lane: number;
  colour: number;
  /** Lanes that pass by or through, with whether they go up and down from this row. */
  lines: { lane: number; colour: number; up: boolean; down: boolean }[];
  /** A session that begins here, and the lane it comes from. */
  from: number | null;
}

interface Span {
  session: string;
  top: number;
  bottom: number;
  lane: number;
  colour: number;
}

export const MOST_LANES = 5;

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
      // The branch ends at this row's lower edge, where another one leaves it.
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
  // A session goes on until the last one that comes from it has begun.
  for (const child of spans.values()) {
    const parent = spans.get(parents.get(child.session) ?? "");
    if (parent) parent.top = Math.min(parent.top, child.bottom);
  }
  // The oldest session is next to the trunk; later ones take the first lane that is free again.
  const tops: number[] = [];
  let colour = 0;
  for (const span of [...spans.values()].sort((a, b) => b.bottom - a.bottom)) {
    const free = tops.findIndex((top) => top > span.bottom);
    const lane = Math.min(free < 0 ? tops.length : free, MOST_LANES - 1);
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
