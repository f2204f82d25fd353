import { setTimeout as sleep } from 'node:timers/promises'
import { ATTACKS, askWithDistinctKeys } from './attacks.ts'

// Attacks a gateway from a process of its own: `<name of an attack> <url>` again and again until it is killed, or
// `keys <url> <how many>` once.
const TIMES = 5
const PAUSE_MS = 100

const [, , name = '', url = '', keys = '0'] = process.argv
const attack = ATTACKS.find(([known]) => known === name)?.[1]
process.send?.({ type: 'ready' })
if (attack) {
  for (;;) {
    await attack(url, TIMES)
    await sleep(PAUSE_MS)
  }
}
process.send?.({ type: 'done', counts: [...(await askWithDistinctKeys(url, Number(keys)))] })
