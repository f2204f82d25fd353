/** A number and what it counts: "1 line", "2 lines". */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`

const hourMs = 3_600_000

/** A long duration with the precision of an estimate: "about 2.1 hours", "about 31 days". */
export function roughly(ms: number): string {
  const hours = ms / hourMs
  return hours < 48 ? `about ${hours.toFixed(1)} hours` : `about ${Number((hours / 24).toPrecision(2))} days`
}
