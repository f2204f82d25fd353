import { expect, test } from 'vitest'
import { failureKind } from '../../src/redis/failures.ts'

const redirected = (last: string) => `Too many Cluster redirections. Last error: ${last}`

test.each([
  ['refused', 'CLUSTERDOWN The cluster is down'],
  ['refused', 'CLUSTERDOWN Hash slot not served'],
  ['refused', 'TRYAGAIN Multiple keys request during rehashing of slot'],
  ['refused', 'MOVED 3300 127.0.0.1:7001'],
  ['refused', redirected('ReplyError: MOVED 3300 127.0.0.1:7001')],
  ['refused', redirected('ReplyError: ASK 3300 127.0.0.1:7001')],
  ['refused', redirected('SimpleError: TRYAGAIN Multiple keys request during rehashing of slot')],
  ['refused', redirected('ReplyError: CLUSTERDOWN Hash slot not served')],
  ['connection', redirected('Error: Connection is closed.')],
  ['connection', 'Failed to refresh slots cache.'],
  ['connection', 'None of startup nodes is available'],
  ['connection', "Cluster isn't ready and enableOfflineQueue options is false"],
  ['connection', 'ERR Script attempted to access a non local key in a cluster node script: 095b, on @user_script:660.'],
  [undefined, 'ERR Script attempted to access keys that do not hash to the same slot'],
  [undefined, 'ERR value is not an integer or out of range'],
] as const)('%s: %s', (kind, message) => {
  expect(failureKind(new Error(message))).toBe(kind)
})
