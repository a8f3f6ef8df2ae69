// The confirmation dialog: shows exactly what will change.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { RestoreReport, UndoReport } from "../../clients/typescript/src/wire";
import { asFailure, type Failure } from "./api";
import { Cards, type Source } from "./diff";
import { apply as applyPlan, changesOf, planFor, sourceOf, type Intent, type Planned } from "./plan";
import { api, catchUp } from "./state";
import { FailureNote, Icon, Note, PathName, plural, Skeleton } from "./parts";
import { toast } from "./toast";

const wanted = signal<Intent | null>(null);

export const preview = (intent: Intent) => void (wanted.value = intent);

const DONE = { undo: "Undone", redo: "Redone", restore: "Restored", recover: "Recovered" };
const BUTTON = { undo: "Undo", redo: "Redo", restore: "Restore", recover: "Recover" };

export const Preview = () => (wanted.value ? <Dialog key={JSON.stringify(wanted.value)} intent={wanted.value} /> : null);

function Dialog({ intent }: { intent: Intent }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [plan, setPlan] = useState<{ plan: Planned; source: Source } | null>(null);
  const [failure, setFailure] = useState<Failure | null>(null);
  const [working, setWorking] = useState(false);
  const [moved, setMoved] = useState(false);
  const close = () => void (wanted.value = null);
  const load = () => {
    setFailure(null);
    planFor(api.value, intent).then(
      (made) => setPlan({ plan: made, source: sourceOf(api.value, intent, made) }),
      (error: unknown) => setFailure(asFailure(error)),
    );
  };
  useEffect(() => {
    dialog.current?.showModal();
    load();
  }, []);
  // Focuses the button when the plan is shown, so that Enter applies it.
  useEffect(() => {
    if (plan) document.getElementById(plan.plan.actions.length ? "apply" : "cancel")?.focus();
  }, [plan]);
  const apply = async () => {
    if (!plan || working) return;
    setWorking(true);
    try {
      finished(intent, await applyPlan(api.value, intent, plan.plan));
      close();
    } catch (error) {
      const problem = asFailure(error);
      if (problem.kind === "stale_plan") {
        setMoved(true);
        setPlan(null);
        load();
      } else setFailure(problem);
    } finally {
      setWorking(false);
    }
  };
  const nothing = plan && plan.plan.actions.length === 0;
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={close} onCancel={close}>
      <header class="dialog-head">
        <h2 id="dialog-title">{intent.title}</h2>
        <button class="icon-button" aria-label="Close" onClick={close}><Icon name="close" /></button>
      </header>
      {failure ? <Refused failure={failure} intent={intent} retry={load} /> : plan ? <Shown {...plan} intent={intent} moved={moved} /> : <Skeleton lines={6} />}
      <footer class="dialog-foot">
        <span class="dim">The current state is recorded first, so you can undo this.</span>
        <button class="button" onClick={close} id="cancel">Cancel</button>
        <button class="button primary" disabled={!plan || Boolean(nothing) || working || Boolean(failure)} onClick={apply} id="apply">
          {working ? "Working…" : nothing || !plan ? BUTTON[intent.verb] : `${BUTTON[intent.verb]} · ${plural(plan.plan.actions.length, "file")}`}
        </button>
      </footer>
    </dialog>
  );
}

function finished(intent: Intent, report: UndoReport | RestoreReport): void {
  const what = `${DONE[intent.verb]}: ${plural(report.done.length, "file")}`;
  toast(report.complete ? what : `${what}; some were skipped`, intent.verb === "undo" ? { name: "Redo", act: redoNow } : undefined);
  void catchUp().catch(() => {});
}

/** Redoes without a preview, because the same changes were shown for the undo. */
export async function redoNow(): Promise<void> {
  const intent: Intent = { verb: "redo", title: "Redo", params: {} };
  try {
    finished(intent, await applyPlan(api.value, intent, await planFor(api.value, intent)));
  } catch (error) {
    toast(asFailure(error).message);
  }
}

function Refused({ failure, intent, retry }: { failure: Failure; intent: Intent; retry: () => void }) {
  if (failure.kind.startsWith("nothing_")) {
    return <Note icon="check" title="Nothing to do"><p>{failure.message}</p></Note>;
  }
  if (failure.kind !== "mass_change") return <FailureNote failure={failure} retry={retry} />;
  const confirm = () => preview({ ...intent, confirmed: { ...intent.confirmed, allow_mass_removal: true } });
  return (
    <Note tone="bad" icon="warn" title="This would remove nearly everything">
      <p>{failure.message}</p>
      <button class="button danger" onClick={confirm}>Continue anyway</button>
    </Note>
  );
}

function Shown({ plan, source, intent, moved }: { plan: Planned; source: Source; intent: Intent; moved: boolean }) {
  const scroller = useRef<HTMLDivElement>(null);
  const files = changesOf(plan);
  const count = (status: string) => files.filter((file) => file.status === status).length;
  const parts = [
    [count("modified"), "changed"],
    [count("added"), "created"],
    [count("deleted"), "removed"],
  ].filter(([number]) => number);
  const force = () => preview({ ...intent, confirmed: { ...intent.confirmed, force: true } });
  return (
    <div class="dialog-body" ref={scroller} tabIndex={0} role="region" aria-label="Planned changes">
      {moved && <p class="banner" role="status">The files have changed meanwhile. This is the new plan.</p>}
      {files.length > 0 ? (
        <p class="summary">{parts.map(([number, name]) => `${plural(number as number, "file")} will be ${name}`).join(", ")}.</p>
      ) : (
        <Note icon="check" title="No changes"><p>The files already have this state, or all changes conflict.</p></Note>
      )}
      {plan.conflicts.length > 0 && (
        <div class="conflicts">
          <h3><Icon name="warn" />{`${plural(plan.conflicts.length, "file")} with conflicts will be skipped`}</h3>
          <ul>
            {plan.conflicts.map(({ path, why }) => <li key={path}><PathName path={path} /><span>{why}</span></li>)}
          </ul>
          {intent.verb !== "restore" && !intent.confirmed?.force && (
            <button class="button" onClick={force}>{`${BUTTON[intent.verb]} these too, including later changes`}</button>
          )}
        </div>
      )}
      {plan.kept.length > 0 && (
        <details class="kept">
          <summary>{`${plural(plan.kept.length, "path")} skipped`}</summary>
          <ul>{plan.kept.map(({ path, why }) => <li key={path}><PathName path={path} /><span>{why}</span></li>)}</ul>
        </details>
      )}
      <Cards files={files} source={source} scroller={scroller} collapsed={files.length > 8} />
    </div>
  );
}
