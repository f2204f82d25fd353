import { connect } from 'node:net'

/** What a Redis or Valkey server says about itself. */
export interface ServerIdentity {
  pid: number
  /** For people: `Redis 7.0.15` or `Valkey 8.1.1`. */
  version: string
}

/** Answers once the server replies to PING with PONG, or undefined if it refuses, is loading or is silent for 2 s. */
export function probeRedis(host: string, port: number): Promise<ServerIdentity | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host)
    let text = ''
    const finish = (identity: ServerIdentity | undefined) => {
      socket.destroy()
      resolve(identity)
    }
    socket.setTimeout(2000, () => finish(undefined))
    socket.on('error', () => finish(undefined))
    socket.on('close', () => finish(undefined))
    socket.on('connect', () => socket.write('PING\r\nINFO server\r\n'))
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1')
      if (text.includes('\r\n') && !text.startsWith('+PONG')) finish(undefined)
      const identity = readIdentity(text)
      if (identity) finish(identity)
    })
  })
}

/** Reads the reply of `INFO server`; undefined until the line with the pid has come. */
export function readIdentity(info: string): ServerIdentity | undefined {
  const pid = /process_id:(\d+)\r/.exec(info)?.[1]
  if (pid === undefined) return undefined
  const valkey = /valkey_version:([\d.]+)/.exec(info)?.[1]
  const redis = /redis_version:([\d.]+)/.exec(info)?.[1]
  return { pid: Number(pid), version: valkey ? `Valkey ${valkey}` : `Redis ${redis ?? '(unknown version)'}` }
}
