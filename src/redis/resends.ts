import { failureKind } from './failures.ts'

/** Thrown for a sent call whose connection was lost before its reply: it may have run. */
export class MayHaveRun {
  /** When it was first sent, or earlier: Redis's time, µs. */
  readonly sentUs: number

  constructor(sentUs: number) {
    this.sentUs = sentUs
  }
}

/** A command, with fields beyond ioredis's types. */
interface SentCommand {
  name: string
  args: unknown[]
  bufferMode?: boolean
  reject: (error: Error) => void
  toWritable(socket: unknown): string | Buffer
  transformReply(reply: unknown): unknown
  /**
   * When it was written, unless Redis refused it. On both clocks: one may be set, the other stops while the machine is
   * suspended.
   */
  writtenAtMs?: number | undefined
  wallAtMs?: number
}

/**
 * From now on, ioredis sends no command of a class a second time once its connection is lost: it asks for Redis's time
 * instead, and the caller gets {@link MayHaveRun}.
 * @param prototype of the class, which extends that of all commands
 */
export function sendOnce(prototype: object): void {
  const commands = prototype as SentCommand
  const { toWritable, transformReply } = commands
  /** The method of commands without a script. */
  const plain = (Object.getPrototypeOf(commands) as SentCommand).toWritable
  // ioredis calls it whenever it writes the command to a connection.
  commands.toWritable = function (this: SentCommand, socket) {
    if (this.writtenAtMs === undefined) {
      noteWrite(this)
      return toWritable.call(this, socket)
    }
    if (this.name !== 'time') askForTime(this)
    return plain.call(this, socket)
  }
  commands.transformReply = function (this: SentCommand, reply) {
    return this.name === 'time' ? mayHaveRunSince(this, reply as unknown[]) : transformReply.call(this, reply)
  }
}

function noteWrite(command: SentCommand): void {
  const { reject } = command
  command.writtenAtMs = performance.now()
  command.wallAtMs = Date.now()
  command.reject = (error) => {
    // It has not run. On a cluster, ioredis sends the same command to the next node.
    if (failureKind(error) === 'refused') command.writtenAtMs = undefined
    reject.call(command, error)
  }
}

function mayHaveRunSince({ writtenAtMs = 0, wallAtMs = 0 }: SentCommand, time: readonly unknown[]): MayHaveRun {
  const [seconds, us] = time.map(String)
  const ageMs = Math.max(performance.now() - writtenAtMs, Date.now() - wallAtMs)
  return new MayHaveRun(Math.floor(Number(seconds) * 1_000_000 + Number(us) - ageMs * 1000))
}

function askForTime(command: SentCommand): void {
  const { reject } = command
  command.name = 'time'
  command.args = []
  command.bufferMode = false
  command.reject = (error) => reject.call(command, mayHaveRun(error))
}

/** A refusal does not mean that nothing has run, because the call was sent before. */
function mayHaveRun(error: unknown): Error {
  const isRefusal = error instanceof Error && failureKind(error) === 'refused'
  if (!isRefusal) return error as Error
  return new Error(`Connection is closed before the reply, and then Redis refused: ${error.message}`, { cause: error })
}

/**
 * A call that tells the script of each attempt whether an earlier one may have run.
 * @param send gets when it was first sent, Redis's µs; undefined if none can have run
 * @param lost of an earlier call for the same
 */
export function untilCertain<T>(
  send: (sentUs?: number) => Promise<T | MayHaveRun>,
  lost?: MayHaveRun,
): () => Promise<T> {
  let sentUs = lost?.sentUs
  return async () => {
    for (;;) {
      const reply = await send(sentUs).catch((error: unknown) => {
        throw sentUs === undefined ? error : mayHaveRun(error)
      })
      if (!(reply instanceof MayHaveRun)) return reply
      sentUs ??= reply.sentUs
    }
  }
}
