import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { createServer } from 'node:tls'
import { onTestFinished } from '../../../test/support/concurrent.ts'
import { temporaryFolder } from '../../../test/support/temporary-folder.ts'

/** Why there is no certificate to refuse, or undefined. */
export const noCertificate = spawnSync('openssl', ['version']).status === 0 ? undefined : 'openssl is not installed'

/**
 * A server that speaks TLS before a Redis, until the test ends. Its certificate is its own authority.
 * @param subject whom it is for, such as `DNS:redis.example`
 */
export async function startTlsFront(target: string, subject: string): Promise<{ port: number; certificate: string }> {
  const folder = temporaryFolder()
  const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const asked = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
  const whom = ['-subj', '/CN=test', '-addext', `subjectAltName=${subject}`]
  execFileSync('openssl', [...asked, ...whom, '-keyout', key, '-out', certificate], { stdio: 'ignore' })
  const { hostname, port } = new URL(target)
  const server = createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, (socket) => {
    const redis = connect(Number(port), hostname)
    for (const end of [socket, redis]) end.on('error', () => end.destroy())
    socket.on('close', () => redis.destroy())
    redis.on('close', () => socket.destroy())
    socket.pipe(redis).pipe(socket)
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, certificate }
}
