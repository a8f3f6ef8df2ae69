/**
 * Messages about files.
 */
import { pathText } from "../../clients/typescript/src/path"
import type * as wire from "../../clients/typescript/src/wire"

/** Maximum number of names in a list. Further ones are only counted. */
const MAX_NAMES = 20

type Report = wire.UndoReport | wire.RestoreReport

/** Joins the paths of files for display. */
export function names(files: { path: wire.Path }[], max = MAX_NAMES): string {
  const shown = files.slice(0, max).map((file) => pathText(file.path)).join(", ")
  return files.length > max ? `${shown} and ${files.length - max} more` : shown
}

/** Describes the result or the plan of an undo, a redo or a restore. */
export function reported(report: Report, did: string): string {
  const lines = [`${did} ${count(report.done.length)}: ${names(report.done)}`]
  const left = [...notUndone(report), ...report.kept.map(({ path, text }) => ({ path, why: text }))]
  for (const { path, why } of left.slice(0, MAX_NAMES)) lines.push(`skipped: ${pathText(path)} (${why})`)
  if (left.length > MAX_NAMES) lines.push(`${left.length - MAX_NAMES} more skipped`)
  if ("outside" in report && report.outside?.length) {
    lines.push(`changed outside of the project and left unchanged (\`ctrlz undo --outside\` includes it): ${names(report.outside)}`)
  }
  if ("git_hint" in report && report.git_hint) lines.push(`your git moved too; to move it back: ${report.git_hint}`)
  return lines.join("\n")
}

function notUndone(report: Report): { path: wire.Path; why: string }[] {
  return "conflicts" in report ? [...report.conflicts, ...report.ignored] : []
}

export function count(files: number): string {
  return files === 1 ? "1 file" : `${files} files`
}
