// The frame of the page, its views and its keyboard shortcuts.

import { render } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import "./page.css";
import { pathText } from "../../clients/typescript/src/path";
import { Compare } from "./compare";
import { acts, Detail } from "./detail";
import { FailureNote, Icon, Note, Skeleton } from "./parts";
import { Preview } from "./preview";
import { Search } from "./search";
import {
  api, change, choose, chosen, closeDetail, detailOpen, failed, go, live, projectList, redoable, reload, rowIndex, rows, search, setSplit,
  split, stage, start, view, type View,
} from "./state";
import { Storage } from "./storage";
import { Timeline } from "./timeline";
import { Toasts } from "./toast";

const helpOpen = signal(false);
const theme = signal<string | null>(localStorage.getItem("ctrlz-theme"));

const isDark = () => (theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

function setTheme(name: string): void {
  theme.value = name;
  localStorage.setItem("ctrlz-theme", name);
  document.documentElement.dataset.theme = name;
}

const VIEWS: [View, string, string][] = [
  ["timeline", "Timeline", "timeline"],
  ["compare", "Compare", "compare"],
  ["storage", "Storage", "disk"],
];

function Page() {
  if (stage.value === "signed out") {
    return (
      <main class="alone">
        <h1 class="visually-hidden">ctrlz</h1>
        <Note icon="key" title="You are signed out">
          <p>This page shows your files and requires a sign-in. Run</p>
          <p><code>ctrlz ui</code></p>
          <p>in a terminal to open this page and sign in.</p>
        </Note>
      </main>
    );
  }
  return (
    <div class={`frame view-${view.value} ${detailOpen.value ? "detail-open" : ""}`}>
      <Header />
      <Main />
      <Preview />
      {helpOpen.value && <Help />}
      <Toasts />
    </div>
  );
}

function Main() {
  if (stage.value === "failed") return <main class="alone"><h1 class="visually-hidden">ctrlz</h1><FailureNote failure={failed.value!} retry={() => void reload()} /></main>;
  if (stage.value === "starting") return <main class="alone"><h1 class="visually-hidden">ctrlz</h1><Skeleton lines={6} /></main>;
  if (view.value === "compare") return <main class="main wide"><Compare /></main>;
  if (view.value === "storage") return <main class="main wide"><Storage /></main>;
  return <main class="main"><h1 class="visually-hidden">Timeline</h1><Timeline /><Detail /></main>;
}

function Header() {
  const pick = (project: string) => void change(projectList.value.find((one) => one.project === project));
  return (
    <header class="top">
      <a class="logo" href={`#/${api.value.project}/timeline`} aria-label="ctrlz timeline"><img src="/icon.svg" alt="" width="24" height="24" /><span>ctrlz</span></a>
      <label class="visually-hidden" for="project">Work tree</label>
      <select id="project" class="project" value={api.value.project} onChange={(event) => pick(event.currentTarget.value)}>
        {projectList.value.map(({ project, name, path }) => <option key={project} value={project} title={pathText(path)}>{name}</option>)}
      </select>
      <nav class="views" aria-label="Views">
        {VIEWS.map(([name, title, icon]) => (
          <a key={name} href={`#/${api.value.project}/${name}`} aria-current={view.value === name ? "page" : undefined}>
            <Icon name={icon} /><span>{title}</span>
          </a>
        ))}
      </nav>
      <Search />
      <span class={`live ${live.value ? "on" : ""}`} role="status"><i aria-hidden="true" />{live.value ? "Live" : "Offline"}</span>
      <div class="top-actions">
        <button class="icon-button" title="Undo the last turn (Ctrl+Z)" aria-label="Undo the last turn" onClick={acts.undoLast}><Icon name="undo" /></button>
        <button class="icon-button" title="Redo (Shift+Z)" aria-label="Redo" disabled={!redoable.value} onClick={acts.redo}><Icon name="redo" /></button>
        <button class="icon-button" aria-label={isDark() ? "Light colours" : "Dark colours"} title="Dark or light (T)" onClick={() => setTheme(isDark() ? "light" : "dark")}>
          <Icon name={isDark() ? "sun" : "moon"} />
        </button>
        <button class="icon-button" aria-label="Keyboard" title="Keyboard (?)" onClick={() => (helpOpen.value = true)}><Icon name="help" /></button>
      </div>
    </header>
  );
}

const KEYS: [string, string][] = [
  ["J K ↓ ↑", "next, previous"],
  ["⇧↓ ⇧↑", "select a range"],
  ["Home End", "newest, oldest"],
  ["[ ]", "previous, next file"],
  ["U", "undo this step or prompt"],
  ["⇧U", "undo from here"],
  ["R", "restore this state"],
  ["Ctrl Z", "undo the last turn"],
  ["⇧Z", "redo"],
  ["C", "compare"],
  ["S", "side by side or unified"],
  ["/", "search"],
  ["1 2 3", "timeline, compare, storage"],
  ["T", "dark or light"],
];

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = () => void (helpOpen.value = false);
  return (
    <dialog class="dialog help" ref={dialog} onClose={close} aria-labelledby="help-title">
      <header class="dialog-head">
        <h2 id="help-title">Keyboard</h2>
        <button class="icon-button" aria-label="Close" onClick={close}><Icon name="close" /></button>
      </header>
      <dl class="keys">
        {KEYS.map(([keys, what]) => <div key={keys}><dt>{keys.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt><dd>{what}</dd></div>)}
      </dl>
    </dialog>
  );
}

function move(to: number, extend: boolean): void {
  const row = rows.value[Math.max(0, Math.min(rows.value.length - 1, to))];
  if (row) choose(row.key, extend ? "extend" : "show");
}

function onKey(event: KeyboardEvent): void {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (typing || document.querySelector("dialog[open]") || event.altKey || event.metaKey) return;
  const act = keyed(event);
  if (!act) return;
  event.preventDefault();
  act();
}

function keyed(event: KeyboardEvent): (() => void) | null {
  const at = rowIndex.value.get(chosen.value ?? "") ?? 0;
  const { key, shiftKey } = event;
  if (event.ctrlKey) {
    if (key === "z") return acts.undoLast;
    return key === "Z" || key === "y" ? acts.redo : null;
  }
  if (view.value === "timeline") {
    const scrolls = event.target instanceof HTMLElement && event.target.closest(".detail-body");
    if (key === "j" || (key === "ArrowDown" && !scrolls)) return () => move(at + 1, shiftKey);
    if (key === "k" || (key === "ArrowUp" && !scrolls)) return () => move(at - 1, shiftKey);
    if (key === "J") return () => move(at + 1, true);
    if (key === "K") return () => move(at - 1, true);
    if (key === "Home" && !scrolls) return () => move(0, false);
    if (key === "End" && !scrolls) return () => move(rows.value.length - 1, false);
    const inView: Record<string, () => void> = {
      u: acts.undo, U: acts.undoAfter, r: acts.restore, c: acts.compare,
      "]": () => acts.nextFile(1), "[": () => acts.nextFile(-1),
      Escape: () => (detailOpen.value ? closeDetail() : (search.value = "")),
    };
    if (inView[key]) return inView[key];
    if (key === "Enter" && event.target instanceof HTMLElement && event.target.id === "rows") {
      return () => document.querySelector<HTMLElement>(".detail-body")?.focus();
    }
  }
  const anywhere: Record<string, () => void> = {
    Z: acts.redo,
    s: () => setSplit(!split.value),
    t: () => setTheme(isDark() ? "light" : "dark"),
    "/": () => document.querySelector<HTMLElement>("#search")?.focus(),
    "?": () => void (helpOpen.value = true),
    "1": () => go("timeline"), "2": () => go("compare"), "3": () => go("storage"),
  };
  return anywhere[key] ?? null;
}

if (theme.value) document.documentElement.dataset.theme = theme.value;
document.addEventListener("keydown", onKey);
render(<Page />, document.getElementById("page")!);
void start();
