// Comparison of any two recorded states.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Change, Checkpoint, Hash } from "../../clients/typescript/src/wire";
import { asFailure, Failure } from "./api";
import { SplitSwitch } from "./detail";
import { between, Cards } from "./diff";
import { FailureNote, Icon, Note, plural, Skeleton } from "./parts";
import { preview } from "./preview";
import { titleOf } from "./rows";
import { api, compareFrom, compareTo, entries, go, loadAll, older } from "./state";
import { nameOfStep } from "./timeline";

const MAX_OPTIONS = 500;

interface Choice {
  operation: string;
  snapshot: Hash;
  name: string;
  /** Whether it is a checkpoint. Checkpoints are always listed. */
  named: boolean;
}

const when = (at: number) => new Date(at).toLocaleString(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });

export function Compare() {
  const [checkpoints, setCheckpoints] = useState<Checkpoint[]>([]);
  useEffect(() => {
    api.value.get("checkpoints", {}).then((found) => setCheckpoints(found.checkpoints), () => {});
  }, [api.value]);
  const all = useMemo(() => choicesOf(checkpoints), [checkpoints, entries.value]);
  const find = (operation: string | null) => all.find((choice) => choice.operation === operation) ?? null;
  const from = find(compareFrom.value);
  const to = compareTo.value ? find(compareTo.value) : (all[0] ?? null);
  const missing = (compareFrom.value && !from) || (compareTo.value && !to);
  useEffect(() => {
    if (missing) void loadAll();
  }, [missing]);
  const choices = all.filter((choice, index) => index < MAX_OPTIONS || choice === from || choice === to || choice.named);
  return (
    <section class="compare" aria-label="Compare">
      <header class="detail-head">
        <div class="detail-title"><h1>Compare two states</h1></div>
        <div class="pickers">
          <Picker label="From" value={from?.operation ?? ""} choices={choices} choose={(id) => go("compare", id, to?.operation ?? "")} />
          <button class="icon-button" aria-label="Swap" disabled={!from || !to} onClick={() => from && to && go("compare", to.operation, from.operation)}>
            <Icon name="compare" />
          </button>
          <Picker label="To" value={to?.operation ?? ""} choices={choices} choose={(id) => go("compare", from?.operation ?? "", id)} />
          <SplitSwitch />
        </div>
      </header>
      {from && to ? <Difference from={from} to={to} /> : missing ? <Missing /> : (
        <Note icon="compare" title="Select two states">
          <p>Select two states above, or press <kbd>C</kbd> on one row of the timeline and then on another.</p>
        </Note>
      )}
    </section>
  );
}

const Missing = () =>
  older.value ? <Skeleton lines={8} /> : <FailureNote failure={new Failure(404, "unknown_operation", "The log does not contain this operation.")} />;

function choicesOf(checkpoints: Checkpoint[]): Choice[] {
  const listed = entries.value.map((entry) => ({
    operation: entry.operation,
    snapshot: entry.after,
    name: `${when(entry.at_millis)} — after ${titleOf(entry, nameOfStep)}`,
    named: entry.kind === "checkpoint",
  }));
  const have = new Set(listed.map(({ operation }) => operation));
  const named = checkpoints.filter(({ operation }) => !have.has(operation)).map((point) => ({
    operation: point.operation,
    snapshot: point.snapshot,
    name: `${when(point.at_millis)} — checkpoint ${point.label ?? point.name}`,
    named: true,
  }));
  return [...listed, ...named];
}

interface PickerProps {
  label: string;
  value: string;
  choices: Choice[];
  choose: (operation: string) => void;
}

const Picker = ({ label, value, choices, choose }: PickerProps) => (
  <label class="picker">
    <span>{label}</span>
    <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="" disabled>Select…</option>
      {choices.map(({ operation, name }) => <option key={operation} value={operation}>{name}</option>)}
    </select>
  </label>
);

function Difference({ from, to }: { from: Choice; to: Choice }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [found, setFound] = useState<Change[] | Failure | null>(null);
  const source = useMemo(() => between(from.snapshot, to.snapshot), [from.snapshot, to.snapshot]);
  useEffect(() => {
    let gone = false;
    setFound(null);
    api.value.changes(from.snapshot, to.snapshot).then(
      (files) => gone || setFound(files),
      (error: unknown) => gone || setFound(asFailure(error)),
    );
    return () => void (gone = true);
  }, [from.snapshot, to.snapshot]);
  const restore = (choice: Choice) =>
    preview({ verb: "restore", title: `Restore: ${choice.name}`, params: { hash: choice.snapshot, exact: true, by_person: true }, target: choice.snapshot });
  return (
    <div class="detail-body" ref={scroller} tabIndex={0} role="region" aria-label="Diff">
      {found === null && <Skeleton lines={8} />}
      {found instanceof Failure && <FailureNote failure={found} />}
      {Array.isArray(found) && (
        <>
          <p class="summary">
            {found.length ? `${plural(found.length, "file")} differ.` : "The two states are identical."}{" "}
            <button class="link" onClick={() => restore(from)}>Restore “from”</button>{" "}
            <button class="link" onClick={() => restore(to)}>Restore “to”</button>
          </p>
          <Cards files={found} source={source} scroller={scroller} />
        </>
      )}
    </div>
  );
}
