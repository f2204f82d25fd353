import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, test, vi } from 'vitest'
import { KINDS, serve } from './support/servers.ts'

/** What a server answers to a request with those lines. */
async function answerTo(origin: string, lines: readonly string[]): Promise<string> {
  const { hostname, port } = new URL(origin)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.end([`GET / HTTP/1.1`, ...lines, 'Connection: close', '', ''].join('\r\n'))
  return text(socket)
}

// Requests of the Fetch API have no lines any more: what made them has looked at these.
describe.each(KINDS.filter((kind) => kind !== 'fetch'))('%s', (kind) => {
  test.each([[['Host: a.example', 'Host: b.example']], [['host: a.example', 'X-Between: 1', 'HOST: a.example']]])(
    '%j is 400, and no middleware is entered',
    async (lines) => {
      const enter = vi.fn(async () => ({}))
      const answer = await answerTo(await serve(kind, { enter }), lines)
      expect(answer).toMatch(/^HTTP\/1\.1 400 /)
      expect(answer).toContain('The request has several Host fields.')
      expect(enter).not.toHaveBeenCalled()
    },
  )

  test('one is none too many', async () => {
    const answer = await answerTo(await serve(kind, { enter: async () => ({}) }), ['Host: a.example', 'X-Host: b'])
    expect(answer).toMatch(/^HTTP\/1\.1 200 /)
  })
})
