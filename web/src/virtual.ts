// Virtual lists: only visible items are in the document.

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import { useLayoutEffect, useReducer, useState } from "preact/hooks";
import type { RefObject } from "preact";

export interface ListOptions {
  count: number;
  scroller: RefObject<HTMLElement | null>;
  size: (index: number) => number;
  keyOf: (index: number) => string;
  overscan?: number;
  /** Space above the list within the scroller, in pixels. */
  margin?: number;
}

export function useVirtual({ count, scroller, size, keyOf, overscan = 10, margin = 0 }: ListOptions) {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: size,
    getItemKey: keyOf,
    overscan,
    scrollMargin: margin,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw(0),
  };
  const [list] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  list.setOptions({ ...list.options, ...options });
  useLayoutEffect(() => list._didMount(), []);
  useLayoutEffect(() => list._willUpdate());
  return list;
}
