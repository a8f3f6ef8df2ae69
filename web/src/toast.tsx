// Short messages at the bottom of the page that disappear after a while.

import { signal } from "@preact/signals";
import { Icon } from "./parts";

interface Toast {
  text: string;
  action?: { name: string; act: () => void };
}

const current = signal<Toast | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

export function toast(text: string, action?: Toast["action"]): void {
  current.value = { text, action };
  clearTimeout(timer);
  timer = setTimeout(hide, action ? 20_000 : 6_000);
}

const hide = () => void (current.value = null);

export function Toasts() {
  const shown = current.value;
  const act = () => {
    hide();
    shown?.action?.act();
  };
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown && (
        <div class="toast">
          <Icon name="check" />
          <span>{shown.text}</span>
          {shown.action && <button class="button" onClick={act}>{shown.action.name}</button>}
          <button class="icon-button" aria-label="Dismiss" onClick={hide}><Icon name="close" /></button>
        </div>
      )}
    </div>
  );
}
