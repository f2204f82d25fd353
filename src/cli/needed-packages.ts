import { CommandError } from './cli.ts'
import { EXIT_CODES } from './exit-codes.ts'

const PROGRAM = ['zod', 'pino', 'structured-headers']
const SERVER = [...PROGRAM, 'fastify', 'fastify-plugin', '@fastify/proxy-addr', 'ipaddr.js']

/**
 * The optional packages that commands need, with a version where npm would otherwise install one that is too new.
 * The other commands need none.
 */
export const NEEDED_PACKAGES = {
  metrics: ['prom-client'],
  dashboard: [...SERVER, '@fastify/cookie', 'uplot'],
  gateway: [...SERVER, 'ajv', 'ajv-formats'],
  'worker email': [...PROGRAM, 'nodemailer'],
  'worker db-writes': [...PROGRAM, 'pg'],
  'worker http': [...PROGRAM, 'undici@7'],
} as const satisfies Readonly<Record<string, readonly string[]>>

/**
 * Loads a command or a program.
 * @throws CommandError that names all of its missing packages, so that one `npm install` is enough
 */
export async function loadWithPackages<T>(name: keyof typeof NEEDED_PACKAGES, load: () => Promise<T>): Promise<T> {
  const missing = NEEDED_PACKAGES[name].filter((wanted) => !isInstalled(wanted))
  if (missing.length === 0) return await load()
  const packages = missing.length === 1 ? 'a package that is' : 'packages that are'
  throw new CommandError(EXIT_CODES.failed, `${name} needs ${packages} not installed: npm install ${missing.join(' ')}`)
}

/** The name without the version. */
export function nameOf(wanted: string): string {
  const at = wanted.indexOf('@', 1)
  return at === -1 ? wanted : wanted.slice(0, at)
}

function isInstalled(name: string): boolean {
  try {
    import.meta.resolve(nameOf(name))
    return true
  } catch (error) {
    // An installed package without a main export fails with another code.
    return (error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND'
  }
}
