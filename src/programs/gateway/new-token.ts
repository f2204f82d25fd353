import { newToken } from '../../http/index.ts'
import { EXIT } from '../run.ts'

const NAME = /^[A-Za-z0-9][\w.@-]{0,63}$/

/** Makes a token: prints it, and the entry that stands for it in a token file. @returns the exit code */
export function printNewToken(args: readonly string[]): number {
  const [name, ...others] = args
  if (name === undefined || !NAME.test(name) || others.length > 0) {
    process.stderr.write('expected --new-token NAME, the name being 1 to 64 letters, digits and _.@-\n')
    return EXIT.usage
  }
  const { token, entry } = newToken(name)
  process.stdout.write(`token, for its holder alone: ${token}\nentry, for TOKEN_FILE: ${JSON.stringify(entry)}\n`)
  return EXIT.stopped
}
