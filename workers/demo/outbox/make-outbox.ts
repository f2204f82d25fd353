/**
 * Writes examples/outbox.ndjson. Run it again after a change: `node --import tsx workers/demo/outbox/make-outbox.ts`.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import {
  invoice,
  type MailLine,
  newsletter,
  orderConfirmation,
  passwordReset,
  shippingNotice,
  signInCode,
} from './mails.ts'
import { makeOrder } from './orders.ts'
import { createRandom, type Random } from './random.ts'
import { auditRow, eventRow, orderRow, type WriteLine } from './writes.ts'

const ofEachKind = 750

/** The mails and rows of one event in the shop, in order. */
function occurrence(random: Random, sequence: number): (MailLine | WriteLine)[] {
  const kind = random.between(1, 10)
  if (kind <= 4) {
    const order = makeOrder(random, sequence)
    const lines = [orderRow(order), orderConfirmation(order), eventRow(random)]
    if (random.oneIn(2)) lines.push(invoice(order), auditRow(random))
    if (random.oneIn(2)) lines.push(shippingNotice(order, random))
    return lines
  }
  if (kind <= 6) return [passwordReset(random), auditRow(random)]
  if (kind <= 7) return [signInCode(random), eventRow(random)]
  if (kind <= 8) return [newsletter(random), eventRow(random)]
  return [eventRow(random), auditRow(random)]
}

/** The whole example as NDJSON: as many mails as table writes; the same seed gives the same text. */
export function makeOutbox(seed: number): string {
  const random = createRandom(seed)
  const left = { email: ofEachKind, write: ofEachKind }
  const lines: string[] = []
  for (let sequence = 1; left.email + left.write > 0; sequence++) {
    for (const line of occurrence(random, sequence)) {
      if (left[line.kind] === 0) continue
      left[line.kind]--
      lines.push(JSON.stringify(line))
    }
  }
  return `${lines.join('\n')}\n`
}

/** The seed of the outbox that ships with the project. */
export const exampleSeed = 20_261

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('../../../examples/outbox.ndjson', import.meta.url), makeOutbox(exampleSeed))
}
