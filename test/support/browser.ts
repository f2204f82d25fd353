import { type Browser, chromium } from 'playwright-core'
import { findProgram } from '../../workers/services/find-program.ts'
import { fetchAptChromium } from './browser-apt.ts'

/** First the one that never has a window: it takes half of the CPU time. */
const NAMES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
/** Disables the browser's own network traffic. Without a sandbox it also runs as root; it only opens our own pages. */
const FLAGS = [
  ...['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-dev-shm-usage'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
]

/** A browser, or why there is none. */
export type BrowserFound = { readonly path: string } | { readonly missing: string }

/**
 * Looks for Chromium: CHROMIUM_PATH, on PATH, then Debian's, downloaded with apt-get into the project's cache.
 * @throws Error on CI, where apt-get is available but fails: tests are not skipped there
 */
export async function findBrowser(env: NodeJS.ProcessEnv = process.env): Promise<BrowserFound> {
  const path = env.CHROMIUM_PATH || findProgram(NAMES, env)
  if (path) return { path }
  const hint = 'install chromium, or set CHROMIUM_PATH'
  if (!findProgram(['apt-get'], env)) return { missing: `no chromium on PATH and no apt-get to download it: ${hint}` }
  try {
    return { path: await fetchAptChromium() }
  } catch (error) {
    if (env.CI === 'true') throw error
    const { message } = error as Error
    return { missing: `no chromium on PATH, and apt-get gave none (${message.split('\n')[0]}): ${hint}` }
  }
}

/** Starts the browser, without a window. */
export function launchBrowser(path: string): Promise<Browser> {
  return chromium.launch({ executablePath: path, args: FLAGS })
}
