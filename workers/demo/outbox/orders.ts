import { goods } from './goods.ts'
import { european, type Phrases } from './languages.ts'
import { world } from './languages-world.ts'
import type { Random } from './random.ts'

const languages: readonly Phrases[] = [...european, ...world]

export interface Customer {
  name: string
  address: string
  phrases: Phrases
}

export interface Order {
  number: string
  customer: Customer
  placedAt: string
  dueOn: string
  items: readonly { sku: string; name: string; quantity: number; cents: number }[]
  totalCents: number
}

/** A customer with a name in their own script and a mailbox in a domain reserved for examples. */
export function makeCustomer(random: Random): Customer {
  const phrases = random.pick(languages)
  const domain = random.pick(['example.com', 'example.org', 'example.net', 'mail.example.com', 'post.example.org'])
  return { name: random.pick(phrases.names), address: `${phrases.tag}.${random.hex(6)}@${domain}`, phrases }
}

/** An order of one to nine different goods, numbered by `sequence`. */
export function makeOrder(random: Random, sequence: number): Order {
  const first = random.between(0, goods.length - 1)
  const count = random.oneIn(12) ? random.between(5, 9) : random.between(1, 4)
  const items = Array.from({ length: count }, (_, index) => {
    const [sku, name, cents] = goods[(first + index) % goods.length]!
    return { sku, name, quantity: random.between(1, 3), cents }
  })
  const day = random.between(1, 28)
  const at = (unit: number): string => String(unit).padStart(2, '0')
  return {
    number: `LM-${20_000 + sequence}`,
    customer: makeCustomer(random),
    placedAt: `2026-10-${at(day)}T${at(random.between(0, 23))}:${at(random.between(0, 59))}:${at(random.between(0, 59))}Z`,
    dueOn: `2026-11-${at(day)}`,
    items,
    totalCents: items.reduce((sum, item) => sum + item.quantity * item.cents, 0),
  }
}

/** `cents` in the format of the customer's language. */
export function money(cents: number, { decimal, money: pattern }: Phrases): string {
  const amount = `${Math.floor(cents / 100)}${decimal}${String(cents % 100).padStart(2, '0')}`
  return pattern.replace('{n}', amount)
}
