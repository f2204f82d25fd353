import { domainToASCII } from 'node:url'
import addressparser from 'nodemailer/lib/addressparser'
import { InvalidPayloadError } from 'sluice-programs'
import { z } from 'zod'

/** A mailbox in parts, sent exactly as checked, without being parsed again. */
export interface Mailbox {
  readonly name: string
  readonly address: string
}

/** A message in the form in which it is sent. */
export interface OutgoingMessage {
  readonly from: Mailbox
  readonly to: readonly Mailbox[]
  readonly cc: readonly Mailbox[]
  readonly subject: string
  readonly text?: string
  readonly html?: string
}

export interface MessageOptions {
  /** Accept lists of addresses in `to` and `cc`; otherwise each holds exactly one. */
  readonly allowMultipleRecipients: boolean
}

const MAX_HEADER_CHARACTERS = 998
const MAX_LIST_CHARACTERS = 32_768
/** RFC 5321 §4.5.3.1: 64 for the local part, 1 for the @, 255 for the domain. */
const MAX_ADDRESS_BYTES = 320
const MAX_RECIPIENTS = 100

// No quoted local parts, comments, routes or address literals: parsers disagree about them.
const PLAIN_ADDRESS = /^[^\s\p{Cc}"(),:;<>@[\\\]]+@[^\s\p{Cc}"(),:;<>@[\\\]]+$/u

function headerText(maxCharacters: number) {
  return z
    .string()
    .min(1)
    .max(maxCharacters)
    .regex(/^\P{Cc}*$/u, 'expected one line without control characters')
}

const bodyText = z.string().refine((text) => !text.includes('\0'), 'expected text without NUL')

const mailSchema = z
  .strictObject({
    from: headerText(MAX_HEADER_CHARACTERS),
    to: headerText(MAX_LIST_CHARACTERS),
    cc: headerText(MAX_LIST_CHARACTERS).optional(),
    subject: headerText(MAX_HEADER_CHARACTERS),
    text: bodyText.optional(),
    html: bodyText.optional(),
  })
  .refine(({ text, html }) => text !== undefined || html !== undefined, 'expected a text, an html or both')

/** The data of an email job: plain strings only. Any other field is refused. */
export type Mail = z.input<typeof mailSchema>

/**
 * Checks the data of an email job and reads its six fields.
 * @throws InvalidPayloadError naming each invalid field, without its value.
 */
export function readMessage(data: unknown, { allowMultipleRecipients }: MessageOptions): OutgoingMessage {
  const parsed = mailSchema.safeParse(data)
  if (!parsed.success) throw new InvalidPayloadError('the mail', parsed.error.issues.map(describeIssue))
  const { from, to, cc, subject, text, html } = parsed.data
  const problems: string[] = []
  const recipients = allowMultipleRecipients ? MAX_RECIPIENTS : 1
  const [sender] = readMailboxes('from', from, 1, problems)
  const toList = readMailboxes('to', to, recipients, problems)
  const ccList = cc === undefined ? [] : readMailboxes('cc', cc, recipients, problems)
  if (problems.length > 0 || sender === undefined) throw new InvalidPayloadError('the mail', problems)
  return {
    from: sender,
    to: toList,
    cc: ccList,
    subject,
    ...(text !== undefined && { text }),
    ...(html !== undefined && { html }),
  }
}

/** The Message-ID of a job's mail: the same for every delivery of the job, in the sender's own domain. */
export function messageIdOf(effectId: string, { from }: OutgoingMessage): string {
  const domain = domainToASCII(from.address.slice(from.address.lastIndexOf('@') + 1))
  return `<${effectId}@${domain || 'localhost'}>`
}

function readMailboxes(field: string, text: string, most: number, problems: string[]): Mailbox[] {
  const entries = addressparser(text)
  const mailboxes = entries.flatMap((entry) => (entry.group === undefined ? [entry] : []))
  const expected = most === 1 ? 'exactly one address' : `1 to ${most} addresses`
  if (mailboxes.length !== entries.length) problems.push(`${field}: expected ${expected}, got a group`)
  else if (mailboxes.length < 1 || mailboxes.length > most) {
    problems.push(`${field}: expected ${expected}, got ${mailboxes.length}`)
  } else if (countAtSigns(text) !== mailboxes.length || !mailboxes.every(({ address }) => isPlainAddress(address))) {
    problems.push(`${field}: expected a plain address such as "Name <user@example.com>"`)
  }
  return mailboxes.map(({ name, address }) => ({ name, address }))
}

function isPlainAddress(address: string): boolean {
  return Buffer.byteLength(address) <= MAX_ADDRESS_BYTES && PLAIN_ADDRESS.test(address)
}

// The parser is lenient: it drops routes, comments and stray brackets. With exactly one @ per address it has nothing to
// drop. An @ in a quoted name does not count. NaN if a quote is not closed: parsers disagree about what follows it.
function countAtSigns(text: string): number {
  let count = 0
  let isQuoted = false
  for (let i = 0; i < text.length; i++) {
    const character = text[i]
    if (character === '"') isQuoted = !isQuoted
    else if (isQuoted && character === '\\') i += 1
    else if (!isQuoted && character === '@') count += 1
  }
  return isQuoted ? Number.NaN : count
}

// zod's messages name the expected and the actual type; none of those used here repeats a value.
function describeIssue(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') {
    return `expected only from, to, cc, subject, text and html, got ${issue.keys.length} other field(s) as well`
  }
  return issue.path.length > 0 ? `${issue.path.join('.')}: ${issue.message}` : issue.message
}
