import { Presets, SingleBar } from 'cli-progress'

/** How far a command is: on stderr, and only on a terminal. */
export interface Progress {
  update(done: number): void
  end(): void
}

/** @param total undefined where nobody knows yet */
export function startProgress(total: number | undefined, stream: NodeJS.WriteStream = process.stderr): Progress {
  if (!stream.isTTY) return { update: () => undefined, end: () => undefined }
  const counted = '{bar} {percentage}% · {value} of {total} jobs · {duration_formatted} · {eta_formatted} left'
  const format = total === undefined ? '{value} jobs · {duration_formatted}' : counted
  const bar = new SingleBar(
    { format, stream, hideCursor: true, noTTYOutput: false, etaBuffer: 200 },
    Presets.shades_grey,
  )
  bar.start(total ?? 0, 0)
  return {
    update: (done) => bar.update(done),
    end: () => bar.stop(),
  }
}
