import { isIP } from 'node:net'
import {
  readBy,
  redisSettings,
  runSettings,
  SettingsError,
  type SettingsOf,
  type SettingTable,
  textLike,
  wholeNumber,
} from 'sluice-programs'
import { onlyFrom } from '../auth/only-from.ts'
import { tokens } from '../auth/tokens.ts'
import { readConfigFile } from './config-file.ts'

const who = {
  host: {
    variable: 'HOST',
    expected: 'the IP address to listen on; a non-loopback one needs TOKEN_FILE, or TRUST_PROXY with a reason',
    schema: readBy(readAddress),
    fallback: '127.0.0.1',
  },
  port: {
    variable: 'PORT',
    expected: 'a port from 0 to 65535; 0: any free one',
    schema: wholeNumber(0, 65_535),
    fallback: '8080',
  },
  tokenFile: {
    variable: 'TOKEN_FILE',
    expected: 'a JSON file of tokens (--new-token); without it callers need no token',
    schema: readBy(readTokens),
    fallback: '',
  },
  trustProxy: {
    variable: 'TRUST_PROXY',
    expected: 'proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,loopback',
    schema: readBy(readProxies),
    fallback: '',
  },
  trustProxyReason: {
    variable: 'TRUST_PROXY_REASON',
    expected: 'how the proxies keep others out; needed on a non-loopback HOST without TOKEN_FILE',
    schema: textLike(/^[^\p{Cc}]{0,500}$/u),
    fallback: '',
  },
} as const

const bounds = {
  requestTimeoutMs: {
    variable: 'REQUEST_TIMEOUT_MS',
    expected: 'milliseconds from 1000: how long a request may take to arrive',
    schema: wholeNumber(1000, 3_600_000),
    fallback: '15000',
  },
  keepAliveTimeoutMs: {
    variable: 'KEEP_ALIVE_TIMEOUT_MS',
    expected: "milliseconds from 1000: how long a connection may be idle; set it above the proxy's idle timeout",
    schema: wholeNumber(1000, 3_600_000),
    fallback: '72000',
  },
  maxBodyBytes: {
    variable: 'MAX_BODY_BYTES',
    expected: 'a whole number from 1: maximum size of a body',
    schema: wholeNumber(1, 1_073_741_824),
    fallback: '1048576',
  },
  maxHeaderBytes: {
    variable: 'MAX_HEADER_BYTES',
    expected: 'a whole number from 1024: maximum size of the header fields',
    schema: wholeNumber(1024, 1_048_576),
    fallback: '16384',
  },
  maxConnections: {
    variable: 'MAX_CONNECTIONS',
    expected: 'a whole number from 1: maximum number of open connections',
    schema: wholeNumber(1, 1_000_000),
    fallback: '10000',
  },
} as const

export const gatewayTable = {
  ...redisSettings,
  config: {
    variable: 'CONFIG',
    expected: 'a JSON file such as examples/gateway.config.json',
    schema: readBy(readConfigFile),
  },
  ...who,
  ...bounds,
  limitsPrefix: {
    variable: 'LIMITS_PREFIX',
    expected: 'the prefix of the Redis keys of limits and modes, without a final colon',
    schema: textLike(/^[^\p{Cc}]{0,127}[^\p{Cc}:]$/u),
    fallback: 'sluice',
  },
  stallTimeoutMs: {
    variable: 'STALL_TIMEOUT_MS',
    expected: 'milliseconds from 1000: how long requests may go unanswered before /healthz is 503',
    schema: wholeNumber(1000, 86_400_000),
    fallback: '60000',
  },
  drainMs: {
    variable: 'DRAIN_MS',
    expected: 'milliseconds: how long after SIGTERM it still takes requests, with /readyz at 503',
    schema: wholeNumber(0, 600_000),
    fallback: '0',
  },
  ...runSettings,
} as const satisfies SettingTable

export type GatewaySettings = SettingsOf<typeof gatewayTable>

/** Whether only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  return /^127\./.test(host) || host === '::1' || /^::ffff:127\./i.test(host)
}

type Exposed = 'host' | 'tokenFile' | 'trustProxy' | 'trustProxyReason'

/**
 * @param table the names of the variables
 * @throws SettingsError if other machines could reach it without authentication
 */
export function checkExposure(
  table: Readonly<Record<Exposed, { readonly variable: string }>>,
  { host, tokenFile, trustProxy, trustProxyReason }: Pick<GatewaySettings, Exposed>,
): void {
  if (isLoopback(host) || tokenFile !== '' || (trustProxy.length > 0 && trustProxyReason !== '')) return
  const or = `${table.tokenFile.variable}, or ${table.trustProxy.variable} with a reason`
  throw new SettingsError([
    trustProxy.length > 0
      ? {
          variable: table.trustProxyReason.variable,
          problem: 'expected what the proxies do to keep others out, got nothing',
        }
      : { variable: table.host.variable, problem: `${host} can be reached from other machines: expected ${or}` },
  ])
}

function readAddress(text: string): string {
  if (isIP(text)) return text
  throw new Error(`expected an IP address, such as 127.0.0.1 or 0.0.0.0, got ${JSON.stringify(text)}`)
}

/** Checks the token file, so that a mistake in it is reported together with the other settings. */
function readTokens(path: string): string {
  if (path !== '') tokens({ file: path, checkIntervalMs: 0 })
  return path
}

function readProxies(text: string): readonly string[] {
  const entries = text.split(',').map((entry) => entry.trim())
  const proxies = entries.filter((entry) => entry !== '')
  onlyFrom(proxies)
  return proxies
}
