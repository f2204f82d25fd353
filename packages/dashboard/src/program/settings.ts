import { gatewayTable } from 'sluice-gateway/internal'
import { redisSettings, runSettings, type SettingsOf, type SettingTable, textLike, yesOrNo } from 'sluice-programs'

const { host, port, tokenFile, trustProxy, trustProxyReason } = gatewayTable

/** The settings of the dashboard, which come from the command line. */
export const dashboardTable = {
  redisUrl: { ...redisSettings.redisUrl, variable: '--redis-url' },
  readUrl: {
    variable: '--read-url',
    expected: 'a redis:// or rediss:// URL for reads: of a replica, or with a read-only user',
    schema: textLike(/^(rediss?:\/\/[^/?#].*)?$/),
    fallback: '',
    secret: true,
  },
  prefix: { ...redisSettings.prefix, variable: '--prefix' },
  host: {
    ...host,
    variable: '--host',
    expected:
      'the IP address that it listens on; a non-loopback one needs --token-file, or --trust-proxy with a reason',
  },
  port: { ...port, variable: '--port', fallback: '3030' },
  tokenFile: {
    ...tokenFile,
    variable: '--token-file',
    expected: 'a JSON file of tokens, made with `sluice gateway --new-token`: without it no caller has to authenticate',
  },
  trustProxy: { ...trustProxy, variable: '--trust-proxy' },
  trustProxyReason: {
    ...trustProxyReason,
    variable: '--trust-proxy-reason',
    expected: 'why --token-file is not needed: what the proxies do to keep others out',
  },
  allowActions: {
    variable: '--allow-actions',
    expected: 'whether rates, pauses and modes can be changed, and dead letters redriven',
    schema: yesOrNo,
    fallback: 'false',
  },
  showData: {
    variable: '--show-data',
    expected: 'whether the data of jobs is shown',
    schema: yesOrNo,
    fallback: 'false',
  },
  by: {
    variable: '--by',
    expected: 'the name recorded for changes made without a token',
    schema: textLike(/^[^\p{Cc}]{1,200}$/u),
    fallback: 'dashboard',
  },
  title: {
    variable: '--title',
    expected: 'the title of the page, at most 100 characters',
    schema: textLike(/^[^\p{Cc}]{1,100}$/u),
    fallback: 'Sluice',
  },
  shutdownTimeoutMs: { ...runSettings.shutdownTimeoutMs, variable: '--shutdown-timeout', fallback: '4000' },
  logLevel: { ...runSettings.logLevel, variable: '--log-level' },
} as const satisfies SettingTable

export type DashboardSettings = SettingsOf<typeof dashboardTable>

/** Whether the proxies are declared to authenticate users: then only requests from these proxies are accepted. */
export function isGuarded({ trustProxy, trustProxyReason }: DashboardSettings): boolean {
  return trustProxy.length > 0 && trustProxyReason !== ''
}
