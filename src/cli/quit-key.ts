import type { ReadStream } from 'node:tty'

const CTRL_C = '\u0003'

/**
 * Calls back when `q` or ctrl-c is pressed. On a terminal keys come one by one and ctrl-c is no signal then.
 * @returns what gives the terminal back
 */
export function onQuitKey(stdin: ReadStream, quit: () => void): () => void {
  if (!stdin.isTTY) return () => undefined
  const listen = (keys: Buffer) => {
    const text = keys.toString()
    if (text.includes('q') || text.includes(CTRL_C)) quit()
  }
  stdin.setRawMode(true)
  stdin.on('data', listen)
  return () => {
    stdin.off('data', listen)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
