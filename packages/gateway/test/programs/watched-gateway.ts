import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { runGateway } from '../../src/program/program.ts'

// The gateway program; asked by its parent, it says how much memory it uses after a full collection.
setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

process.on('message', () => {
  collect()
  const { heapUsed, external, rss } = process.memoryUsage()
  process.send?.({ type: 'memory', bytes: heapUsed + external, rss })
})
const code = await runGateway([], process.env)
process.disconnect()
process.exit(code)
