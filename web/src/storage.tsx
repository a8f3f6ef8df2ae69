// Storage: disk usage, health, checkpoints, lost files and garbage collection.

import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { pathText } from "../../clients/typescript/src/path";
import type { Checkpoint, LostFile, Status } from "../../clients/typescript/src/wire";
import { asFailure, Failure } from "./api";
import { bytes, FailureNote, Icon, PathName, plural, Skeleton, Time } from "./parts";
import { preview } from "./preview";
import { stepName } from "./rows";
import { api, catchUp, entries, go, sessions } from "./state";
import { toast } from "./toast";

interface Everything {
  status: Status;
  checkpoints: Checkpoint[];
  lost: LostFile[];
}

const MAX_LISTED = 200;

const when = (at: number) =>
  new Date(at).toLocaleString(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });

async function load(): Promise<Everything> {
  const [status, { checkpoints }, { lost }] = await Promise.all([
    api.value.get("status", {}),
    api.value.get("checkpoints", {}),
    api.value.get("lost", { limit: MAX_LISTED }),
  ]);
  return { status, checkpoints, lost };
}

export function Storage() {
  const [found, setFound] = useState<Everything | Failure | null>(null);
  const reload = () => void load().then(setFound, (error: unknown) => setFound(asFailure(error)));
  useEffect(reload, [api.value, entries.value]);
  if (!found) return <section class="storage" aria-label="Storage"><Skeleton lines={8} /></section>;
  if (found instanceof Failure) return <section class="storage" aria-label="Storage"><FailureNote failure={found} retry={reload} /></section>;
  const { status } = found;
  return (
    <section class="storage" aria-label="Storage" tabIndex={0}>
      <div class="storage-inner">
        <h1>Storage</h1>
        <dl class="facts">
          <Fact name="On disk" value={bytes(status.store_bytes)} />
          <Fact name="Sessions" value={String(sessions.value.length)} />
          <Fact name="Checkpoints" value={String(found.checkpoints.length)} />
          <Fact name="Last recorded" value={status.last_at_millis ? when(status.last_at_millis) : "never"} />
        </dl>
        <Health status={status} />
        <Checkpoints list={found.checkpoints} changed={reload} />
        <LostFiles list={found.lost} />
        <Panel title="Disk space">
          <p>Recent snapshots, checkpoints and kept sessions stay. Everything else can be deleted.</p>
          <p><code class="breakable">{status.store ? pathText(status.store) : "not created yet"}</code></p>
          <Collect changed={reload} />
        </Panel>
      </div>
    </section>
  );
}

const Fact = ({ name, value }: { name: string; value: string }) => <div class="fact"><dt>{name}</dt><dd>{value}</dd></div>;

const Panel = ({ title, children }: { title: string; children: ComponentChildren }) => (
  <section class="panel" aria-label={title}><h2>{title}</h2>{children}</section>
);

function Health({ status }: { status: Status }) {
  const problems = [
    ...status.damaged_packs.map(({ path, why }) => `${pathText(path)}: ${why}`),
    ...(status.enabled ? [] : ["Snapshots are disabled in this work tree."]),
    ...(status.interrupted_files ? [`A restore of ${plural(status.interrupted_files, "file")} was interrupted; the next command completes it.`] : []),
  ];
  return (
    <Panel title="Health">
      {problems.length === 0 && <p class="good"><Icon name="check" />No damage found.</p>}
      {problems.map((problem) => <p class="bad" key={problem}>{problem}</p>)}
      {status.skipped.length > 0 && (
        <details>
          <summary>{`${plural(status.skipped.length, "path")} not in the newest snapshot`}</summary>
          <ul class="plain">{status.skipped.slice(0, MAX_LISTED).map((one) => <li key={one.path}><PathName path={one.path} /><span class="dim">{one.text}</span></li>)}</ul>
        </details>
      )}
    </Panel>
  );
}

function Checkpoints({ list, changed }: { list: Checkpoint[]; changed: () => void }) {
  const [label, setLabel] = useState("");
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      await api.value.post("checkpoint", { label: label || null, pinned: true });
      setLabel("");
      toast("Checkpoint created");
      changed();
      await catchUp();
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error));
    }
  };
  const restore = (point: Checkpoint) =>
    preview({ verb: "restore", title: `Restore “${point.label ?? point.name}”`, params: { hash: point.snapshot, exact: true }, target: point.snapshot });
  return (
    <Panel title="Checkpoints">
      <form class="inline" onSubmit={make}>
        <label class="visually-hidden" for="checkpoint">Name of the new checkpoint</label>
        <input id="checkpoint" class="input" placeholder="Name of the checkpoint" value={label} onInput={(e) => setLabel(e.currentTarget.value)} maxLength={200} />
        <button class="button" type="submit"><Icon name="flag" />Create checkpoint</button>
      </form>
      {list.length === 0 && <p class="dim">None yet.</p>}
      <ul class="plain">
        {list.slice(0, MAX_LISTED).map((point) => (
          <li key={point.name}>
            <span class="grow">{point.label ?? point.name}</span>
            {point.pinned && <span class="tag">kept</span>}
            <Time at={point.at_millis} />
            <button class="small-button" onClick={() => go("compare", point.operation)} aria-label={`Compare with ${point.label ?? point.name}`}>Compare</button>
            <button class="small-button" onClick={() => restore(point)} aria-label={`Restore ${point.label ?? point.name}`}>Restore</button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

const LostFiles = ({ list }: { list: LostFile[] }) => (
  <Panel title="Files that disappeared">
    {list.length === 0 && <p class="dim">None: all recorded files exist.</p>}
    <ul class="plain">
      {list.map((file) => (
        <li key={file.path}>
          <span class="grow"><PathName path={file.path} /></span>
          <span class="dim">{file.step ? stepName(file.step) : file.kind}</span>
          <Time at={file.at_millis} />
          <button
            class="small-button"
            aria-label={`Recover ${pathText(file.path)}`}
            onClick={() => preview({ verb: "recover", title: `Recover ${pathText(file.path)}`, params: { path: file.path, by_person: true }, target: file.snapshot })}
          >
            Recover
          </button>
        </li>
      ))}
    </ul>
  </Panel>
);

function Collect({ changed }: { changed: () => void }) {
  const [sure, setSure] = useState(false);
  const [working, setWorking] = useState(false);
  const run = async () => {
    setWorking(true);
    try {
      const { bytes_before, bytes_after } = (await api.value.post("gc", { confirm: true })).gc;
      toast(`${bytes(Math.max(0, bytes_before - bytes_after))} freed`);
      changed();
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error));
    } finally {
      setWorking(false);
      setSure(false);
    }
  };
  if (!sure) return <button class="button" onClick={() => setSure(true)}>Free up space…</button>;
  return (
    <p class="inline" role="group" aria-label="Free up space">
      <span>This deletes old snapshots permanently.</span>
      <button class="button danger" disabled={working} onClick={run}>{working ? "Working…" : "Free up space"}</button>
      <button class="button" onClick={() => setSure(false)}>Cancel</button>
    </p>
  );
}
