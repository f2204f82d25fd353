import { createHash } from 'node:crypto'

/** A page as one document: its styles and scripts are part of it, so that it is shown after a single response. */
export interface PageDocument {
  /** All that is the same for every caller; {@link endOf} follows. */
  readonly text: string
  /** Directives that let in what is part of the document, by its hash, and nothing else that is. (CSP 3, section 8.4) */
  readonly policy: string
}

const PAGE = 'index.html'
const STYLE_LINK = /<link rel="stylesheet" href="assets\/([^"]+)">\n */g
const SCRIPT = /<script( type="module")? src="assets\/[^"/]+\/([^"]+)"><\/script>/g
/** A picture that says no more than the text beside it. */
const PICTURE = /<img src="assets\/[^"/]+\/([^"/]+)" alt=""([^<>]*)>/g
const END = '</body>\n</html>\n'
/** What would end an element too early. */
const MARKUP = /<\/(?:script|style)|<!--/i

/**
 * @param files what the page names, by its name in the page
 * @param version of the files that are not part of it
 */
export function documentOf(files: ReadonlyMap<string, string>, version: string): PageDocument {
  const textOf = (name: string) => inlineText(name, files.get(name))
  const page = files.get(PAGE) as string
  const style = [...page.matchAll(STYLE_LINK)].map(([, name]) => textOf(name as string)).join('\n')
  const scripts: string[] = []
  const text = page
    .replaceAll(STYLE_LINK, '')
    .replaceAll('"assets/', `"assets/${version}/`)
    .replaceAll(SCRIPT, (_, type = '', name) => {
      const script = textOf(name).replaceAll(LATER, `import("./assets/${version}/$1")`)
      scripts.push(script)
      return `<script${type}>${script}</script>`
    })
    .replaceAll(PICTURE, (_, name, size) => textOf(name).trim().replace('<svg', `<svg aria-hidden="true"${size}`))
    // A function, since the text may contain what a replacement would replace.
    .replace('</head>', () => `<style>${style}</style></head>`)
  const policy = `script-src 'self' ${scripts.map(hashOf).join(' ')}; style-src 'self' ${hashOf(style)}`
  return { text: text.slice(0, text.lastIndexOf('</body>')), policy }
}

function inlineText(name: string, text: string | undefined): string {
  if (text === undefined) throw new Error(`expected the file ${name}, which the page names`)
  if (MARKUP.test(text)) throw new Error(`expected no markup in ${name}, which becomes part of the page`)
  return text
}

function hashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`
}

/**
 * The end of a document, with what the page would ask first.
 * @param answers by their paths
 */
export function endOf(answers: Readonly<Record<string, unknown>>): string {
  // Nothing else could end the element. (HTML, section 4.12.1.3)
  const json = JSON.stringify(answers).replaceAll('<', '\\u003c')
  return `<script type="application/json" id="answers">${json}</script>${END}`
}

/** A script that a module loads when it is needed. */
const LATER = /import\(["'`]\.\/([\w.-]+)["'`]\)/g
/** What a minified module begins and ends with. */
const IMPORTS = /^import\{([^{}]*)\}from["'`]\.\/main\.js["'`];/
const EXPORTS = /export\{([^{}]*)\};?\n?$/

/**
 * The scripts of the pages: for all queues; for one queue, where nothing is loaded later but the charts; and what
 * the first loads later. No module can import one that is part of a document: what it exports, it leaves to the window.
 */
export function pageModules(web: ReadonlyMap<string, string>): { fleet: string; queue: string; later: string } {
  const replaced = (name: string, pattern: RegExp, by: (names: readonly (readonly [string, string])[]) => string) => {
    const text = web.get(name) as string
    if (!pattern.test(text)) throw new Error(`expected ${name} to match ${pattern}`)
    return text.replace(pattern, (_, names: string) => by(names.split(',').map(asPair)))
  }
  return {
    fleet: replaced('main.js', EXPORTS, (names) => `window.sluice={${names.map(([its, as]) => `${as}:${its}`)}};`),
    queue: web.get('whole.js') as string,
    later: replaced('queue-view.js', IMPORTS, (names) => {
      return `const{${names.map(([its, as]) => `${its}:${as}`)}}=window.sluice;`
    }),
  }
}

/** `a as b`, or a single name. */
function asPair(text: string): readonly [name: string, as: string] {
  const [name = '', as = name] = text.split(' as ')
  return [name, as]
}
