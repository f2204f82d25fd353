const WAIT = /(?:^|,)\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;[^,]*)?(?:,|$)/i

/** `Prefer: wait=n`: how long the caller wants to wait for the result, seconds; the first one counts. (RFC 7240) */
export function preferredWaitS(field: string | undefined): number | undefined {
  const [, seconds] = WAIT.exec(field ?? '') ?? []
  return seconds === undefined ? undefined : Number(seconds)
}
