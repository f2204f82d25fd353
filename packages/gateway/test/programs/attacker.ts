import { setTimeout as sleep } from 'node:timers/promises'
import { ATTACKS, askWithKeys } from '../support/attacks.ts'

// Attacks a gateway from a process of its own: `<name of an attack> <url>` again and again until it is killed, or
// `keys <url> <how many requests> <of how many keys>` once.
const TIMES = 5
const PAUSE_MS = 100

const [, , name = '', url = '', times = '0', keys = times] = process.argv
const attack = ATTACKS.find(([known]) => known === name)?.[1]
process.send?.({ type: 'ready' })
if (attack) {
  for (;;) {
    await attack(url, TIMES)
    await sleep(PAUSE_MS)
  }
}
process.send?.({ type: 'done', counts: [...(await askWithKeys(url, Number(times), Number(keys)))] })
