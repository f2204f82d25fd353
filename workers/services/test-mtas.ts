// `npm run test:mtas`: mail to Debian's Postfix, Exim and OpenSMTPD, each limit switched on; arguments go to vitest.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { type MtaPackage, mtaRoot } from './mta-root.ts'

const PACKAGES: readonly MtaPackage[] = ['postfix', 'exim4-daemon-light', 'opensmtpd']

try {
  for (const packageName of PACKAGES) await mtaRoot(packageName)
  const vitest = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url))
  const config = ['--config', 'vitest.slow.config.ts', 'test/slow/mtas', ...process.argv.slice(2)]
  const env = { ...process.env, MTAS: '1' }
  spawn(process.execPath, [vitest, 'run', ...config], { env, stdio: 'inherit' }).on('exit', (code) => {
    process.exitCode = code ?? 1
  })
} catch (error) {
  process.stderr.write(`not run: ${(error as Error).message}\n`)
  process.exitCode = 1
}
