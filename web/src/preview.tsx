// The dialog between wanting and doing: exactly what will change, then one button.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, shown } from "./api";
import { Cards, type Source } from "./diff";
import { carryOut, changesOf, planFor, sourceOf, type Intent, type Outcome, type Plan } from "./plan";
import { api, catchUp } from "./state";
import { FailureNote, Icon, Note, PathName, plural, Skeleton } from "./parts";
import { toast } from "./toast";

const wanted = signal<Intent | null>(null);

export const preview = (intent: Intent) => void (wanted.value = intent);

const DONE = { undo: "Undone", redo: "Brought back", restore: "Restored", recover: "Recovered" };
const BUTTON = { undo: "Undo", redo: "Redo", restore: "Restore", recover: "Recover" };

export const Preview = () => (wanted.value ? <Dialog key={JSON.stringify(wanted.value)} intent={wanted.value} /> : null);

function Dialog({ intent }: { intent: Intent }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [plan, setPlan] = useState<{ plan: Plan; source: Source } | null>(null);
  const [failure, setFailure] = useState<Failure | null>(null);
  const [working, setWorking] = useState(false);
  const [moved, setMoved] = useState(false);
  const close = () => void (wanted.value = null);
  const look = () => {
    setFailure(null);
    planFor(api.value, intent).then(
      (made) => setPlan({ plan: made, source: sourceOf(api.value, intent, made) }),
      (error) => setFailure(asFailure(error)),
    );
  };
  useEffect(() => {
    dialog.current?.showModal();
    look();
  }, []);
  // Enter does what was shown, once it is shown.
  useEffect(() => {
    if (plan) document.getElementById(plan.plan.actions.length ? "apply" : "cancel")?.focus();
  }, [plan]);
  const apply = async () => {
    if (!plan || working) return;
    setWorking(true);
    try {
      finished(intent, await carryOut(api.value, intent, plan.plan));
      close();
    } catch (error) {
      const problem = asFailure(error);
      if (problem.kind === "stale_plan") {
        setMoved(true);
        setPlan(null);
        look();
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
      {failure ? <Refused failure={failure} intent={intent} retry={look} /> : plan ? <Shown {...plan} intent={intent} moved={moved} /> : <Skeleton lines={6} />}
      <footer class="dialog-foot">
        <span class="dim">Files are recorded first: this can be undone.</span>
        <button class="button" onClick={close} id="cancel">Cancel</button>
        <button class="button primary" disabled={!plan || Boolean(nothing) || working || Boolean(failure)} onClick={apply} id="apply">
          {working ? "Working…" : nothing || !plan ? BUTTON[intent.verb] : `${BUTTON[intent.verb]} · ${plural(plan.plan.actions.length, "file")}`}
        </button>
      </footer>
    </dialog>
  );
}

const asFailure = (error: unknown) => (error instanceof Failure ? error : new Failure(0, "internal", String(error)));

function finished(intent: Intent, outcome: Outcome): void {
  const what = `${DONE[intent.verb]}: ${plural(outcome.done.length, "file")}`;
  toast(outcome.complete ? what : `${what}; some were left alone`, intent.verb === "undo" ? { name: "Redo", act: redoNow } : undefined);
  void catchUp().catch(() => {});
}

/** Redo in one click: what it brings back was shown when it was taken away. */
export async function redoNow(): Promise<void> {
  const intent: Intent = { verb: "redo", title: "Redo", params: {} };
  try {
    finished(intent, await carryOut(api.value, intent, await planFor(api.value, intent)));
  } catch (error) {
    toast(asFailure(error).message);
  }
}

function Refused({ failure, intent, retry }: { failure: Failure; intent: Intent; retry: () => void }) {
  if (failure.kind.startsWith("nothing_")) {
    return <Note icon="check" title="Nothing to do"><p>{failure.message}</p></Note>;
  }
  if (failure.kind !== "mass_change") return <FailureNote failure={failure} retry={retry} />;
  const agree = () => preview({ ...intent, params: { ...intent.params, allow_mass_removal: true } });
  return (
    <Note tone="bad" icon="warn" title="This would remove nearly everything">
      <p>{failure.message}</p>
      <button class="button danger" onClick={agree}>Go on all the same</button>
    </Note>
  );
}

function Shown({ plan, source, intent, moved }: { plan: Plan; source: Source; intent: Intent; moved: boolean }) {
  const scroller = useRef<HTMLDivElement>(null);
  const files = changesOf(plan);
  const count = (status: string) => files.filter((file) => file.status === status).length;
  const parts = [
    [count("modified"), "changed"],
    [count("added"), "created"],
    [count("deleted"), "removed"],
  ].filter(([number]) => number);
  const force = () => preview({ ...intent, params: { ...intent.params, force: true } });
  return (
    <div class="dialog-body" ref={scroller} tabIndex={0} role="region" aria-label="What will change">
      {moved && <p class="banner" role="status">The files have changed meanwhile. This is what would happen now.</p>}
      {files.length > 0 ? (
        <p class="summary">{parts.map(([number, name]) => `${plural(number as number, "file")} will be ${name}`).join(", ")}.</p>
      ) : (
        <Note icon="check" title="Nothing would change"><p>Your files are in that state already, or the changes conflict.</p></Note>
      )}
      {plan.conflicts.length > 0 && (
        <div class="conflicts">
          <h3><Icon name="warn" />{`${plural(plan.conflicts.length, "file")} will be left alone`}</h3>
          <ul>
            {plan.conflicts.map(({ path, why }) => <li key={shown(path)}><PathName path={path} /><span>{why}</span></li>)}
          </ul>
          {intent.verb !== "restore" && !intent.params.force && (
            <button class="button" onClick={force}>Take these back too, with what was changed since</button>
          )}
        </div>
      )}
      {plan.kept.length > 0 && (
        <details class="kept">
          <summary>{`${plural(plan.kept.length, "path")} stay as they are`}</summary>
          <ul>{plan.kept.map(({ path, why }) => <li key={shown(path)}><PathName path={path} /><span>{why}</span></li>)}</ul>
        </details>
      )}
      <Cards files={files} source={source} scroller={scroller} collapsed={files.length > 8} />
    </div>
  );
}
