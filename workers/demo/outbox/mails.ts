import { type Customer, makeCustomer, money, type Order } from './orders.ts'
import type { Random } from './random.ts'

/** A mail of the outbox, with the fields that the email worker takes. */
export interface MailLine {
  kind: 'email'
  from: string
  to: string
  cc?: string
  subject: string
  text: string
  html?: string
}

const fill = (pattern: string, values: Readonly<Record<string, string>>): string =>
  pattern.replace(/\{(\w+)\}/g, (_, word: string) => {
    const value = values[word]
    if (value === undefined) throw new Error(`no value for {${word}} in "${pattern}"`)
    return value
  })

const escapeHtml = (text: string): string =>
  text.replace(/[&<>"]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]!)

function letter(customer: Customer, from: string, subject: string, paragraphs: readonly string[]): MailLine {
  const { hello, bye } = customer.phrases
  const text = [fill(hello, { name: customer.name }), ...paragraphs, bye].join('\n\n')
  return { kind: 'email', from, to: `"${customer.name}" <${customer.address}>`, subject, text }
}

function withHtml(mail: MailLine, language: string): MailLine {
  const blocks = mail.text.split('\n\n').map((block) => `<p>${escapeHtml(block).replaceAll('\n', '<br>')}</p>`)
  const direction = language === 'ar' ? ' dir="rtl"' : ''
  return { ...mail, html: `<html lang="${language}"${direction}><body>${blocks.join('')}</body></html>` }
}

const shop = '"Linden & Moss" <shop@linden-and-moss.example>'

export function orderConfirmation(order: Order): MailLine {
  const { phrases } = order.customer
  const rows = order.items.map((i) => `${i.quantity} × ${i.name} (${i.sku})  ${money(i.quantity * i.cents, phrases)}`)
  const intro = fill(phrases.order.intro, { date: order.placedAt.slice(0, 10) })
  const total = `${phrases.order.total}: ${money(order.totalCents, phrases)}`
  const subject = fill(phrases.order.subject, { order: order.number })
  return withHtml(letter(order.customer, shop, subject, [intro, rows.join('\n'), total]), phrases.tag)
}

export function invoice(order: Order): MailLine {
  const { phrases } = order.customer
  const values = {
    invoice: `R-${order.number.slice(3)}`,
    amount: money(order.totalCents, phrases),
    order: order.number,
    due: order.dueOn,
  }
  const { subject, body } = phrases.invoice
  const mail = letter(order.customer, shop, fill(subject, values), [fill(body, values)])
  return { ...mail, cc: 'accounts@linden-and-moss.example' }
}

export function shippingNotice(order: Order, random: Random): MailLine {
  const { shipped, cities } = order.customer.phrases
  const values = { order: order.number, city: random.pick(cities), tracking: random.hex(12).toUpperCase() }
  return letter(order.customer, shop, fill(shipped.subject, values), [fill(shipped.body, values)])
}

export function passwordReset(random: Random): MailLine {
  const customer = makeCustomer(random)
  const { subject, body } = customer.phrases.reset
  const link = `https://shop.example.com/reset?token=${random.hex(40)}`
  return letter(customer, '"Linden & Moss" <account@linden-and-moss.example>', subject, [fill(body, { link })])
}

export function signInCode(random: Random): MailLine {
  const { address, phrases } = makeCustomer(random)
  const text = fill(phrases.code.body, { code: String(random.between(100_000, 999_999)) })
  return { kind: 'email', from: 'account@linden-and-moss.example', to: address, subject: phrases.code.subject, text }
}

/** Some newsletters are short, with a paragraph or two, and some have all paragraphs. */
export function newsletter(random: Random): MailLine {
  const customer = makeCustomer(random)
  const { subject, paragraphs } = customer.phrases.newsletter
  const edition = paragraphs.slice(0, random.between(1, paragraphs.length))
  const mail = letter(customer, '"Linden & Moss" <letters@linden-and-moss.example>', subject, edition)
  return random.oneIn(2) ? withHtml(mail, customer.phrases.tag) : mail
}
