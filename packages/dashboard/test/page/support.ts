import { type FastifyInstance, fastify } from 'fastify'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe } from 'vitest'
import { findBrowser, launchBrowser } from '../../../../test/support/browser.ts'
import { PerTest } from '../../../../test/support/concurrent.ts'
import { type DashboardOptions, dashboard } from '../../src/index.ts'

const found = await findBrowser()
if ('missing' in found) process.stdout.write(`Tests of the dashboard's page are skipped: ${found.missing}\n`)

/** Tests that need a browser; skipped where there is none. */
export const describePage = describe.skipIf('missing' in found)

/** A page that is open, and what went wrong in it. */
export interface Opened {
  readonly page: Page
  readonly url: string
  /** Errors on its console, and those that nobody caught. */
  readonly errors: string[]
  /** Requests to another place than the dashboard. */
  readonly foreign: string[]
}

interface OpenTerms {
  readonly options: DashboardOptions
  /** What follows the address: `?queue=emails`. */
  readonly query?: string
  readonly mount?: string
  readonly context?: BrowserContextOptions
}

/** One browser for a file, with dashboards to look at, all closed after their tests. Call it within {@link describePage}. */
export class PageStage {
  #browser: Browser | undefined
  readonly #open = new PerTest<() => Promise<unknown>>()

  constructor() {
    beforeAll(async () => {
      if ('path' in found) this.#browser = await launchBrowser(found.path)
    })
    afterEach(async () => {
      for (const close of this.#open.list.splice(0).reverse()) await close()
    })
    afterAll(() => this.#browser?.close())
  }

  /** Serves a dashboard. */
  async serve(
    options: DashboardOptions,
    { mount = '', port = 0 } = {},
  ): Promise<{ app: FastifyInstance; url: string }> {
    const app = fastify({ routerOptions: { maxParamLength: 1024 } })
    await app.register(dashboard(options), { prefix: mount })
    const address = await app.listen({ host: '127.0.0.1', port })
    this.#open.list.push(() => app.close())
    return { app, url: `${address}${mount}/` }
  }

  /** Serves a dashboard and opens a page of it. */
  async open({ options, query = '', mount = '', context = {} }: OpenTerms): Promise<Opened> {
    const { url } = await this.serve(options, { mount })
    return this.look(url, query, context)
  }

  /** Opens a page. Without motion, unless a test is about it: a browser without a GPU draws each frame on the CPU. */
  async look(url: string, query = '', options: BrowserContextOptions = {}): Promise<Opened> {
    const usual: BrowserContextOptions = { viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce' }
    const context = await (this.#browser as Browser).newContext({ ...usual, ...options })
    this.#open.list.push(() => context.close())
    const page = await context.newPage()
    // Below the test's own: then the error names what was waited for.
    page.setDefaultTimeout(60_000)
    const errors: string[] = []
    const foreign: string[] = []
    page.on('console', (message) => message.type() === 'error' && errors.push(message.text()))
    page.on('pageerror', (error) => errors.push(String(error)))
    page.on('request', (request) => !request.url().startsWith(url) && foreign.push(request.url()))
    await page.goto(url + query)
    return { page, url, errors, foreign }
  }
}
