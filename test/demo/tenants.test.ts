import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { tenantsOf } from '../../workers/demo/tenants/load.ts'
import { figuresOf, tenantPlot, tenantTable } from '../../workers/demo/tenants/report.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { startDemo } from './demo-process.ts'

const tenants = tenantsOf(3, 100, 2000)
const mail = (tenant: string, atMs: number, waitMs: number) => ({ tenant, atMs, waitMs })
const run = {
  title: 'groups',
  mails: [mail('tenant-01', 100, 100), mail('tenant-02', 200, 50), mail('tenant-01', 1500, 1400)],
  excess: 0,
}

test('the load is as large as asked, skewed, and ascending in time', () => {
  const many = tenantsOf(20, 1000, 20_000)
  const counts = many.map(({ addedAtMs }) => addedAtMs.length)
  expect(Math.abs(counts.reduce((sum, count) => sum + count) - 1000)).toBeLessThanOrEqual(20)
  expect(counts).toEqual(counts.toSorted((one, other) => other - one))
  expect(counts.at(-1)).toBeGreaterThanOrEqual(1)
  for (const { addedAtMs } of many) {
    expect(addedAtMs).toEqual(addedAtMs.toSorted((one, other) => one - other))
    expect(addedAtMs.at(-1)).toBeLessThanOrEqual(10_000)
  }
  expect(many[0]!.addedAtMs.at(-1)).toBe(0)
})

test('rate and share are those of the window, the longest wait that of the run', () => {
  expect(figuresOf(run, 'tenant-01', 1000)).toEqual({ perSecond: 1, share: 0.5, longestWaitMs: 1400 })
  expect(figuresOf(run, 'tenant-03', 1000)).toEqual({ perSecond: 0, share: 0, longestWaitMs: 0 })
  const [titles, heads, , first] = tenantTable(tenants, [run], 1000).split('\n')
  expect(titles).toMatch(/^ +groups$/)
  expect(heads).toMatch(/^tenant +mails +rate +share +longest wait$/)
  expect(first).toMatch(/^tenant-01 +\d+ +1\.0\/s +50\.0% +1\.40 s$/)
})

test('the plot has a bar per tenant and run, and no tag has an attribute twice', () => {
  const svg = tenantPlot(tenants, [run, run], 'Longest wait')
  expect([...svg.matchAll(/height="8"/g)]).toHaveLength(6)
  for (const [tag] of svg.matchAll(/<[a-z][^>]*>/g)) {
    const names = [...tag.matchAll(/ ([\w:-]+)="/g)].map(([, name]) => name)
    expect(new Set(names).size, tag).toBe(names.length)
  }
})

describe.skipIf(process.platform !== 'linux')('npm start -- --tenants', () => {
  test('shows each tenant in one line and in groups; small ones no longer wait for the large one', async () => {
    const file = join(temporaryFolder(), 'tenants.svg')
    const demo = startDemo('--tenants', '6', '--seconds', '4', '--rate', '40/s', '--workers', '2', '--plot', file)
    expect(await demo.exitCode, demo.output).toBe(0)
    const row = demo.output.split('\n').find((line) => line.startsWith('tenant-06 '))
    const [alone, grouped] = [...(row ?? '').matchAll(/([\d.]+) s(?: |$)/g)].map(([, text]) => Number(text))
    expect(alone).toBeGreaterThan(2)
    expect(grouped).toBeLessThan(1)
    expect(demo.output).toContain('No departure above the bound, every mail delivered once.')
    expect(readFileSync(file, 'utf8')).toContain('tenant-06')
    await expect.poll(() => [...demo.processes().values()], { timeout: 60_000 }).toEqual([])
    await expect.poll(() => demo.leftFiles(), { timeout: 60_000 }).toEqual([])
  })
})
