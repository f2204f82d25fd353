import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { holdLifeline, killCommand } from './exit-hook.ts'
import { findFreePort } from './free-port.ts'
import { type MtaPackage, mtaRoot } from './mta-root.ts'
import { runCommand } from './run-command.ts'

const HOST = '127.0.0.1'
const START_TIMEOUT_MS = 20_000
const STOP_TIMEOUT_MS = 5000

/** How a mail server is configured and started. */
export interface Mta {
  readonly name: string
  readonly packageName: MtaPackage
  /** Files of its root, by their paths: it accepts mail for every recipient, and delivers none. `limits` are added. */
  files(port: number, limits: string): Readonly<Record<string, string>>
  readonly command: readonly string[]
}

/** A mail server on 127.0.0.1. */
export interface RunningMta {
  readonly url: string
  readonly port: number
  /** The text of a file in its root, '' where there is none. */
  read(path: string): Promise<string>
  /** Ends the server with all its processes, and keeps what it took. */
  down(): Promise<void>
  /** Starts it again on the same port. */
  up(): Promise<void>
  /** Ends it and removes its root. */
  stop(): Promise<void>
}

/**
 * Starts a mail server of a Debian package in a root of its own.
 * @param limits lines of its own configuration
 * @throws Error that says what is missing, or what the server wrote when it did not start
 */
export async function startMta(mta: Mta, limits: string): Promise<RunningMta> {
  const root = await copyOf(await mtaRoot(mta.packageName))
  const port = await findFreePort()
  for (const [path, text] of Object.entries(mta.files(port, limits))) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    // The file may be a hard link that another root shares.
    await rm(join(root, path), { force: true })
    await writeFile(join(root, path), text)
    await chmod(join(root, path), 0o644)
  }
  let end = async () => {}
  const up = async () => {
    end = await run(mta, root, port)
  }
  const down = () => end()
  const stop = async () => {
    await down()
    await rm(root, { recursive: true, force: true })
  }
  try {
    await up()
  } catch (error) {
    await stop()
    throw error
  }
  const read = (path: string) => readFile(join(root, path), 'utf8').catch(() => '')
  return { url: `smtp://${HOST}:${port}`, port, read, down, up, stop }
}

/** @returns what ends it */
async function run(mta: Mta, root: string, port: number): Promise<() => Promise<void>> {
  // A group of its own: these servers are several processes.
  const server = spawn('chroot', [root, ...mta.command], {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    cwd: '/',
  })
  let output = ''
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (chunk) => (output += chunk))
  const cutLifeline = holdLifeline(killCommand(-(server.pid as number), 'KILL', root))
  const end = async () => {
    await stopGroup(server)
    cutLifeline()
  }
  try {
    await untilListening(port, server)
  } catch (error) {
    await end()
    throw new Error(`${mta.name} did not start: ${(error as Error).message}; it wrote: ${output.trim()}`)
  }
  return end
}

/** A separate root with hard links to the same files, so that several servers of one package can run at once. */
async function copyOf(root: string): Promise<string> {
  const copy = await mkdtemp(join(dirname(dirname(root)), '.running-'))
  await runCommand('cp', ['-al', `${root}/.`, copy])
  // The server's users need access to it.
  await chmod(copy, 0o755)
  return copy
}

async function untilListening(port: number, server: ChildProcess): Promise<void> {
  const deadline = Date.now() + START_TIMEOUT_MS
  while (Date.now() < deadline) {
    if (server.exitCode !== null) throw new Error(`it ended with ${server.exitCode}`)
    if (await isListening(port)) return
    await delay(50)
  }
  throw new Error(`nothing listened on port ${port} within ${START_TIMEOUT_MS} ms`)
}

/** Asks the kernel rather than connecting: the servers count connections. */
async function isListening(port: number): Promise<boolean> {
  const LISTENING = '0A'
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const table = await readFile('/proc/net/tcp', 'utf8')
  return table.split('\n').some((line) => {
    const [, address, , state] = line.trim().split(/ +/)
    return address === local && state === LISTENING
  })
}

async function stopGroup(server: ChildProcess): Promise<void> {
  const group = -(server.pid as number)
  const ended = server.exitCode === null && server.signalCode === null ? once(server, 'exit') : Promise.resolve()
  signal(group, 'SIGTERM')
  await Promise.race([ended, delay(STOP_TIMEOUT_MS)])
  signal(group, 'SIGKILL')
  await ended
}

function signal(group: number, name: NodeJS.Signals): void {
  try {
    process.kill(group, name)
  } catch {
    // It is gone.
  }
}

/** Postfix's log of what happens to each mail. */
export const POSTFIX_LOG = 'var/log/mail.log'

export const postfix: Mta = {
  name: 'Postfix',
  packageName: 'postfix',
  command: ['/usr/lib/postfix/sbin/master', '-d', '-c', '/etc/postfix'],
  files: (port, limits) => ({
    'etc/postfix/main.cf': `compatibility_level = 3.6
myhostname = mx.example
queue_directory = /var/spool/postfix
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
data_directory = /var/lib/postfix
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mydestination =
alias_maps =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
default_transport = discard
smtpd_client_event_limit_exceptions =
maillog_file = /${POSTFIX_LOG}
${limits}
`,
    'etc/postfix/master.cf': `127.0.0.1:${port} inet n - n - - smtpd
anvil unix - - n - 1 anvil
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
proxymap unix - - n - - proxymap
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
error unix - - n - - error
discard unix - - n - - discard
postlog unix-dgram n - n - 1 postlogd
`,
  }),
}

export const exim: Mta = {
  name: 'Exim',
  packageName: 'exim4-daemon-light',
  command: ['/usr/sbin/exim4', '-bdf', '-q1h'],
  files(port, limits) {
    const [main = '', acl = ''] = limits.split('\nacl:\n')
    return {
      'etc/exim4/exim4.conf': `primary_hostname = mx.example
local_interfaces = 127.0.0.1
daemon_smtp_ports = ${port}
host_lookup =
tls_advertise_hosts =
keep_environment =
queue_only = true
log_file_path = /var/log/exim4/%slog
acl_smtp_rcpt = acl_rcpt
${main}
begin acl
acl_rcpt:
${acl}
  accept
begin routers
all:
  driver = accept
  transport = nowhere
begin transports
nowhere:
  driver = appendfile
  file = /dev/null
  user = Debian-exim
`,
    }
  },
}

export const openSmtpd: Mta = {
  name: 'OpenSMTPD',
  packageName: 'opensmtpd',
  command: ['/usr/sbin/smtpd', '-d', '-f', '/etc/smtpd.conf'],
  files: (port, limits) => ({
    'etc/mailname': 'mx.example\n',
    'etc/smtpd.conf': `${limits}
listen on 127.0.0.1 port ${port} hostname mx.example
action "nowhere" relay host smtp://127.0.0.1:1
match from any for any action "nowhere"
`,
  }),
}
