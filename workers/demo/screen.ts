import { createLogUpdate } from 'log-update'
import { panel, plainText, type QueueProgress } from './draw.ts'

/** The output of a run. */
export interface Screen {
  /** Prints a line that stays. */
  say(line: string): void
  /** Shows the current state of the run: redrawn in place on a terminal, at most one line a second elsewhere. */
  show(heading: string, queues: readonly QueueProgress[]): void
  /** Leaves the last frame on the terminal and continues below it. */
  rest(): void
}

const plainEveryMs = 1000

function liveScreen(out: NodeJS.WriteStream): Screen {
  const draw = createLogUpdate(out, { defaultWidth: 80 })
  return {
    say: (line) => {
      draw.clear()
      out.write(`${line}\n`)
    },
    show: (heading, queues) => {
      // A terminal of unknown size reports 0.
      const columns = out.columns || 80
      draw([heading, ...queues.flatMap((queue) => ['', ...panel(queue, columns)])].join('\n'))
    },
    rest: () => draw.done(),
  }
}

function plainScreen(out: NodeJS.WritableStream): Screen {
  let lastAtMs = Number.NEGATIVE_INFINITY
  return {
    say: (line) => {
      out.write(`${line}\n`)
    },
    show: (heading, queues) => {
      if (performance.now() - lastAtMs < plainEveryMs) return
      lastAtMs = performance.now()
      out.write(`${heading} | ${queues.map(plainText).join(' | ')}\n`)
    },
    rest: () => {},
  }
}

/** A live screen on a terminal; plain lines in a pipe, a file or a CI run. */
export function openScreen(out: NodeJS.WriteStream, env: NodeJS.ProcessEnv): Screen {
  const live = out.isTTY && !env.CI && env.TERM !== 'dumb'
  return live ? liveScreen(out) : plainScreen(out)
}
