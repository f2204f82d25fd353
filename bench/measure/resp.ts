const LINE_END = '\r\n'

/** Where the first request or reply of RESP2 ends: undefined if it has not arrived in full. */
export function endOfMessage(bytes: Buffer, from = 0): number | undefined {
  const line = bytes.indexOf(LINE_END, from)
  if (line === -1) return undefined
  const next = line + LINE_END.length
  const kind = String.fromCharCode(bytes[from] as number)
  if (kind !== '$' && kind !== '*') return next
  const count = Number(bytes.toString('latin1', from + 1, line))
  if (count < 0) return next
  if (kind === '$') return next + count + LINE_END.length <= bytes.length ? next + count + LINE_END.length : undefined
  let at: number | undefined = next
  for (let i = 0; i < count && at !== undefined; i++) at = endOfMessage(bytes, at)
  return at
}

/** The name of the command of a request, in lower case, and its first argument. */
export function commandOf(request: Buffer): [name: string, first: string] {
  const [, , name = '', , first = ''] = request.toString('latin1', 0, 200).split(LINE_END)
  return [name.toLowerCase(), first]
}

/** The name of a command and its arguments. */
export function argumentsOf(request: Buffer): Buffer[] {
  const found: Buffer[] = []
  for (let at = request.indexOf(LINE_END) + LINE_END.length; at < request.length; ) {
    const line = request.indexOf(LINE_END, at)
    const from = line + LINE_END.length
    const to = from + Number(request.toString('latin1', at + 1, line))
    found.push(request.subarray(from, to))
    at = to + LINE_END.length
  }
  return found
}
