import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { HOLD_CAUSES } from '../../../src/departure/departure.ts'
import type { RateCause } from '../../../src/queue/meter-state.ts'
import { ROOT } from '../../../test/package/code-blocks.ts'
import { METRICS } from '../src/create-metrics.ts'
import { labelsOf, mistakesIn } from './support/promql.ts'

const FOLDER = join(ROOT, 'docs', 'monitoring')
const read = (...path: string[]) => readFileSync(join(ROOT, ...path), 'utf8')

const duration = z.string().regex(/^(\d+(ms|[smhdwy]))+$/)
const labelName = z.string().regex(/^[a-zA-Z_]\w*$/)
const rule = z.strictObject({
  alert: labelName,
  expr: z.string(),
  for: duration.optional(),
  labels: z.strictObject({ severity: z.enum(['critical', 'warning']) }),
  annotations: z.strictObject({
    summary: z.string(),
    description: z.string(),
    runbook_url: z.string().startsWith('docs/runbook.md#'),
  }),
})
const rulesFile = z.strictObject({ groups: z.array(z.strictObject({ name: z.string(), rules: z.array(rule).min(1) })) })
const { groups } = rulesFile.parse(parse(read('docs', 'monitoring', 'prometheus-alerts.yml'), { strict: true }))
const rules = groups.flatMap((group) => group.rules)

const panelType = z.looseObject({
  id: z.number(),
  type: z.enum(['row', 'stat', 'timeseries', 'heatmap']),
  title: z.string(),
  gridPos: z.strictObject({ x: z.number(), y: z.number(), w: z.number(), h: z.number() }),
  description: z.string().optional(),
  targets: z.array(z.looseObject({ expr: z.string(), refId: z.string(), legendFormat: z.string() })).optional(),
})
const dashboardType = z.looseObject({
  uid: z.literal('sluice'),
  templating: z.strictObject({ list: z.array(z.looseObject({ name: z.string(), type: z.string() })) }),
  panels: z.array(panelType),
})
const dashboard = dashboardType.parse(JSON.parse(read('docs', 'monitoring', 'grafana-dashboard.json')))
const shown = dashboard.panels.filter(({ type }) => type !== 'row')

/** All of them: the compiler says if one is missing. */
const RATE_CAUSES: Readonly<Record<RateCause, true>> = {
  declared: true,
  override: true,
  feedback: true,
  rampUp: true,
  closed: true,
  paused: true,
  'meter paused': true,
  shadow: true,
  off: true,
  unpaced: true,
}

/** What Grafana puts into an expression before it asks. */
function filledIn(expression: string): string {
  return expression.replaceAll(/\$__(rate_interval|range)/g, '5m').replaceAll('$queue', 'emails|http')
}

describe('the check of expressions finds', () => {
  test.each([
    ['sum(rate(sluice_up[5m])', 'not PromQL at 23'],
    ['sum(rate(sluice_freed_total[5m]))', 'nobody tells sluice_freed_total'],
    ['sluice_up{queue="a"}', 'sluice_up has no label queue'],
    ['sum by (tenant) (sluice_backlog_jobs)', 'nothing here has a label tenant'],
    ['sluice_wait_seconds', 'nobody tells sluice_wait_seconds'],
    ['1 > 0', 'names no metric'],
  ])('what is wrong with %s', (expression, mistake) => {
    expect(mistakesIn(expression)).toEqual([mistake])
  })
})

describe('alerts', () => {
  test.each(rules.map(({ alert, expr }) => [alert, expr]))('%s asks for what there is', (_, expr) => {
    expect(mistakesIn(expr)).toEqual([])
  })

  test('have names of their own, and say only what their series tell', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
    for (const { expr, annotations } of rules) {
      const used = [...JSON.stringify(annotations).matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label)
      expect(labelsOf(expr)).toEqual(expect.arrayContaining(used))
      const templates = [...JSON.stringify(annotations).matchAll(/\{\{(.*?)\}\}/g)].map(([, text]) => text?.trim())
      for (const text of templates) expect(text).toMatch(/^\$(labels\.\w+|value( \| humanize(Percentage|Duration)?)?)$/)
    }
  })

  test('lead to the section of the runbook that names them', () => {
    const sections = read('docs', 'runbook.md').split(/^##+ /m).slice(1)
    const named = sections.flatMap((section) => {
      const [heading = ''] = section.split('\n')
      const anchor = heading
        .toLowerCase()
        .replaceAll(/[^\w\- ]/g, '')
        .replaceAll(' ', '-')
      return [...section.matchAll(/\bSluice[A-Z]\w+/g)].map(([alert]) => `${alert} #${anchor}`)
    })
    const leading = rules.map(
      ({ alert, annotations }) => `${alert} ${annotations.runbook_url.slice('docs/runbook.md'.length)}`,
    )
    const names = new Set(leading)
    expect([...new Set(named)].toSorted()).toEqual([...names].toSorted())
    expect(sections[0]).toMatch(/^The queue grows\n/)
  })

  test('are in the reference of docs/metrics.md, each by its severity and with its section of the runbook', () => {
    const [, critical = '', warning = ''] = read('docs', 'metrics.md').split(/^\| \*\*(?:critical|warning)\*\* .*$/m)
    const listed = Object.entries({ critical, warning }).flatMap(([severity, rows]) =>
      Array.from(rows.matchAll(/^\| \[(Sluice\w+)\]\(([\w.#-]+)\)/gm), ([, alert, link]) => [
        alert,
        severity,
        `docs/${link}`,
      ]),
    )
    const told = rules.map(({ alert, labels, annotations }) => [alert, labels.severity, annotations.runbook_url])
    expect(listed.toSorted()).toEqual(told.toSorted())
  })

  test('the runbook has a row for each thing that may hold a queue, and each cause of its rate', () => {
    const [, grows = ''] = /^## The queue grows\n(.*?)^### /ms.exec(read('docs', 'runbook.md')) ?? []
    const cells = [...grows.matchAll(/^\| (.*?) \| (.*?) \|/gm)].map(([, holds, cause]) => [holds, cause])
    const told = new Set(
      cells.flat().flatMap((cell) => [...(cell ?? '').matchAll(/`([\w ]+)`/g)].map(([, word]) => word)),
    )
    const holds = HOLD_CAUSES.map((cause) => (cause === 'limits' ? 'limit NAME' : cause))
    expect([...told]).toEqual(expect.arrayContaining([...holds, 'delay', 'children', ...Object.keys(RATE_CAUSES)]))
  })

  test.each([
    ['a violation', /conformance_violations/],
    ['a queue near its capacity', /capacity_jobs > 0/],
    ['the age of the head', /oldest_age/],
    ['a pause', /sluice_paused/],
    ['starts past the meter', /bypassed_total/],
    ['jobs that fail', /failed_attempts_total/],
    ['lateness', /quantile\(0\.99.*lateness/],
    ['no workers', /sluice_workers\) == 0/],
    ['feedback', /feedback_changes/],
    ['Redis', /sluice_up == 0/],
    ['a Redis that refuses writes', /sluice_redis_refuses_writes > 0/],
    ['the memory of Redis', /memory_used_bytes .* > 0\.9/],
    ['queues that cannot be read', /sluice_unread_queues > 0/],
  ])('there is one for %s', (_, expression) => {
    expect(rules.filter(({ expr }) => expression.test(expr))).toHaveLength(1)
  })
})

describe('the dashboard', () => {
  test.each(shown.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => [title, expr])))(
    '%s: %s',
    (_, expr) => {
      expect(mistakesIn(filledIn(expr as string))).toEqual([])
    },
  )

  test('lets people choose the queue and the source, by a metric that there is', () => {
    const variables = new Map(dashboard.templating.list.map((variable) => [variable.name, variable]))
    expect([...variables.keys()]).toEqual(['datasource', 'queue'])
    const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(variables.get('queue')?.definition as string) ?? []
    expect(METRICS.find(({ name }) => name === metric)?.labels).toHaveProperty(label as string)
    const sources = [...JSON.stringify(dashboard.panels).matchAll(/"uid":"([^"]+)"/g)].map(([, uid]) => uid)
    expect(new Set(sources)).toEqual(new Set([`$\{datasource}`]))
  })

  test('every panel says what it shows, and none lies on another', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    for (const { title, description, targets } of shown) {
      expect(description, title).toBeTruthy()
      expect(new Set(targets?.map(({ refId }) => refId)).size, title).toBe(targets?.length)
    }
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)} ${y + Math.floor(i / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
    expect(dashboard.panels.every(({ gridPos: { x, w } }) => x + w <= 24)).toBe(true)
  })

  test('shows every metric of a queue, but for those that others say as well', () => {
    const all = shown.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)).join('\n')
    const missing = METRICS.filter(({ name, labels }) => 'queue' in labels && !all.includes(name))
    expect(missing.map(({ name }) => name)).toEqual(['sluice_paused_seconds_total'])
  })
})

describe('docker compose --profile monitoring', () => {
  const service = z.looseObject({
    profiles: z.tuple([z.literal('monitoring')]),
    ports: z.array(z.string().startsWith('127.0.0.1:')).optional(),
    volumes: z.array(z.string()).optional(),
    command: z.array(z.string()).optional(),
  })
  const file = parse(read('docker-compose.yml'), { strict: true, merge: true })
  const compose = z.looseObject({ services: z.record(z.string(), z.unknown()) }).parse(file)
  const names = ['metrics', 'prometheus', 'grafana']
  const services = new Map(names.map((name) => [name, service.parse(compose.services[name])]))

  test('starts nothing but them', () => {
    const others = Object.entries(compose.services).filter(([name]) => !names.includes(name))
    expect(others.filter(([, one]) => 'profiles' in (one as object))).toEqual([])
  })

  test('mounts what is there, where the programs look for it', () => {
    const mounts = [...services.values()].flatMap(({ volumes = [] }) => volumes.filter((one) => one.startsWith('.')))
    expect(mounts.length).toBeGreaterThan(3)
    for (const mount of mounts) expect(existsSync(join(ROOT, mount.split(':')[0] as string)), mount).toBe(true)
    const provider = parse(readFileSync(join(FOLDER, 'grafana-provisioning', 'dashboards', 'sluice.yml'), 'utf8'))
    expect(mounts.join('\n')).toContain(`${provider.providers[0].options.path}/`)
  })

  test('Prometheus scrapes the port that the metrics are served on, with the alerts', () => {
    const config = parse(read('docs', 'monitoring', 'prometheus.yml'), { strict: true })
    const [scrape] = config.scrape_configs
    expect(config.rule_files).toEqual(['prometheus-alerts.yml'])
    expect(rules.some(({ expr }) => expr.includes(`job="${scrape.job_name}"`))).toBe(true)
    expect(scrape.static_configs).toEqual([{ targets: ['metrics:9464'] }])
    const { command = [] } = services.get('metrics') ?? {}
    expect(command.slice(0, 2)).toEqual(['packages/cli/dist/main.js', 'metrics'])
    expect(command[command.indexOf('--port') + 1]).toBe('9464')
  })

  test('Grafana asks that Prometheus', () => {
    const config = parse(readFileSync(join(FOLDER, 'grafana-provisioning', 'datasources', 'sluice.yml'), 'utf8'))
    expect(config.datasources).toMatchObject([{ type: 'prometheus', url: 'http://prometheus:9090', isDefault: true }])
  })
})
