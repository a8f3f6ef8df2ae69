/**
 * A host for Marvin's hooks, since Marvin is in no registry: the same events in the same order, the
 * same ones awaited and the same ones only announced, as recorded from the real program.
 *
 *     bun marvin_host.ts [--headless] [--continue] PROMPT | /COMMAND
 *
 * In between it is a small agent: it asks the model at $MODEL_URL and runs write, edit and bash.
 */
import { spawn } from "node:child_process"
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { randomUUID } from "node:crypto"

const words = process.argv.slice(2)
const isHeadless = words.includes("--headless")
const goesOn = words.includes("--continue")
const prompt = words.at(-1) as string
const configDir = join(process.env.HOME as string, ".config/marvin")
const lastSession = join(configDir, "last-session")

const handlers = new Map<string, ((event: any, ctx: any) => unknown)[]>()
const commands = new Map<string, any>()
const hook = {
  on: (name: string, handler: any) => handlers.set(name, [...(handlers.get(name) ?? []), handler]),
  registerCommand: (name: string, command: any) => commands.set(name, command),
  send() {}, sendUserMessage() {}, steer() {}, followUp() {}, isIdle: () => true, sendMessage() {},
  appendEntry() {}, registerMessageRenderer() {}, registerTool() {}, registerShortcut() {},
}

let session: string | null = null
const ctx = () => ({
  cwd: process.cwd(), configDir, sessionId: session, hasUI: !isHeadless,
  ui: {
    confirm: async (title: string, text: string) => (console.log(`confirm: ${title} ${text}`), true),
    notify: (text: string, level: string) => console.log(`notify ${level}: ${text}`),
    select: async () => undefined,
  },
})

/** What Marvin waits for. A hook that throws here would break the agent. */
async function emit(type: string, event: any = {}): Promise<any> {
  let result
  for (const handler of handlers.get(type) ?? []) result = (await handler({ type, sessionId: session, ...event }, ctx())) ?? result
  return result
}
/** What it only announces, and never in headless use. */
const announce = (type: string, event: any = {}) => void (isHeadless || emit(type, event))

const tools: Record<string, (input: any) => Promise<string>> = {
  async write({ path, content }) {
    writeFileSync(path, content)
    return "written"
  },
  async edit({ path, oldText, newText }) {
    writeFileSync(path, readFileSync(path, "utf8").replace(oldText, newText))
    return "edited"
  },
  bash: ({ command }) =>
    new Promise((resolve, reject) => {
      const child = spawn("bash", ["-c", command], { detached: true })
      let out = ""
      child.stdout.on("data", (piece) => (out += piece))
      child.on("close", (code) => (code ? reject(new Error(`exit ${code}`)) : resolve(out)))
    }),
}

for (const file of existsSync(join(configDir, "hooks")) ? readdirSync(join(configDir, "hooks")).sort() : []) {
  if (/\.(ts|js)$/.test(file)) await (await import(join(configDir, "hooks", file))).default(hook)
}

await emit("app.start")
if (goesOn && existsSync(lastSession)) {
  session = readFileSync(lastSession, "utf8")
  void emit("session.resume")
} else {
  if (!isHeadless) {
    // The first id is announced, and never used again.
    session = randomUUID()
    void emit("session.start")
    await emit("agent.before_start", { prompt })
    void emit("session.start")
  }
  session = randomUUID()
  void emit("session.start")
  if (!isHeadless) void emit("session.start")
}
writeFileSync(lastSession, session as string)

if (prompt.startsWith("/")) {
  const [name, ...args] = prompt.slice(1).split(" ")
  await commands.get(name).handler(args.join(" "), ctx())
} else {
  await turn()
}
announce("session.shutdown")
process.exit(0)

async function turn() {
  await emit("agent.before_start", { prompt })
  const parts = [{ type: "text", text: prompt }]
  await emit("chat.message", { input: { sessionId: session, text: prompt }, output: { parts } })
  announce("agent.start")
  const messages: any[] = [{ role: "user", content: parts }]
  for (let turnIndex = 0; ; turnIndex++) {
    announce("turn.start", { turnIndex })
    const reply = await ask(messages)
    messages.push(reply)
    const calls = reply.tool_calls ?? []
    messages.push(...(await Promise.all(calls.map(runTool))))
    announce("turn.end", { turnIndex, message: reply, toolResults: [] })
    if (!calls.length) break
  }
  console.log(messages.at(-1).content)
  announce("agent.end", { messages })
}

async function ask(messages: any[]): Promise<any> {
  const tool = (name: string, keys: string[]) => {
    const properties = Object.fromEntries(keys.map((key) => [key, { type: "string" }]))
    return { type: "function", function: { name, parameters: { type: "object", properties, required: keys } } }
  }
  const offered = [tool("write", ["path", "content"]), tool("edit", ["path", "oldText", "newText"]), tool("bash", ["command"])]
  const body = JSON.stringify({ model: "fake", messages, tools: offered, stream: false })
  const answer = await fetch(`${process.env.MODEL_URL}/v1/chat/completions`, { method: "POST", body, headers: { "content-type": "application/json" } })
  return ((await answer.json()) as any).choices[0].message
}

async function runTool(call: any): Promise<any> {
  const event = { toolName: call.function.name, toolCallId: call.id, input: JSON.parse(call.function.arguments) }
  const verdict = await emit("tool.execute.before", event)
  let content = "blocked"
  let isError = true
  if (!verdict?.block) {
    try {
      content = await tools[event.toolName](event.input)
      isError = false
    } catch (error) {
      content = String(error)
    }
  }
  await emit("tool.execute.after", { ...event, content: [{ type: "text", text: content }], isError })
  return { role: "tool", tool_call_id: call.id, content }
}
