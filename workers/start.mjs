// `npm start`: plain JavaScript, because it has to run before anything is installed.
import { ensureDependencies } from './install.mjs'

ensureDependencies()
const { register } = await import('tsx/esm/api')
register()
const { main } = await import('./demo/main.ts')
process.exitCode = await main(process.argv.slice(2))
