/**
 * A test host for Marvin's hooks, because Marvin is not in any registry. It emits the same events in
 * the same order as the real program, and awaits the same ones, according to a recording.
 *
 *     bun marvin_host.ts [--headless] [--continue] PROMPT | /COMMAND
 *
 * It is also a small agent: it calls the model at $MODEL_URL and has the tools write, edit and bash.
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

type Context = ReturnType<typeof ctx>
type Handler = (event: object, ctx: Context) => unknown
type Command = { handler(args: string, ctx: Context): Promise<void> }
type ToolCall = { id: string; function: { name: string; arguments: string } }
type Message = { role: string; content: unknown; tool_calls?: ToolCall[]; tool_call_id?: string }
type Input = { path: string; content: string; oldText: string; newText: string; command: string }

const handlers = new Map<string, Handler[]>()
const commands = new Map<string, Command>()
const hook = {
  on: (name: string, handler: Handler) => handlers.set(name, [...(handlers.get(name) ?? []), handler]),
  registerCommand: (name: string, command: Command) => commands.set(name, command),
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

/** Emits an event that Marvin awaits. A hook that throws here would break the agent. */
async function emit(type: string, event: object = {}): Promise<unknown> {
  let result: unknown
  for (const handler of handlers.get(type) ?? []) result = (await handler({ type, sessionId: session, ...event }, ctx())) ?? result
  return result
}
/** Emits an event that Marvin does not await, and does not emit in headless mode. */
const announce = (type: string, event: object = {}) => void (isHeadless || emit(type, event))

const tools: Record<string, (input: Input) => Promise<string>> = {
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
    // Marvin announces a first id and never uses it again.
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
  await commands.get(name)?.handler(args.join(" "), ctx())
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
  const messages: Message[] = [{ role: "user", content: parts }]
  for (let turnIndex = 0; ; turnIndex++) {
    announce("turn.start", { turnIndex })
    const reply = await ask(messages)
    messages.push(reply)
    const calls = reply.tool_calls ?? []
    messages.push(...(await Promise.all(calls.map(runTool))))
    announce("turn.end", { turnIndex, message: reply, toolResults: [] })
    if (!calls.length) break
  }
  console.log(messages.at(-1)?.content)
  announce("agent.end", { messages })
}

async function ask(messages: Message[]): Promise<Message> {
  const tool = (name: string, keys: string[]) => {
    const properties = Object.fromEntries(keys.map((key) => [key, { type: "string" }]))
    return { type: "function", function: { name, parameters: { type: "object", properties, required: keys } } }
  }
  const offered = [tool("write", ["path", "content"]), tool("edit", ["path", "oldText", "newText"]), tool("bash", ["command"])]
  const body = JSON.stringify({ model: "fake", messages, tools: offered, stream: false })
  const answer = await fetch(`${process.env.MODEL_URL}/v1/chat/completions`, { method: "POST", body, headers: { "content-type": "application/json" } })
  const { choices } = (await answer.json()) as { choices: { message: Message }[] }
  return choices[0].message
}

async function runTool(call: ToolCall): Promise<Message> {
  const input: Input = JSON.parse(call.function.arguments)
  const event = { toolName: call.function.name, toolCallId: call.id, input }
  const verdict = (await emit("tool.execute.before", event)) as { block?: boolean } | undefined
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
