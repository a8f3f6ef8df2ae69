// The changes of the selected row, and the actions on them.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { pathText } from "../../clients/typescript/src/path";
import type { FromMessage, Hash, LogEntry } from "../../clients/typescript/src/wire";
import { asFailure, Failure, type Api, type Params } from "./api";
import { between, Cards, type ChangedFile } from "./diff";
import { Count, FailureNote, Icon, Note, PathName, plural, Skeleton, StatusMark } from "./parts";
import { preview, redoNow } from "./preview";
import { entriesOf, isUndone, kindName, sessionOf, titleOf, type Row } from "./rows";
import { api, chosenRow, closeDetail, compareFrom, go, rangeEnd, rows, setSplit, split } from "./state";
import { nameOfStep, rangeOf } from "./timeline";
import { useVirtual } from "./virtual";

/** The subject of the diff: one row, or a range of rows. */
interface Subject {
  key: string;
  title: string;
  row: Row | null;
  from: Hash | null;
  to: Hash;
  newest: LogEntry;
  oldest: LogEntry;
  single: LogEntry | null;
}

export function subject(): Subject | null {
  const range = rangeOf();
  if (!range) return null;
  const chosen = rows.value.slice(range[0], range[1] + 1);
  const entries = chosen.flatMap(entriesOf).sort((a, b) => (a.operation < b.operation ? 1 : -1));
  const [newest, oldest] = [entries[0], entries[entries.length - 1]];
  const row = rangeEnd.value ? null : chosenRow.value;
  const title = row ? (row.type === "prompt" ? row.title : titleOf(row.entry, nameOfStep)) : `${plural(chosen.length, "row")} combined`;
  const single = row?.type === "entry" ? row.entry : null;
  return { key: `${oldest.operation}-${newest.operation}`, title, row, from: oldest.before, to: newest.after, newest, oldest, single };
}

async function filesOf(api: Api, of: Subject): Promise<ChangedFile[]> {
  if (!of.from) return [];
  if (of.single) {
    const files = of.single.files ?? 0;
    if (files <= of.single.changes.length) return of.single.changes;
    return (await api.get("operation", { operation: of.single.operation, files: Math.min(files, 100_000) })).changes;
  }
  return api.changes(of.from, of.to);
}

export const jumpTo = signal<(index: number) => void>(() => {});
export const fileAt = signal(0);
export const fileCount = signal(0);

export function Detail() {
  const of = subject();
  const scroller = useRef<HTMLDivElement>(null);
  const [files, setFiles] = useState<{ key: string; files: ChangedFile[] | Failure } | null>(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!of) return;
    let gone = false;
    scroller.current?.scrollTo(0, 0);
    fileAt.value = 0;
    const set = (found: ChangedFile[] | Failure) => {
      if (gone) return;
      fileCount.value = Array.isArray(found) ? found.length : 0;
      setFiles({ key: of.key, files: found });
    };
    filesOf(api.value, of).then(set, (error: unknown) => set(asFailure(error)));
    return () => void (gone = true);
  }, [of?.key, again]);
  if (!of) return <section class="detail" aria-label="Changes"><Note icon="timeline" title="Select a step"><p>Its changes appear here.</p></Note></section>;
  const ready = files?.key === of.key ? files.files : null;
  return (
    <section class="detail" aria-label="Changes">
      <Head of={of} files={Array.isArray(ready) ? ready : null} />
      <div class="detail-body" ref={scroller} tabIndex={0} role="region" aria-label="Diff">
        {!ready && <Skeleton lines={8} />}
        {ready instanceof Failure && <FailureNote failure={ready} retry={() => setAgain(again + 1)} />}
        {Array.isArray(ready) && <Files of={of} files={ready} scroller={scroller} />}
      </div>
    </section>
  );
}

function Files({ of, files, scroller }: { of: Subject; files: ChangedFile[]; scroller: { current: HTMLDivElement | null } }) {
  const source = useMemo(() => between(of.from ?? "", of.to), [of.from, of.to, api.value]);
  if (!of.from) return <Note icon="clock" title="First snapshot"><p>This is the first recorded state. Earlier changes are not known.</p></Note>;
  if (!files.length) return <Note icon="empty" title="No file changed" />;
  return (
    <>
      {files.length > FEW && <FileList files={files} />}
      <Cards
        files={files}
        source={source}
        scroller={scroller}
        jump={(to) => queueMicrotask(() => (jumpTo.value = to))}
        actions={(change) => <FileActions of={of} change={change} />}
      />
    </>
  );
}

const FILE_ROW = 30;
/** Up to this number of files, there is no separate list. */
const FEW = 3;

function FileList({ files }: { files: ChangedFile[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const list = useVirtual({ count: files.length, scroller, size: () => FILE_ROW, keyOf: (index) => files[index].path });
  const show = (index: number) => {
    fileAt.value = index;
    jumpTo.value(index);
  };
  return (
    <nav class="file-list" aria-label="Changed files">
      <div class="file-rows" ref={scroller} style={{ height: `${Math.min(files.length, 8) * FILE_ROW}px` }} tabIndex={files.length > 8 ? 0 : undefined}>
        <div class="rows-inner" style={{ height: `${list.getTotalSize()}px` }}>
          {list.getVirtualItems().map(({ index, key, start }) => (
            <button key={key} class="file-row" style={{ transform: `translateY(${start}px)` }} onClick={() => show(index)}>
              <StatusMark status={files[index].status} />
              <PathName path={files[index].path} />
              <Count additions={files[index].additions} deletions={files[index].deletions} />
            </button>
          ))}
        </div>
      </div>
    </nav>
  );
}

function FileActions({ of, change }: { of: Subject; change: ChangedFile }) {
  const name = pathText(change.path);
  const undo = undoParams(of);
  const act = () =>
    undo && change.status
      ? preview({ verb: "undo", title: `Undo in ${name}`, params: { ...undo, paths: [change.path] } })
      : preview({ verb: "restore", title: `Restore ${name}`, params: { hash: of.to, exact: true, by_person: true, paths: [change.path] }, target: of.to });
  return (
    <button class="small-button" onClick={act} aria-label={`${undo ? "Undo" : "Restore"} file: ${name}`}>
      <Icon name={undo ? "undo" : "restore"} />
      {undo ? "Undo file" : "Restore file"}
    </button>
  );
}

/** Returns the parameters to undo the subject; null if it cannot be undone. */
function undoParams(of: Subject): Params<"plan_undo"> | null {
  if (!of.row || isUndone(of.row)) return null;
  if (of.row.type === "prompt") return { scope: { message: of.row.message }, session: of.row.session };
  const step = of.row.entry.kind === "step" ? of.row.entry.steps[0] : undefined;
  return step ? { scope: { step: step.step } } : null;
}

export const acts = {
  undo() {
    const of = subject();
    const params = of && undoParams(of);
    if (of && params) preview({ verb: "undo", title: `Undo “${of.title}”`, params });
  },
  undoAfter() {
    const of = subject();
    const first = of && firstTurn(of);
    if (of && first) {
      const { session, ...from } = first;
      preview({ verb: "undo", title: `Undo “${of.title}” and everything after it`, params: { scope: { from }, session } });
    }
  },
  restore() {
    const of = subject();
    if (of) preview({ verb: "restore", title: `Restore the files to the state after “${of.title}”`, params: { hash: of.to, exact: true, by_person: true }, target: of.to });
  },
  undoLast: () => preview({ verb: "undo", title: "Undo the last turn", params: { restores: true } }),
  redo: () => void redoNow(),
  compare() {
    const of = subject();
    if (!of) return;
    if (compareFrom.value && compareFrom.value !== of.newest.operation) go("compare", compareFrom.value, of.newest.operation);
    else go("compare", of.newest.operation);
  },
  nextFile: (by: number) => {
    fileAt.value = Math.max(0, Math.min(fileCount.value - 1, fileAt.value + by));
    jumpTo.value(fileAt.value);
  },
};

/** Returns the first message to undo for "undo from here"; null if the subject belongs to no turn. */
function firstTurn(of: Subject): (FromMessage & { session: string }) | null {
  if (of.row?.type === "prompt") return { session: of.row.session, message: of.row.message, part: null };
  const step = of.oldest.kind === "step" ? of.oldest.steps[0] : undefined;
  return step?.message ? { session: step.session, message: step.message, part: step.part } : null;
}

function Head({ of, files }: { of: Subject; files: ChangedFile[] | null }) {
  const undo = undoParams(of);
  const undone = of.row && isUndone(of.row);
  const redoable = of.single && ["undo", "revert"].includes(of.single.kind) && !of.single.taken_back;
  const many = of.row?.type === "prompt" ? "Undo prompt" : "Undo step";
  return (
    <header class="detail-head">
      <div class="detail-title">
        <button class="icon-button phone-only" aria-label="Back to the timeline" onClick={closeDetail}><Icon name="back" /></button>
        <h2>{of.title}</h2>
        {undone && <span class="tag">undone</span>}
      </div>
      <p class="detail-meta">
        <span>{of.single ? kindName(of.single.kind) : of.row ? "Prompt" : "Range"}</span>
        {sessionOf(of.newest) && <span>{sessionOf(of.newest)}</span>}
        {of.newest.steps[0]?.who && <span>{of.newest.steps[0].who}</span>}
        <span>{new Date(of.newest.at_millis).toLocaleString()}</span>
        {files && <span>{plural(files.length, "file")}</span>}
        <code title={of.to}>{of.to.slice(0, 10)}</code>
      </p>
      <div class="actions" role="toolbar" aria-label="Actions">
        {redoable && <Act icon="redo" name="Redo" keys="⇧Z" act={acts.redo} primary />}
        {undo && <Act icon="undo" name={many} keys="U" act={acts.undo} primary />}
        {firstTurn(of) && <Act icon="undo" name="Undo from here" keys="⇧U" act={acts.undoAfter} />}
        <Act icon="restore" name="Restore this state" keys="R" act={acts.restore} />
        <Act icon="compare" name="Compare" keys="C" act={acts.compare} />
        <SplitSwitch />
      </div>
    </header>
  );
}

export const SplitSwitch = () => (
  <div class="switch" role="group" aria-label="Layout of diffs">
    <button aria-pressed={split.value} onClick={() => setSplit(true)} title="Side by side (S)"><Icon name="split" /><span>Split</span></button>
    <button aria-pressed={!split.value} onClick={() => setSplit(false)} title="Unified (S)"><Icon name="rows" /><span>Unified</span></button>
  </div>
);

interface ActProps {
  icon: string;
  name: string;
  keys: string;
  act: () => void;
  primary?: boolean;
}

const Act = ({ icon, name, keys, act, primary }: ActProps) => (
  <button class={`button${primary ? " primary" : ""}`} onClick={act}>
    <Icon name={icon} />
    {name}
    <kbd aria-hidden="true">{keys}</kbd>
  </button>
);
