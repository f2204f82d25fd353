import type { DeadLetter } from '../backend/dead-letters.ts'
import { plainText } from '../plain-text.ts'
import type { Cli } from './cli.ts'

/** Maximum length of a reason in a table, in characters. */
const SHOWN_CHARACTERS = 60

type Shown = Omit<DeadLetter, 'data' | 'opts' | 'stacktrace'>

/** Letters, one line each. */
export function letterTable(cli: Cli, letters: readonly (Shown & { readonly letterId: string })[]): string {
  return cli.table(
    ['letter', 'queue', 'job', 'name', 'failed', 'attempts', 'redriven', 'why'],
    letters.map((letter) => [
      plainText(letter.letterId),
      plainText(letter.queueName),
      plainText(letter.id),
      plainText(letter.name),
      new Date(letter.finishedOn).toISOString(),
      `${letter.attemptsMade}`,
      `${letter.redriven}`,
      plainText(cut(letter.failedReason)),
    ]),
  )
}

/** One letter in full. */
export function letterText(cli: Cli, letter: DeadLetter): string {
  const { data, opts, stacktrace } = letter
  const time = (ms: number | undefined) => (ms === undefined ? '—' : new Date(ms).toISOString())
  const rows = [
    ['job', `${plainText(letter.id)} ${plainText(letter.name)} in ${plainText(letter.queueName)}`],
    ['why', plainText(letter.failedReason)],
    ['added', time(letter.timestamp)],
    ['last began', time(letter.processedOn)],
    ['failed', time(letter.finishedOn)],
    ['attempts', `${letter.attemptsMade}, began ${letter.attemptsStarted}, throttled ${letter.throttled}`],
    ['redriven', `${letter.redriven}`],
  ]
  const traces = stacktrace.flatMap((trace) => ['', ...trace.split('\n').map(plainText)])
  return [cli.table([], rows), '', 'options', indented(opts), 'data', indented(data), ...traces].join('\n')
}

function indented(value: unknown): string {
  const text = JSON.stringify(value, null, 2) ?? 'nothing'
  return text
    .split('\n')
    .map((line) => `  ${plainText(line)}`)
    .join('\n')
}

function cut(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text
}
