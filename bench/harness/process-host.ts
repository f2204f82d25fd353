import type { Answer, Call } from './processes.ts'

// Answers the calls of the parent with the methods of a program, and exits with the parent.

type Method = (...parameters: readonly unknown[]) => Promise<unknown>

const { methods } = (await import(process.argv[2] as string)) as { methods: Readonly<Record<string, Method>> }

async function answer({ call, method, parameters }: Call): Promise<Answer> {
  try {
    return { call, result: await methods[method]?.(...parameters) }
  } catch (error) {
    return { call, error: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  }
}

process.on('message', (call: Call) => void answer(call).then((reply) => process.send?.(reply)))
process.once('disconnect', () => process.exit(0))
