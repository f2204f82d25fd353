// `npm start`: plain JavaScript, because it has to run before anything is installed.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { compiledDemo } from './demo/compiled.mjs'
import { ensureDependencies } from './install.mjs'
import { ensurePage } from './page.mjs'

ensureDependencies()
process.exitCode = await start().catch((error) => {
  // npm's record of what is installed names packages whose folders may be gone.
  if (error?.code !== 'ERR_MODULE_NOT_FOUND') throw error
  process.stderr.write(`npm start: ${error.message.split('\n', 1)[0]}: install all packages with npm ci\n`)
  return 1
})

async function start() {
  await ensurePage()
  const programs = await compiledDemo()
  const { main } = await import(pathToFileURL(join(programs, 'workers', 'demo', 'main.mjs')).href)
  return main(process.argv.slice(2), programs)
}
