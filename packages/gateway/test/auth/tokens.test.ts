import { chmodSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts'
import { fetchMiddleware } from '../../src/adapters/fetch.ts'
import { newToken, type TokenEntry, tokenHash } from '../../src/auth/token-entry.ts'
import { InvalidTokenFileError, isWorldReadable, readTokenFile } from '../../src/auth/token-file.ts'
import { type TokenReload, tokens } from '../../src/auth/tokens.ts'
import type { HttpRequest, Identity } from '../../src/middleware.ts'

const shop = newToken('shop')
const admin = newToken('admin')
const SHOP: TokenEntry = { ...shop.entry, queues: ['emails'], tier: 'gold', trafficClass: 'critical' }

function tokenFile(content: unknown = [SHOP, admin.entry]): string {
  const file = join(temporaryFolder(), 'tokens.json')
  writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 })
  return file
}

/** A handler behind the middleware, and whom the middleware took the last caller for. */
function behindTokens(file: string, options: { checkIntervalMs?: number } = {}) {
  const reloads: TokenReload[] = []
  let told: () => void = () => undefined
  const middleware = tokens({
    file,
    checkIntervalMs: 0,
    ...options,
    onReload: (result) => {
      reloads.push(result)
      told()
    },
  })
  onTestFinished(() => middleware.close())
  const seen: { identity?: Identity | undefined } = {}
  const watched = {
    async enter(request: HttpRequest) {
      const entry = await middleware.enter(request)
      seen.identity = request.identity
      return entry
    },
  }
  const handle = fetchMiddleware(watched, () => new Response('passed'))
  const ask = (authorization?: string) =>
    handle(new Request('http://localhost/queues/emails/jobs', { headers: authorization ? { authorization } : {} }))
  const reloaded = () =>
    new Promise<void>((resolve) => {
      told = resolve
    })
  return { middleware, ask, seen, reloads, reloaded }
}

test('who shows a token passes, and is known by what stands in the file', async () => {
  const { ask, seen } = behindTokens(tokenFile())
  expect(await (await ask(`Bearer ${shop.token}`)).text()).toBe('passed')
  expect(seen.identity).toEqual({ name: 'shop', queues: ['emails'], tier: 'gold', trafficClass: 'critical' })
  expect((await ask(`bearer  ${admin.token}`)).status).toBe(200)
  expect(seen.identity).toEqual({ name: 'admin' })
})

test.each([
  ['no token', undefined, 'Bearer realm="sluice"'],
  ['a token that nobody has', `Bearer ${newToken('other').token}`, 'Bearer realm="sluice", error="invalid_token"'],
  ['a token cut short', `Bearer ${shop.token.slice(0, -1)}`, 'Bearer realm="sluice", error="invalid_token"'],
  ['more than a token', `Bearer ${shop.token}x`, 'Bearer realm="sluice", error="invalid_token"'],
  ['two tokens', `Bearer ${shop.token}, Bearer ${shop.token}`, 'Bearer realm="sluice", error="invalid_token"'],
  ['the hash of a token', `Bearer ${shop.entry.sha256}`, 'Bearer realm="sluice", error="invalid_token"'],
  ['another scheme', `Basic ${btoa(`shop:${shop.token}`)}`, 'Bearer realm="sluice", error="invalid_token"'],
  ['the token bare', shop.token, 'Bearer realm="sluice", error="invalid_token"'],
  ['a text without end', `Bearer ${'a'.repeat(100_000)}`, 'Bearer realm="sluice", error="invalid_token"'],
])('who shows %s is answered with 401 and a challenge', async (_, authorization, challenge) => {
  const { ask, seen } = behindTokens(tokenFile())
  const response = await ask(authorization)
  expect(response.status).toBe(401)
  expect(response.headers.get('www-authenticate')).toBe(challenge)
  expect(response.headers.get('content-type')).toBe('application/problem+json')
  expect(response.headers.get('cache-control')).toBe('no-store')
  expect(await response.json()).toMatchObject({ status: 401 })
  expect(seen.identity).toBeUndefined()
})

test('a token shorter than 32 bytes is refused, whatever the file says', async () => {
  const token = 'x'.repeat(31)
  const file = tokenFile([{ name: 'short', sha256: tokenHash(token).toString('hex') }])
  expect((await behindTokens(file).ask(`Bearer ${token}`)).status).toBe(401)
})

describe('a file that changes', () => {
  test('counts as soon as it is seen', async () => {
    const file = tokenFile([admin.entry])
    const { ask, reloaded, reloads } = behindTokens(file, { checkIntervalMs: 20 })
    const replace = async (entries: TokenEntry[]) => {
      const seen = reloaded()
      writeFileSync(`${file}.new`, JSON.stringify(entries))
      renameSync(`${file}.new`, file)
      await seen
    }
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(401)
    await replace([SHOP, admin.entry])
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(200)
    await replace([admin.entry])
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(401)
    expect(reloads).toEqual([{ tokens: 2 }, { tokens: 1 }])
  })

  test('counts also when it came right after the first reading', async () => {
    const file = tokenFile([admin.entry])
    const { ask, reloaded } = behindTokens(file, { checkIntervalMs: 1 })
    const seen = reloaded()
    writeFileSync(file, JSON.stringify([SHOP, admin.entry]))
    await seen
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(200)
  })

  test.each([
    ['is no JSON', `{"${shop.token}`],
    ['has an entry that is wrong', [{ name: 'shop' }]],
    ['has no entry', []],
  ])('leaves the tokens as they were when it %s', async (_, content) => {
    const file = tokenFile()
    const { middleware, ask, reloads } = behindTokens(file)
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content))
    expect(middleware.reload()).toBe(false)
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(200)
    expect(reloads).toEqual([{ error: expect.any(InvalidTokenFileError) }])
    expect(String((reloads[0] as { error: unknown }).error)).not.toContain(shop.token)
  })

  test('is read again when asked to', async () => {
    const file = tokenFile([admin.entry])
    const { middleware, ask } = behindTokens(file)
    writeFileSync(file, JSON.stringify([SHOP]))
    expect(middleware.reload()).toBe(true)
    expect((await ask(`Bearer ${shop.token}`)).status).toBe(200)
    expect((await ask(`Bearer ${admin.token}`)).status).toBe(401)
  })
})

test('a file that is wrong is refused with everything that is wrong, and nothing of what it holds', () => {
  const file = tokenFile([
    { name: 'a b', sha256: shop.token },
    { name: 'plain', sha256: shop.entry.sha256, token: shop.token },
    { name: 'none', sha256: admin.entry.sha256, queues: [] },
  ])
  const read = () => readTokenFile(file)
  expect(read).toThrow(InvalidTokenFileError)
  expect(read).toThrow(
    [
      `${file}: token 1.name: expected a name of 1 to 64 letters, digits and _.@-`,
      `${file}: token 1.sha256: expected the SHA-256 of a token, 64 hexadecimal digits`,
      `${file}: token 2: expected only name, sha256, queues, tier, trafficClass, got 1 other field(s) as well`,
      `${file}: token 3.queues: expected at least one queue; leave it out for all`,
    ].join('\n'),
  )
})

test.each([
  ['two tokens of one name', [SHOP, { ...admin.entry, name: 'shop' }], 'token 2: expected a unique name'],
  ['one token twice', [SHOP, { ...SHOP, name: 'other' }], 'token 2: its hash is in the file twice'],
  ['no list', { tokens: [] }, 'expected a list of tokens'],
  ['no JSON', 'nonsense', 'expected JSON'],
])('a file with %s is refused', (_, content, problem) => {
  expect(() => readTokenFile(tokenFile(content))).toThrow(problem)
})

test('a file that is not there is refused with its name', () => {
  expect(() => readTokenFile('nowhere.json')).toThrow('nowhere.json: ENOENT')
})

test.skipIf(process.platform === 'win32')('a file that everybody may read is known as such', () => {
  const file = tokenFile()
  expect(isWorldReadable(file)).toBe(false)
  chmodSync(file, 0o644)
  expect(isWorldReadable(file)).toBe(true)
})

test('a new token has 256 random bits, and its entry only the hash', () => {
  const one = newToken('one')
  expect(one.token).toMatch(/^sluice_[\w-]{43}$/)
  expect(newToken('one').token).not.toBe(one.token)
  expect(JSON.stringify(one.entry)).not.toContain(one.token.slice(7))
  expect(readTokenFile(tokenFile([one.entry]))).toEqual([one.entry])
})
