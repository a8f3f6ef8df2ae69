// Conversion of paths between JavaScript and the wire. Runs in Node, Bun and browsers.
//
// On the wire, a path that is not UTF-8 is `{"bytes": […]}`. In JavaScript it is a string in which
// each invalid byte is a lone surrogate from U+DC80 to U+DCFF, as with Python's `surrogateescape`.
// Valid UTF-8 never contains these, so the conversion is lossless in both directions.

const LONE_SURROGATE = /\p{Surrogate}/u;
const ESCAPED_BYTE = /[\uDC80-\uDCFF]/;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();

/** Returns the bytes of a path. */
export function encodePath(path: string): Uint8Array {
  if (!LONE_SURROGATE.test(path)) return encoder.encode(path);
  const bytes: number[] = [];
  for (const character of path) {
    const code = character.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) bytes.push(code - 0xdc00);
    else if (code >= 0xd800 && code <= 0xdfff) throw new TypeError(`not a path: ${JSON.stringify(path)}`);
    else bytes.push(...encoder.encode(character));
  }
  return Uint8Array.from(bytes);
}

/** Returns the path with these bytes. */
export function pathFromBytes(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    return escaped(bytes);
  }
}

/** Returns a path for display, with invalid bytes replaced by U+FFFD. */
export function pathText(path: string): string {
  return LONE_SURROGATE.test(path) ? lossy.decode(encodePath(path)) : path;
}

function escaped(bytes: Uint8Array): string {
  let path = "";
  for (let at = 0; at < bytes.length; ) {
    const length = characterLength(bytes, at);
    path += length
      ? strict.decode(bytes.subarray(at, at + length))
      : String.fromCharCode(0xdc00 + (bytes[at] ?? 0));
    at += length || 1;
  }
  return path;
}

/** Returns the length in bytes of the character at `at`, or 0 if the bytes are invalid. */
function characterLength(bytes: Uint8Array, at: number): number {
  for (const length of [1, 2, 3, 4]) {
    try {
      if (at + length <= bytes.length && strict.decode(bytes.subarray(at, at + length))) return length;
    } catch {
      continue;
    }
  }
  return 0;
}

/** Converts a value for the wire: escaped paths become `{"bytes": […]}`. */
export function toWire(value: unknown): unknown {
  if (typeof value === "string") {
    if (!LONE_SURROGATE.test(value)) return value;
    if (!ESCAPED_BYTE.test(value)) throw new TypeError(`not well-formed text: ${JSON.stringify(value)}`);
    return { bytes: [...encodePath(value)] };
  }
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toWire(item)]));
}

/** Parses JSON from the wire: `{"bytes": […]}` becomes an escaped path. */
export function parseWire(text: string): unknown {
  const value: unknown = JSON.parse(text);
  // Few answers contain such a path, and converting takes longer than parsing.
  return text.includes('{"bytes":[') ? fromWire(value) : value;
}

function fromWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(fromWire);
  if (typeof value !== "object" || value === null) return value;
  if ("bytes" in value && Array.isArray(value.bytes)) return pathFromBytes(Uint8Array.from(value.bytes));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fromWire(item)]));
}
