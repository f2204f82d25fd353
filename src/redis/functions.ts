import type { Command, Redis } from 'ioredis'
import { checkArgument } from '../call-options.ts'
import { isOutOfMemory, isPassing } from './failures.ts'
import { sendOnce } from './resends.ts'

/** Whether scripts go to Redis as functions of a library where possible, or never. */
export type FunctionsOption = 'auto' | 'never'

/**
 * Scripts as Redis Functions: a library that has all of them. Its name is a digest of its text, so versions coexist.
 */
export interface Library {
  readonly name: string
  readonly text: string
}

/** A script as defined on a client. */
export interface ClientScript {
  /** Its command name on the client. */
  readonly name: string
  /** undefined: each call begins with the number. */
  readonly numberOfKeys: number | undefined
  /** Composed only for clients that use functions. */
  library(): Library
  /** Its name in the library. */
  functionName(): string
  /** The same as a text for EVAL, composed at its first use. */
  text(): string
  /** Whether a resent call may come too late: see {@link sendOnce}. */
  readonly isSentOnce: boolean
  /** Whether to send it as a text if Redis takes no writes. A text is refused only at its first write. */
  readonly isTriedAsText: boolean
}

export interface DefiningClient {
  readonly isCluster?: boolean
  defineCommand(name: string, definition: { lua: string; numberOfKeys?: number | undefined }): void
}

type CommandClass = new (name: string, args: readonly unknown[], options: object) => Command

/** ioredis's form of a script. */
interface Script {
  readonly Command: CommandClass
  execute(container: Container, args: unknown[], options: object, callback?: unknown): Promise<unknown>
}

interface ScriptClass {
  new (lua: string, numberOfKeys: number | undefined, keyPrefix: string): Script
}

/** A wait for the answer to a command. Calls are resent behind it. */
interface Wait {
  readonly answer: Promise<boolean>
  /** Resolves once they are resent: later calls follow them. */
  readonly over: Promise<unknown>
}

/** A client of ioredis, or a pipeline of one. */
interface Container {
  readonly isPipeline?: boolean
  readonly [MODE]?: FunctionsOption
  /** By the server of a library. */
  [WAITS]?: Map<string, Wait>
  sendCommand(command: Command): Promise<unknown>
}

// Set on the client itself: BullMQ's code hands out a proxy of it.
const MODE = Symbol.for('sluice:functions')
const WAITS = Symbol('waits')

/** How long a client sends texts once Redis has refused its functions, ms. */
const REFUSED_MS = 60_000
/** How often a call is resent because its function is gone. */
const MAX_ATTEMPTS = 20

/** Until when clients send texts, ms on the monotonic clock. */
const refusedUntilMs = new WeakMap<object, number>()
let isSaid = false

const IS_OFF = process.env.SLUICE_FUNCTIONS === 'never'

/** @throws InvalidInputError */
export function checkFunctionsOption(option: unknown): void {
  const isRight = option === undefined || option === 'auto' || option === 'never'
  checkArgument(isRight, 'functions', "'auto' or 'never'", option)
}

/** Functions are used on this client unless an option or the environment (`SLUICE_FUNCTIONS=never`) says otherwise. */
export function useFunctions(client: object, option: FunctionsOption | undefined): void {
  if (option === 'never') Object.assign(client, { [MODE]: option })
}

/**
 * Defines a script as a command of a client. Redis runs it as a function, or as a text where functions may not be
 * loaded. Clients other than those of ioredis send texts.
 */
export function defineScript(client: DefiningClient, script: ClientScript): void {
  const { name, numberOfKeys } = script
  const { scriptsSet, options } = client as { scriptsSet?: Record<string, Script>; options?: { keyPrefix?: string } }
  if (!scriptsSet) {
    client.defineCommand(name, { lua: script.text(), numberOfKeys })
    return
  }
  // ioredis hashes the text for each client that it is defined on: here only the name.
  client.defineCommand(name, { lua: name, numberOfKeys })
  const made = scriptsSet[name] as Script
  made.execute = executeOf(script, made, options?.keyPrefix ?? '')
  // While the program starts: a first decision of a limit has little time.
  if (mayUse(client as unknown as Container)) script.library()
}

function executeOf(script: ClientScript, made: Script, keyPrefix: string): Script['execute'] {
  const FunctionCommand = class extends (Object.getPrototypeOf(made.Command) as CommandClass) {}
  if (script.isSentOnce) sendOnce(FunctionCommand.prototype)
  const keys = script.numberOfKeys === undefined ? [] : [script.numberOfKeys]
  let functionName: string | undefined
  let text: Script | undefined
  const asText: Script['execute'] = (container, args, options, callback) => {
    text ??= textScript(script, made, keyPrefix)
    return text.execute(container, args, options, callback)
  }
  return (client, args, options, callback) => {
    if (client.isPipeline || !mayUse(client)) return asText(client, args, options, callback)
    functionName ??= script.functionName()
    const all = [functionName, ...keys, ...args]
    const newCall = () => new FunctionCommand('fcall', all, keyPrefix ? { ...options, keyPrefix } : options)
    const send = (attempt: number, command: Command): Promise<unknown> => {
      // Before the send, which returns this promise.
      command.promise = command.promise.catch(async (error: Error) => {
        const obstacle = obstacleOf(error)
        if (obstacle === 'not loaded' && attempt < MAX_ATTEMPTS) {
          const load = ['function', 'load', script.library().text]
          if (await behindAll(client, script.library(), command, load)) return send(attempt + 1, newCall())
        } else if (obstacle) {
          // Otherwise a later call, which goes as a text at once, would overtake earlier calls that are still to be
          // refused.
          await behindAll(client, script.library(), command, ['ping'])
          refuse(client, error)
        } else if (!(isRefusedWrite(error) || (script.isTriedAsText && takesNoWrites(error)))) throw error
        return asText(client, args, options)
      })
      return client.sendCommand(command)
    }
    const call = newCall()
    const waits = waitAt(client, script.library(), call)
    if (!waits) return send(1, call)
    return waits.then(() => (mayUse(client) ? send(1, call) : asText(client, args, options)))
  }
}

function textScript({ numberOfKeys, isSentOnce, text }: ClientScript, made: Script, keyPrefix: string): Script {
  const script = new (made.constructor as ScriptClass)(text(), numberOfKeys, keyPrefix)
  if (isSentOnce) sendOnce(script.Command.prototype)
  return script
}

function mayUse(client: Container): boolean {
  if (IS_OFF || client[MODE] === 'never') return false
  const untilMs = refusedUntilMs.get(client)
  return untilMs === undefined || untilMs <= performance.now()
}

/**
 * Why Redis ran no function: its library is missing, the server has no functions, or this user may not call or load
 * them. undefined for any other error.
 */
export function obstacleOf({ message }: Error): 'not loaded' | 'no functions' | 'not permitted' | undefined {
  if (message.includes('Function not found')) return 'not loaded'
  const [, denial] =
    /^(NOPERM .* to run the|ERR unknown command) ['`](?:fcall|function(?:\|load)?)['`]/i.exec(message) ?? []
  if (denial === undefined) return undefined
  return denial.startsWith('NOPERM') ? 'not permitted' : 'no functions'
}

/** Whether a function that usually writes nothing tried to write: then it has not run. */
function isRefusedWrite({ message }: Error): boolean {
  return message.includes('Write commands are not allowed from read-only scripts')
}

/** Whether Redis takes no writes, and so ran nothing of a function that may write. */
function takesNoWrites({ message }: Error): boolean {
  return /^(OOM|READONLY|MISCONF|NOREPLICAS) /.test(message)
}

/** The server where a library is loaded: on a cluster each master has functions of its own. */
function placeOf({ name }: Library, call: Command): string {
  return `${name} ${call.getSlot()}`
}

/**
 * Resolves once all refused calls are resent: a QUIT may follow them.
 * @param servers of the client's commands
 */
export async function untilSentAgain(client: object, servers: readonly Pick<Redis, 'ping'>[]): Promise<void> {
  for (;;) {
    // Answered behind all calls: one that found no library has asked for it by then.
    await Promise.all(servers.map((server) => server.ping()))
    const waits = (client as Container)[WAITS]
    if (!waits?.size) return
    await Promise.all([...waits.values()].map(({ over }) => over))
  }
}

function waitAt(client: Container, library: Library, call: Command): Promise<unknown> | undefined {
  const all = client[WAITS]
  return all?.size ? all.get(placeOf(library, call))?.over : undefined
}

/**
 * Sends a command behind all unanswered calls. Later ones wait until these, and it, are answered.
 * @param call that was refused, for the node that answered it
 * @returns whether Redis ran the command; false: not now, so the call goes as a text
 */
function behindAll(client: Container, library: Library, call: Command, words: string[]): Promise<boolean> {
  client[WAITS] ??= new Map()
  const all = client[WAITS]
  const place = placeOf(library, call)
  const known = all.get(place)
  if (known) return known.answer
  const answer = answered(client, call, words)
  // One step after the answer, for which all resent calls wait.
  const over = answer.then(() => {})
  all.set(place, { answer, over })
  // Before waiting calls continue: none comes in between.
  void over.then(() => all.delete(place))
  return answer
}

/** Only from the node of that call: others may not answer. */
async function answered(client: Container, call: Command, [name, ...args]: string[]): Promise<boolean> {
  const command = new (Object.getPrototypeOf(call.constructor) as CommandClass)(name as string, args, {})
  command.getSlot = () => call.getSlot()
  try {
    await client.sendCommand(command)
    return true
  } catch (reason) {
    const error = reason as Error
    if (error.message.includes('already exists')) return true
    if (isOutOfMemory(error) || !isPassing(error)) refuse(client, error)
    return false
  }
}

function refuse(client: Container, { message }: Error): void {
  refusedUntilMs.set(client, performance.now() + REFUSED_MS)
  if (isSaid) return
  isSaid = true
  process.emitWarning(
    `Redis refuses functions (${message}): scripts run with EVAL, which takes Redis more time. ` +
      "An operator may load them (sluice functions load), or set functions: 'never'",
    { code: 'SLUICE_NO_FUNCTIONS' },
  )
}
