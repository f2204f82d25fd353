import type { InfoFields } from 'sluice/internal'
import { type Examined, type Finding, Findings, permitted, serverInfo, serverSetting } from '../check.ts'

const AOF = 'CONFIG SET appendonly yes, and the same in redis.conf'

/** Accepted jobs must survive a restart of the server. */
export async function persistence({ client }: Examined): Promise<Finding[]> {
  const findings = new Findings('persistence')
  return permitted(findings, '+info', async () => {
    const info = await serverInfo(client, 'persistence')
    const hasLog = info.get('aof_enabled') === '1'
    const settings = await permitted(findings, '+config|get, which no role has', async () =>
      hasLog
        ? [logFinding(findings, await serverSetting(client, 'appendfsync'))]
        : [snapshotFinding(findings, await serverSetting(client, 'save'))],
    )
    const known = settings.some(({ level }) => level !== 'skipped')
    return [...failures(findings, info), ...(known ? [] : [withoutSettings(findings, hasLog)]), ...settings]
  })
}

function logFinding(findings: Findings, fsync = ''): Finding {
  if (fsync !== 'no') {
    const often = fsync === 'always' ? 'before each answer' : 'every second'
    return findings.ok(`every write goes to the append-only file, which is synced ${often}`)
  }
  const message = 'appendfsync is no: a power cut loses up to 30 s of accepted jobs'
  return findings.warning(message, 'CONFIG SET appendfsync everysec')
}

function snapshotFinding(findings: Findings, save = ''): Finding {
  if (save === '') return findings.error('nothing is persisted: a restart loses every job', AOF)
  return findings.warning(`only snapshots ("${save}"): a crash loses everything since the last one`, AOF)
}

/** Few users may run CONFIG; INFO says less, but is enough for these. */
function withoutSettings(findings: Findings, hasLog: boolean): Finding {
  if (hasLog) return findings.ok('every write goes to the append-only file')
  return findings.warning(
    'there is no append-only file: a crash loses everything since the last snapshot, if there is one',
    AOF,
  )
}

function failures(findings: Findings, info: InfoFields): Finding[] {
  const remedy = "look into the server's log and at its disk: writes may be refused until a save succeeds"
  const names: Readonly<Record<string, string>> = {
    rdb_last_bgsave_status: 'the last snapshot failed',
    aof_last_bgrewrite_status: 'the last rewrite of the append-only file failed',
    aof_last_write_status: 'the last write to the append-only file failed',
  }
  return Object.entries(names).flatMap(([field, message]) =>
    info.get(field) === 'err' ? [findings.error(message, remedy)] : [],
  )
}
