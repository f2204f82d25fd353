import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { checkExposure, gatewayTable } from '../../packages/gateway/src/program/settings.ts'
import { readSettings } from '../../packages/programs/src/settings.ts'
import { databaseWritesProgram } from '../../packages/workers/src/db-writes/program.ts'
import { emailProgram } from '../../packages/workers/src/email/program.ts'
import { httpProgram } from '../../packages/workers/src/http/program.ts'

const read = (file: string) => readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
const compose = read('docker-compose.yml')
const dockerfile = read('Dockerfile')

/** The lines below a heading, as far as they are indented more than it. */
function section(heading: string): string {
  const lines = compose.split('\n')
  const start = lines.findIndex((line) => line.startsWith(heading))
  const indent = heading.search(/\S/)
  const end = lines.findIndex((line, index) => index > start && line !== '' && line.search(/\S/) <= indent)
  return lines.slice(start, end === -1 ? undefined : end).join('\n')
}

/** The environment of a section, with the defaults of its `${NAME:-default}`. */
function environmentOf(text: string): Record<string, string> {
  const entries = Array.from(text.matchAll(/^ +([A-Z_]+): (.+)$/gm), ([, name = '', value = '']) => [
    name,
    value.replaceAll(/\$\{\w+:-([^}]*)\}/g, '$1'),
  ])
  return Object.fromEntries(entries)
}

test('every image has a version', () => {
  const images = Array.from(compose.matchAll(/^ +image: (.+)$/gm), ([, image]) => image)
  expect(images).toHaveLength(6)
  for (const image of images.filter((name) => name !== 'sluice-workers:local')) {
    expect(image).toMatch(/:v?\d+\.\d+(\.\d+)?(-[a-z]+)?$/)
  }
  for (const [, image] of dockerfile.matchAll(/^FROM (\S+)/gm)) expect(image).toMatch(/^node:\d+\.\d+\.\d+-slim$/)
})

describe.each([
  ['  email:', emailProgram],
  ['  db-writes:', databaseWritesProgram],
  ['  http:', httpProgram],
])('the service%s', (heading, program) => {
  const service = section(heading)

  test('is given settings that its program accepts, and no others', () => {
    const env = { ...environmentOf(section('x-worker-environment:')), ...environmentOf(service) }
    expect(() => readSettings(program.settings, env)).not.toThrow()
    const known = Object.values(program.settings).map(({ variable }) => variable)
    expect(Object.keys(env).filter((name) => !known.includes(name))).toEqual([])
  })

  test('can run more than once: no name and no port of its own', () => {
    expect(service).toContain('depends_on:')
    expect(service).not.toMatch(/container_name|ports:/)
  })

  test('is told to stop with time to spare', () => {
    const graceSeconds = Number(/stop_grace_period: (\d+)s/.exec(compose)?.[1])
    const fallback = Number(program.settings.shutdownTimeoutMs?.fallback)
    expect(graceSeconds * 1000).toBeGreaterThan(fallback)
  })
})

describe('the service of the gateway', () => {
  const service = section('  gateway:')

  test('is given settings that its program accepts, and no others', () => {
    const env = environmentOf(service)
    const settings = readSettings(gatewayTable, env)
    expect(() => checkExposure(gatewayTable, settings)).not.toThrow()
    const known = Object.values(gatewayTable).map(({ variable }) => variable) as string[]
    expect(Object.keys(env).filter((name) => !known.includes(name))).toEqual([])
  })

  test('is published on the loopback address alone, as its reason says', () => {
    expect(service).toMatch(/ports: \["127\.0\.0\.1:/)
    expect(environmentOf(service).TRUST_PROXY_REASON).toContain('loopback')
  })
})

test('the image does not run as root and watches its health', () => {
  expect(dockerfile).toMatch(/^USER node$/m)
  expect(dockerfile).toMatch(/^HEALTHCHECK /m)
})
