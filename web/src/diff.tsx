// The changed files as cards. Each loads its texts when it becomes visible.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren, RefObject } from "preact";
import { pathText } from "../../clients/typescript/src/path";
import type { Change, FileDiff, Hash, LoggedFile, Path } from "../../clients/typescript/src/wire";
import { asFailure, Failure } from "./api";
import { api, narrow, split } from "./state";
import { diffOf, sideBySide, type Line, type Piece, type Section } from "./text";
import { Count, FailureNote, Icon, PathName, plural, Skeleton, StatusMark } from "./parts";
import { useVirtual } from "./virtual";

/** A changed file, with line counts if they are known. */
export type ChangedFile = Change & Partial<LoggedFile>;

/** Provides the texts of a card, from two snapshots or from a plan. */
export type Source = { key: string; load: (path: Path) => Promise<FileDiff | null> };

const known = new Map<string, Promise<FileDiff | null>>();
/** Maximum number of cached diffs. */
const MAX_KNOWN = 300;

/** Provides the diff of two snapshots. Snapshots never change, so diffs are cached. */
export function between(from: Hash, to: Hash): Source {
  const server = api.value;
  const key = `${from}..${to}`;
  const fetchOne = async (path: Path) => (await server.get("diff_full", { from, to, paths: [path] })).files[0] ?? null;
  const load = (path: Path) => {
    const name = `${server.project} ${key} ${path}`;
    const found = known.get(name) ?? fetchOne(path);
    if (!known.has(name)) found.catch(() => known.delete(name));
    known.delete(name);
    known.set(name, found);
    if (known.size > MAX_KNOWN) known.delete(known.keys().next().value!);
    return found;
  };
  return { key, load };
}

export interface CardsProps {
  files: ChangedFile[];
  source: Source;
  scroller: RefObject<HTMLElement | null>;
  /** Actions on one file. */
  actions?: (change: ChangedFile) => ComponentChildren;
  /** Receives a function that scrolls to a file. */
  jump?: (to: (index: number) => void) => void;
  collapsed?: boolean;
}

export function Cards({ files, source, scroller, actions, jump, collapsed }: CardsProps) {
  const top = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  const [folded, setFolded] = useState<Record<string, boolean>>({});
  const keyOf = (index: number) => `${source.key} ${files[index].path}`;
  const isFolded = (index: number) => folded[keyOf(index)] ?? collapsed ?? false;
  const guess = (index: number) => {
    const { additions = 4, deletions = 4, status } = files[index];
    const around = status === "modified" ? 8 : 0;
    return isFolded(index) ? 58 : 66 + Math.min(FIRST_LINES, additions + deletions + around) * 20;
  };
  const list = useVirtual({ count: files.length, scroller, size: guess, keyOf, overscan: 2, margin });
  useEffect(() => {
    if (top.current && scroller.current) {
      const { top: above } = top.current.getBoundingClientRect();
      setMargin(above - scroller.current.getBoundingClientRect().top + scroller.current.scrollTop);
    }
  }, [source.key, files]);
  jump?.((index) => list.scrollToIndex(index, { align: "start" }));
  return (
    <div ref={top} class="cards" style={{ height: `${list.getTotalSize()}px` }}>
      {list.getVirtualItems().map((item) => (
        <div
          key={item.key}
          class="card-slot"
          data-index={item.index}
          ref={(node) => list.measureElement(node)}
          style={{ transform: `translateY(${item.start - margin}px)` }}
        >
          <Card
            change={files[item.index]}
            source={source}
            folded={isFolded(item.index)}
            fold={(on) => setFolded({ ...folded, [keyOf(item.index)]: on })}
            actions={actions}
          />
        </div>
      ))}
    </div>
  );
}

interface CardProps {
  change: ChangedFile;
  source: Source;
  folded: boolean;
  fold: (on: boolean) => void;
  actions?: (change: ChangedFile) => ComponentChildren;
}

function Card({ change, source, folded, fold, actions }: CardProps) {
  const [loaded, setLoaded] = useState<FileDiff | Failure | null | undefined>();
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (folded) return;
    let gone = false;
    source.load(change.path).then(
      (diff) => gone || setLoaded(diff),
      (error: unknown) => gone || setLoaded(asFailure(error)),
    );
    return () => void (gone = true);
  }, [source.key, change.path, folded, again]);
  const counts = loaded && !(loaded instanceof Failure) ? loaded : change;
  return (
    <section class="card" aria-label={pathText(change.path)}>
      <header class="card-head">
        <button class="fold" aria-expanded={!folded} onClick={() => fold(!folded)}>
          <Icon name="down" />
          <StatusMark status={change.status} />
          <PathName path={change.path} />
        </button>
        <Count additions={counts.additions} deletions={counts.deletions} />
        {actions?.(change)}
      </header>
      {!folded && <CardBody path={pathText(change.path)} loaded={loaded} retry={() => setAgain(again + 1)} />}
    </section>
  );
}

function CardBody({ path, loaded, retry }: { path: string; loaded: FileDiff | Failure | null | undefined; retry: () => void }) {
  if (loaded === undefined) return <Skeleton lines={4} />;
  if (loaded instanceof Failure) return <FailureNote failure={loaded} retry={retry} />;
  if (loaded === null) return <p class="quiet">The file is identical in both states.</p>;
  if (loaded.omitted) return <p class="quiet">Too large to show here. Use <code>ctrlz diff</code>.</p>;
  if (loaded.binary) return <p class="quiet">Binary file.</p>;
  if (loaded.before === loaded.after) {
    return <p class="quiet">{loaded.status === "modified" ? "Only the permissions changed." : "The file is empty."}</p>;
  }
  return <Texts path={path} before={loaded.before} after={loaded.after} />;
}

const FIRST_LINES = 500;

function Texts({ path, before, after }: { path: string; before: string; after: string }) {
  const diff = useMemo(() => diffOf(path, before, after), [path, before, after]);
  const [open, setOpen] = useState<Set<string>>(new Set());
  const [most, setMost] = useState(FIRST_LINES);
  // One side of an added or removed file is empty, so a single column is used.
  const two = split.value && !narrow.value && before !== "" && after !== "";
  let left = most;
  const visible: Section[] = [];
  for (const section of diff.sections) {
    if (left <= 0) break;
    const shut = section.gap && !open.has(section.key);
    visible.push(shut ? section : { ...section, lines: section.lines.slice(0, left) });
    left -= shut ? 1 : section.lines.length;
  }
  const hidden = diff.sections.reduce((sum, { lines }) => sum + lines.length, 0);
  return (
    <div class={`lines ${two ? "two" : "one"}`} role="group" aria-label={`Changes in ${path}`}>
      {diff.coarse && <p class="quiet">The texts differ too much for a line-by-line diff.</p>}
      {visible.map((section) =>
        section.gap && !open.has(section.key) ? (
          <button class="gap" key={section.key} onClick={() => setOpen(new Set([...open, section.key]))}>
            {`${plural(section.lines.length, "unchanged line")}`}
          </button>
        ) : two ? (
          sideBySide(section.lines).map(({ left: a, right: b }, index) => (
            <div class="pair" key={section.key + index}>
              <Side line={a} number={a?.old} />
              <Side line={b} number={b?.new} />
            </div>
          ))
        ) : (
          section.lines.map((line, index) => <Unified line={line} key={section.key + index} />)
        ),
      )}
      {left <= 0 && hidden > most && (
        <button class="gap" onClick={() => setMost(most + 2000)}>{`Show more (${hidden - most} lines)`}</button>
      )}
    </div>
  );
}

const CLASS = { " ": "same", "+": "new", "-": "old" };
const SAID = { " ": "", "+": "added: ", "-": "removed: " };

function Side({ line, number }: { line: Line | null; number: number | null | undefined }) {
  if (!line) return <div class="side none" />;
  return (
    <div class={`side ${CLASS[line.sign]}`}>
      <span class="number" data-number={number ?? ""} />
      <Code line={line} />
    </div>
  );
}

const Unified = ({ line }: { line: Line }) => (
  <div class={`side ${CLASS[line.sign]}`}>
    <span class="number" data-number={line.old ?? ""} />
    <span class="number" data-number={line.new ?? ""} />
    <Code line={line} />
  </div>
);

const Code = ({ line }: { line: Line }) => (
  <code class="code" data-sign={line.sign}>
    {line.sign !== " " && <span class="visually-hidden">{SAID[line.sign]}</span>}
    {line.pieces.map(pieceOf)}
  </code>
);

function pieceOf({ text, kind, differs }: Piece) {
  if (!kind && !differs) return text;
  return <span class={`${kind}${differs ? " differs" : ""}`}>{text}</span>;
}
