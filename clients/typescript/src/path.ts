// Paths as JavaScript has them and as the wire has them.
//
// On the wire a path that is not UTF-8 is `{"bytes": […]}`. Here it is a string all the same: each
// byte that does not fit becomes one lone surrogate, U+DC80 to U+DCFF, which no UTF-8 text has.
// So lists of paths are lists of strings, survive JSON, and can be handed back as they are.

const LONE_SURROGATE = /\p{Surrogate}/u;
const ESCAPED_BYTE = /[\uDC80-\uDCFF]/;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes of a path, for `node:fs`, where the path may not be UTF-8. */
export function pathBytes(path: string): Buffer {
  if (!LONE_SURROGATE.test(path)) return Buffer.from(path);
  const parts: Buffer[] = [];
  for (const character of path) {
    const code = character.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) parts.push(Buffer.of(code - 0xdc00));
    else if (code >= 0xd800 && code <= 0xdfff) throw new TypeError(`no path: ${JSON.stringify(path)}`);
    else parts.push(Buffer.from(character));
  }
  return Buffer.concat(parts);
}

/** The path with these bytes. */
export function pathFromBytes(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch {
    return escaped(bytes);
  }
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

/** How many bytes the character at `at` has, 0 if there is none. */
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

/** A value for the wire: strings that stand for other bytes become those bytes. */
export function toWire(value: unknown): unknown {
  if (typeof value === "string") {
    if (!LONE_SURROGATE.test(value)) return value;
    if (!ESCAPED_BYTE.test(value)) throw new TypeError(`no text: ${JSON.stringify(value)}`);
    return { bytes: [...pathBytes(value)] };
  }
  if (Array.isArray(value)) return value.map(toWire);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toWire(item)]));
}

/** A value from the wire: bytes become the strings that stand for them. */
export function fromWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(fromWire);
  if (typeof value !== "object" || value === null) return value;
  if ("bytes" in value && Array.isArray(value.bytes)) return pathFromBytes(Uint8Array.from(value.bytes));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fromWire(item)]));
}
