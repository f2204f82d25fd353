import type { Order } from './orders.ts'
import { makeCustomer } from './orders.ts'
import type { Random } from './random.ts'

/** A table write of the outbox: a statement of statements.json by name, and its parameters. */
export interface WriteLine {
  kind: 'write'
  statement: string
  parameters: Record<string, unknown>
}

export function orderRow(order: Order): WriteLine {
  return {
    kind: 'write',
    statement: 'record-order',
    parameters: {
      order_number: order.number,
      customer: order.customer.name,
      email: order.customer.address,
      total_cents: order.totalCents,
      placed_at: order.placedAt,
      items: order.items,
    },
  }
}

const pages = ['/', '/shop', '/shop/café-press', '/werkstatt', '/atelier/réparations', '/お便り', '/cart', '/checkout']

export function eventRow(random: Random): WriteLine {
  const name = random.pick(['page_viewed', 'search', 'cart_updated', 'coupon_rejected', 'mail_opened'])
  const details: Record<string, unknown> = { session: random.hex(16), page: random.pick(pages) }
  if (name === 'search') details.query = random.pick(['bol gris', 'Stuhl reparieren', '書見台', 'ceniza', 'łyżka', '🕯️'])
  if (name === 'cart_updated') details.items = random.between(0, 9)
  return { kind: 'write', statement: 'record-event', parameters: { name, details } }
}

export function auditRow(random: Random): WriteLine {
  const actor = makeCustomer(random)
  const [action, note] = random.pick([
    ['password.changed', null],
    ['address.corrected', `"${random.pick(actor.phrases.cities)}" -> "${random.pick(actor.phrases.cities)}"`],
    ['refund.granted', `${random.between(5, 90)}.00; item arrived with a chip, photo in the ticket`],
    ['login.failed', `from 192.0.2.${random.between(1, 254)}; '); drop table orders; --`],
    ['consent.withdrawn', actor.phrases.newsletter.subject],
  ] as const)
  return { kind: 'write', statement: 'record-audit', parameters: { actor: actor.address, action, note } }
}
