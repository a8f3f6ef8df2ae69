/**
 * What happened to the files, in words.
 */

/** More are counted and not named. */
const MAX_NAMES = 20

/** A list of files for a line of text; one that is cut says so. */
export function names(files: unknown[], max = MAX_NAMES): string {
  const shown = files.slice(0, max).map(pathText).join(", ")
  return files.length > max ? `${shown} and ${files.length - max} more` : shown
}

/** A path as `ctrlz` writes it: text, or the bytes of a name that is no UTF-8. */
export function pathText(path: any): string {
  return typeof path === "string" ? path : Buffer.from(path.bytes).toString("utf8")
}

/** What an undo, a redo or a restore did, or would do, for people. */
export function reported(report: any, did: string): string {
  const lines = [`${did} ${count(report.done ?? report.actions)}: ${names((report.done ?? report.actions).map(pathOf))}`]
  const left = [...(report.conflicts ?? []), ...(report.kept ?? []), ...(report.ignored ?? [])]
  for (const one of left.slice(0, MAX_NAMES)) lines.push(`stays: ${pathText(one.path)} (${one.why ?? one.text})`)
  if (left.length > MAX_NAMES) lines.push(`and ${left.length - MAX_NAMES} more stay`)
  if (report.outside?.length) lines.push(`changed outside of the project, and left; \`ctrlz undo --outside\` puts it back: ${names(report.outside.map(pathOf))}`)
  if (report.git_hint) lines.push(`your own git, if you want it back too: ${report.git_hint}`)
  return lines.join("\n")
}

export function count(files: unknown[]): string {
  return files.length === 1 ? "1 file" : `${files.length} files`
}

export function pathOf(action: { path: unknown }): unknown {
  return action.path
}
