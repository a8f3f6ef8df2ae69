// Line diffs of two texts, with syntax colours and highlighted words.

import { diffWordsWithSpace, structuredPatch } from "diff";
import { createLowlight } from "lowlight";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import lua from "highlight.js/lib/languages/lua";
import makefile from "highlight.js/lib/languages/makefile";
import markdown from "highlight.js/lib/languages/markdown";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import scss from "highlight.js/lib/languages/scss";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const lowlight = createLowlight({
  bash, c, cpp, csharp, css, dockerfile, go, ini, java, javascript, json, kotlin, lua, makefile, markdown, php, python, ruby, rust,
  scss, sql, swift, typescript, xml, yaml,
});

type Node = ReturnType<typeof lowlight.highlight>["children"][number];

const BY_NAME: Record<string, string> = {
  sh: "bash", zsh: "bash", h: "c", cc: "cpp", hpp: "cpp", cs: "csharp", less: "css", mod: "go", toml: "ini", cfg: "ini", conf: "ini",
  js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript", kt: "kotlin", mk: "makefile", md: "markdown", py: "python",
  rb: "ruby", rs: "rust", ts: "typescript", tsx: "typescript", html: "xml", svg: "xml", vue: "xml", svelte: "xml", yml: "yaml",
  jsonc: "json", lock: "ini",
};

function languageOf(file: string): string | null {
  const name = file.slice(file.lastIndexOf("/") + 1).toLowerCase();
  const ending = name.slice(name.lastIndexOf(".") + 1);
  const language = BY_NAME[ending] ?? ending;
  return lowlight.registered(language) ? language : null;
}

export interface Piece {
  text: string;
  kind: string;
  /** Whether this part of the line changed. */
  differs: boolean;
}

export interface Line {
  sign: " " | "+" | "-";
  old: number | null;
  new: number | null;
  pieces: Piece[];
}

export type Section = { gap: true; key: string; lines: Line[] } | { gap: false; key: string; lines: Line[] };

export interface TextDiff {
  sections: Section[];
  additions: number;
  deletions: number;
  /** Whether the texts differ too much for a diff: the old text is shown above the new one. */
  coarse: boolean;
}

/** Maximum length of a text with syntax colours, in UTF-16 code units. */
const MAX_COLOURED = 300_000;
const CONTEXT = 3;

export function diffOf(file: string, before: string, after: string): TextDiff {
  const patch = structuredPatch("", "", before, after, "", "", { context: CONTEXT, timeout: 1500 });
  const oldLines = coloured(file, before);
  const newLines = coloured(file, after);
  if (!patch) return whole(oldLines, newLines);
  const sections: Section[] = [];
  let [oldAt, newAt] = [1, 1];
  for (const hunk of patch.hunks) {
    gap(sections, newLines, oldAt, newAt, hunk.newStart - newAt);
    [oldAt, newAt] = [hunk.oldStart, hunk.newStart];
    const lines: Line[] = [];
    for (const text of hunk.lines) {
      const sign = text[0];
      if (sign === "-") lines.push({ sign, old: oldAt, new: null, pieces: oldLines[oldAt++ - 1] ?? [] });
      if (sign === "+") lines.push({ sign, old: null, new: newAt, pieces: newLines[newAt++ - 1] ?? [] });
      if (sign === " ") lines.push({ sign, old: oldAt++, new: newAt, pieces: newLines[newAt++ - 1] ?? [] });
    }
    sections.push({ gap: false, key: `h${newAt}`, lines: marked(lines) });
  }
  gap(sections, newLines, oldAt, newAt, newLines.length - newAt + 1);
  const count = (sign: string) => patch.hunks.flatMap(({ lines }) => lines).filter((line) => line[0] === sign).length;
  return { sections, additions: count("+"), deletions: count("-"), coarse: false };
}

function gap(sections: Section[], lines: Piece[][], oldAt: number, newAt: number, count: number): void {
  if (count <= 0) return;
  const between = Array.from({ length: count }, (_, index): Line => ({
    sign: " ", old: oldAt + index, new: newAt + index, pieces: lines[newAt + index - 1] ?? [],
  }));
  sections.push({ gap: true, key: `g${newAt}`, lines: between });
}

function whole(oldLines: Piece[][], newLines: Piece[][]): TextDiff {
  const lines = [
    ...oldLines.map((pieces, index): Line => ({ sign: "-", old: index + 1, new: null, pieces })),
    ...newLines.map((pieces, index): Line => ({ sign: "+", old: null, new: index + 1, pieces })),
  ];
  return { sections: [{ gap: false, key: "all", lines }], additions: newLines.length, deletions: oldLines.length, coarse: true };
}

/** Splits a text into lines of coloured pieces. */
function coloured(file: string, text: string): Piece[][] {
  const language = text.length <= MAX_COLOURED ? languageOf(file) : null;
  const lines: Piece[][] = [[]];
  const put = (value: string, kind: string) => {
    value.split("\n").forEach((part, index) => {
      if (index > 0) lines.push([]);
      if (part) lines[lines.length - 1].push({ text: part, kind, differs: false });
    });
  };
  const walk = (nodes: Node[], kind: string) => {
    for (const node of nodes) {
      if (node.type === "text") put(node.value, kind);
      if (node.type !== "element") continue;
      const { className } = node.properties;
      walk(node.children, Array.isArray(className) ? String(className[0]) : kind);
    }
  };
  if (language) walk(lowlight.highlight(language, text).children, "");
  else put(text, "");
  if (lines[lines.length - 1].length === 0) lines.pop();
  return lines;
}

const plain = (line: Line) => line.pieces.map(({ text }) => text).join("");

/** Highlights the words that differ between a removed line and the added line that replaces it. */
function marked(lines: Line[]): Line[] {
  for (let index = 0; index < lines.length; ) {
    if (lines[index].sign !== "-") {
      index++;
      continue;
    }
    let plus = index;
    while (lines[plus]?.sign === "-") plus++;
    let end = plus;
    while (lines[end]?.sign === "+") end++;
    for (let pair = 0; pair < Math.min(plus - index, end - plus); pair++) markPair(lines[index + pair], lines[plus + pair]);
    index = end;
  }
  return lines;
}

function markPair(old: Line, fresh: Line): void {
  const [a, b] = [plain(old), plain(fresh)];
  if (a.length + b.length > 2000) return;
  const parts = diffWordsWithSpace(a, b);
  const same = parts.filter((part) => !part.added && !part.removed).reduce((sum, { value }) => sum + value.trim().length, 0);
  // Highlighting is not useful for lines that have little in common.
  if (same * 3 < Math.max(a.trim().length, b.trim().length)) return;
  old.pieces = overlay(old.pieces, parts.filter((part) => !part.added).map((part) => [part.value.length, Boolean(part.removed)]));
  fresh.pieces = overlay(fresh.pieces, parts.filter((part) => !part.removed).map((part) => [part.value.length, Boolean(part.added)]));
}

function overlay(pieces: Piece[], runs: [length: number, differs: boolean][]): Piece[] {
  const result: Piece[] = [];
  let [run, left] = [0, runs[0]?.[0] ?? Infinity];
  for (const piece of pieces) {
    for (let at = 0; at < piece.text.length; ) {
      while (left === 0 && run < runs.length) left = runs[++run]?.[0] ?? Infinity;
      const take = Math.min(left, piece.text.length - at);
      result.push({ ...piece, text: piece.text.slice(at, at + take), differs: runs[run]?.[1] ?? false });
      at += take;
      left -= take;
    }
  }
  return result;
}

export interface Pair {
  left: Line | null;
  right: Line | null;
}

/** Pairs removed lines with the added lines that replace them. */
export function sideBySide(lines: Line[]): Pair[] {
  const pairs: Pair[] = [];
  for (let index = 0; index < lines.length; ) {
    if (lines[index].sign === " ") {
      pairs.push({ left: lines[index], right: lines[index] });
      index++;
      continue;
    }
    const removed: Line[] = [];
    const added: Line[] = [];
    while (lines[index]?.sign === "-") removed.push(lines[index++]);
    while (lines[index]?.sign === "+") added.push(lines[index++]);
    for (let at = 0; at < Math.max(removed.length, added.length); at++) pairs.push({ left: removed[at] ?? null, right: added[at] ?? null });
  }
  return pairs;
}
