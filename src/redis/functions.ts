import type { Redis } from 'ioredis'
import { checkArgument } from '../call-options.ts'
import { isOutOfMemory, isPassing } from './failures.ts'
import { sendOnce } from './resends.ts'

/** Whether scripts go to Redis as functions of a library wherever that is possible, or never. */
export type FunctionsOption = 'auto' | 'never'

/** Scripts as Redis Functions: a library that has all of them. Its name is made of its text, so versions stand side by side. */
export interface Library {
  readonly name: string
  readonly text: string
}

/** A script as it is defined on a client. */
export interface ClientScript {
  /** Of the command on the client. */
  readonly name: string
  readonly numberOfKeys: number
  readonly library: Library
  /** Its name in the library. */
  readonly functionName: string
  /** The same as a text for EVAL, composed when that is first needed. */
  text(): string
  /** Whether it may come too late if it is sent again: see {@link sendOnce}. */
  readonly isSentOnce: boolean
}

export interface DefiningClient {
  readonly isCluster?: boolean
  defineCommand(name: string, definition: { readonly lua: string; readonly numberOfKeys: number }): void
}

interface SentCommand {
  promise: Promise<unknown>
  /** Of a cluster. */
  getSlot(): number | null
}

type CommandClass = new (name: string, args: readonly unknown[], options: object) => SentCommand

/** What ioredis makes of a script. */
interface Script {
  readonly Command: CommandClass
  execute(container: Container, args: unknown[], options: object, callback?: unknown): Promise<unknown>
}

interface ScriptClass {
  new (lua: string, numberOfKeys: number, keyPrefix: string): Script
}

/** A client of ioredis, or a pipeline of one. */
interface Container {
  readonly isPipeline?: boolean
  readonly [MODE]?: FunctionsOption
  /** Libraries that are being loaded, by their place. */
  [LOADS]?: Map<string, Promise<boolean>>
  sendCommand(command: SentCommand): Promise<unknown>
}

// Of the client itself: BullMQ's code hands out a proxy of it.
const MODE = Symbol.for('sluice:functions')
const LOADS = Symbol('loads')

/** How long a client sends texts once Redis has refused its functions, ms. */
const REFUSED_MS = 60_000
/** How often a call is sent again because its function is gone. */
const MAX_ATTEMPTS = 20

/** Until when clients send texts, ms on the monotonic clock. */
const refusedUntilMs = new WeakMap<object, number>()
let isSaid = false

const IS_OFF = process.env.SLUICE_FUNCTIONS === 'never'

/** @throws InvalidInputError */
export function checkFunctionsOption(option: unknown): void {
  checkArgument(
    option === undefined || option === 'auto' || option === 'never',
    'functions',
    "'auto' or 'never'",
    option,
  )
}

/** Functions are used on this client unless an option or the environment (`SLUICE_FUNCTIONS=never`) says otherwise. */
export function useFunctions(client: object, option: FunctionsOption): void {
  if (option === 'never') Object.assign(client, { [MODE]: option })
}

/**
 * Defines a script as a command of a client: Redis runs it as a function; where functions may not be loaded, as a text.
 * Clients other than those of ioredis send texts.
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
}

function executeOf(script: ClientScript, made: Script, keyPrefix: string): Script['execute'] {
  const FunctionCommand = class extends (Object.getPrototypeOf(made.Command) as CommandClass) {}
  if (script.isSentOnce) sendOnce(FunctionCommand.prototype)
  let text: Script | undefined
  const asText: Script['execute'] = (container, args, options, callback) => {
    text ??= textScript(script, made, keyPrefix)
    return text.execute(container, args, options, callback)
  }
  return (client, args, options, callback) => {
    if (client.isPipeline || !mayUse(client)) return asText(client, args, options, callback)
    const all = [script.functionName, script.numberOfKeys, ...args]
    const newCall = () => new FunctionCommand('fcall', all, keyPrefix ? { ...options, keyPrefix } : options)
    const send = (attempt: number, command: SentCommand): Promise<unknown> => {
      // Before it is sent, as that returns this promise.
      command.promise = command.promise.catch(async (error: Error) => {
        if (!isUnknownFunction(error)) {
          if (isFunctionsRefusal(error)) refuse(client, error)
          else if (!isRefusedWrite(error)) throw error
        } else if (attempt < MAX_ATTEMPTS && (await loaded(client, script.library, command))) {
          return send(attempt + 1, newCall())
        }
        return asText(client, args, options)
      })
      return client.sendCommand(command)
    }
    // Behind those that found no library, in their order.
    const call = newCall()
    const underWay = loadUnderWay(client, script.library, call)
    return underWay ? underWay.then(() => send(1, call)) : send(1, call)
  }
}

function textScript({ numberOfKeys, isSentOnce, text }: ClientScript, made: Script, keyPrefix: string): Script {
  const script = new (made.constructor as ScriptClass)(text(), numberOfKeys, keyPrefix)
  if (isSentOnce) sendOnce(script.Command.prototype)
  return script
}

function mayUse(client: Container): boolean {
  if (IS_OFF || client[MODE] === 'never') return false
  return (refusedUntilMs.get(client) ?? 0) <= performance.now()
}

function isUnknownFunction({ message }: Error): boolean {
  return message.includes('Function not found')
}

/** Whether Redis has no functions, or does not let this user call or load them. */
function isFunctionsRefusal({ message }: Error): boolean {
  return /^(NOPERM .* to run the|ERR unknown command) ['`](fcall|function(\|load)?)['`]/i.test(message)
}

/** Whether a function that usually writes nothing was to write: then it has not. */
function isRefusedWrite({ message }: Error): boolean {
  return message.includes('Write commands are not allowed from read-only scripts')
}

/** Where a library is loaded: on a cluster each master has functions of its own. */
function placeOf({ name }: Library, call: SentCommand): string {
  return `${name} ${call.getSlot()}`
}

/**
 * Resolves once all calls that found no library are sent again: behind these a QUIT may be sent.
 * @param servers to which the client's commands go
 */
export async function untilSentAgain(client: object, servers: readonly Pick<Redis, 'ping'>[]): Promise<void> {
  for (;;) {
    // Answered behind all calls: one that found no library has asked for it by then.
    await Promise.all(servers.map((server) => server.ping()))
    const underWay = (client as Container)[LOADS]
    if (!underWay?.size) return
    await Promise.all(underWay.values())
  }
}

function loadUnderWay(client: Container, library: Library, call: SentCommand): Promise<boolean> | undefined {
  const all = client[LOADS]
  return all?.size ? all.get(placeOf(library, call)) : undefined
}

/**
 * @param wanted the call whose node lacks the library
 * @returns whether the library is there now; false: not now, so the call goes as a text
 */
function loaded(client: Container, library: Library, wanted: SentCommand): Promise<boolean> {
  client[LOADS] ??= new Map()
  const all = client[LOADS]
  const place = placeOf(library, wanted)
  const load = all.get(place) ?? loadAt(client, library, wanted).finally(() => all.delete(place))
  all.set(place, load)
  return load
}

/** Only on the node of that call: others may not answer. */
async function loadAt(client: Container, { text }: Library, wanted: SentCommand): Promise<boolean> {
  const command = new (Object.getPrototypeOf(wanted.constructor) as CommandClass)('function', ['load', text], {})
  command.getSlot = () => wanted.getSlot()
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
    `Redis refuses functions (${message}): scripts are sent as texts, which takes Redis more time. ` +
      "An operator may load them (sluice functions load), or set functions: 'never'",
    { code: 'SLUICE_NO_FUNCTIONS' },
  )
}
