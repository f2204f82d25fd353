import { expect, test } from 'vitest'
import { findFreePort } from '../../workers/services/free-port.ts'

test('no port is given twice while its server may only be stopped for a moment, here or in a file that runs beside', async () => {
  const ports: number[] = []
  for (let i = 0; i < 400; i++) ports.push(await findFreePort())
  expect(new Set(ports).size).toBe(400)
  expect(new Set(ports.map((port) => port % 16)).size).toBe(1)
  expect(Math.max(...ports)).toBeLessThan(30_000)
})

test('the bus of a node has no port that an outgoing connection may have', async () => {
  for (let i = 0; i < 20; i++) expect((await findFreePort('cluster node')) + 10_000).toBeLessThan(32_768)
})
