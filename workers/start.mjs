// `npm start`: plain JavaScript, because it has to run before anything is installed.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { compiledDemo } from './demo/compiled.mjs'
import { ensureDependencies } from './install.mjs'

ensureDependencies()
const programs = await compiledDemo()
const { main } = await import(pathToFileURL(join(programs, 'workers', 'demo', 'main.mjs')).href)
process.exitCode = await main(process.argv.slice(2), programs)
