import { vi } from 'vitest'

/** How a program that ran in this process ended, and what it printed. */
export interface Printed {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
  /** Both, in the order in which they were written. */
  readonly output: string
}

/**
 * Runs a program in this process, which is quicker than one of its own. None of what it prints is shown.
 * @param run resolves with its exit code
 */
export async function printedBy(run: () => Promise<number>): Promise<Printed> {
  const parts: { readonly isError: boolean; readonly text: string }[] = []
  const spies = [process.stdout, process.stderr].map((stream) =>
    vi.spyOn(stream, 'write').mockImplementation((text) => {
      parts.push({ isError: stream === process.stderr, text: String(text) })
      return true
    }),
  )
  try {
    const code = await run()
    const textOf = (some: typeof parts) => some.map(({ text }) => text).join('')
    return {
      code,
      stdout: textOf(parts.filter(({ isError }) => !isError)),
      stderr: textOf(parts.filter(({ isError }) => isError)),
      output: textOf(parts),
    }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}
